"""A YAML scalar becomes the value of a key, or a ValueFault that says what would be right."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

import yaml

from broker.config.addresses import LOOPBACK_HOST, Address, AddressError, parse_address
from broker.config.durations import DurationError, format_duration, format_size, parse_duration, parse_size
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    EntryFault,
    Flag,
    Kind,
    Setting,
    Size,
    SizeOrShare,
    Text,
    Whole,
    WholeOrAuto,
)

NULL_TAG: Final = "tag:yaml.org,2002:null"
FLAG_TAG: Final = "tag:yaml.org,2002:bool"
TRUE_WORDS: Final = ("true", "yes", "on")
WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9](_?[0-9]){0,24}", re.ASCII)
OTHER_BASE: Final = re.compile(r"0[xob][0-9a-fA-F_]{1,20}", re.ASCII)
SHARE: Final = re.compile(r"([0-9]{1,3})%", re.ASCII)
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
QUOTE_MAX: Final = 60
PLAIN_NODES_MAX: Final = 10_000  # of one entry


class ValueFault(ValueError):
    """The scalar is not a value of its key."""


def is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL_TAG


def written(node: yaml.Node) -> str:
    """Return the text of the file, shortened and quoted, for a fault."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    text = str(node.value)
    return f'"{text[:QUOTE_MAX]}…"' if len(text) > QUOTE_MAX else f'"{text}"'


def plain_data(node: yaml.Node) -> Any:
    """Return a node as Python data, as YAML reads it. Raises EntryFault."""
    if nodes_in(node, PLAIN_NODES_MAX) > PLAIN_NODES_MAX:
        raise EntryFault("", f"more than {PLAIN_NODES_MAX} values when aliases are followed")
    try:
        return yaml.SafeLoader("").construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise EntryFault("", f"this is not plain YAML: {getattr(error, 'problem', error)}") from None


def nodes_in(node: yaml.Node, most: int) -> int:
    """Return the number of nodes below a node, aliases followed; above `most` the count may be too low."""
    count = 0
    waiting = [node]
    while waiting and count <= most:
        found = waiting.pop()
        count += 1
        if isinstance(found, yaml.MappingNode):
            waiting += [child for pair in found.value for child in pair]
        elif isinstance(found, yaml.SequenceNode):
            waiting += found.value
    return count


def read_value(setting: Setting, kind: Kind, node: yaml.Node) -> Any:
    """Return the value of a scalar, or None where the text means the default. Raises ValueFault."""
    shown = "this value" if setting.secret else written(node)
    if not isinstance(node, yaml.ScalarNode) or is_null(node):
        what = "nothing" if is_null(node) else shown
        raise ValueFault(f"{what} stands where {_wanted(kind)} belongs")
    text = node.value
    if text == "" and setting.default_text:
        return None
    try:
        return _read(kind, text, shown, node.tag)
    except (AddressError, DurationError) as error:
        raise ValueFault(str(error)) from None


def _read(kind: Kind, text: str, shown: str, tag: str) -> Any:
    """Raises ValueFault, AddressError, DurationError."""
    fault = f"{shown} is not {_wanted(kind)}"
    example = f"; for example {getattr(kind, 'example', '')}"
    match kind:
        case Whole():
            number = _whole_number(text)
            if number is None or not kind.minimum <= number <= kind.maximum:
                raise ValueFault(fault + example)
            return number
        case WholeOrAuto():
            number = _whole_number(text)
            if text != "auto" and (number is None or not kind.minimum <= number <= kind.maximum):
                raise ValueFault(fault + example)
            return text if number is None else str(number)
        case Size():
            size = _whole_number(text)
            if size is None:
                size = parse_size(text)
            if not kind.minimum <= size <= kind.maximum:
                raise ValueFault(fault + example)
            return size
        case SizeOrShare():
            share = SHARE.fullmatch(text)
            try:
                is_right = 1 <= int(share[1]) <= 100 if share else parse_size(text) >= kind.minimum or text == "0"
            except DurationError:
                is_right = False
            if not is_right:
                raise ValueFault(fault + example)
            return text
        case Duration():
            seconds = parse_duration(text)
            if seconds < kind.minimum:
                least = format_duration(kind.minimum)
                raise ValueFault(f"{shown} is shorter than {least}, the shortest that is possible{example}")
            return seconds
        case Flag():
            if tag != FLAG_TAG:
                raise ValueFault(fault)
            return text.lower() in TRUE_WORDS
        case Choice():
            if text not in kind.words:
                near = difflib.get_close_matches(text.lower(), kind.words, n=1)
                hint = f"; the nearest is {near[0]}" if near else f"; for example {kind.words[0]}"
                raise ValueFault(fault + hint)
            return text
        case Text():
            if len(text.encode()) > kind.length_max or CONTROL.search(text) or (kind.is_name and not text.strip()):
                raise ValueFault(fault + example)
            return text
        case AddressText():
            address = parse_address(
                text, kind.default_port, unix_allowed=kind.unix_allowed, srv_allowed=kind.srv_allowed
            )
            if not kind.to_connect or address.scheme != "tcp":
                return address
            if address.port == 0:
                raise ValueFault(f"{shown} has the port 0, which nobody listens on{example}")
            return address if address.host else Address("tcp", LOOPBACK_HOST, address.port)
        case _:
            raise AssertionError(kind)


def _wanted(kind: Kind) -> str:
    match kind:
        case Whole():
            return f"a whole number of {kind.minimum}..{kind.maximum}"
        case WholeOrAuto():
            return f"a whole number of {kind.minimum}..{kind.maximum}, or auto"
        case Size():
            return f"a size of {format_size(kind.minimum)}..{format_size(kind.maximum)}"
        case SizeOrShare():
            return f"0, a size of at least {format_size(kind.minimum)} or a share of 1%..100%"
        case Duration():
            return "a duration such as " + kind.example
        case Flag():
            return "true or false"
        case Choice():
            return "one of " + ", ".join(kind.words)
        case Text():
            what = "a name" if kind.is_name else "a text"
            return f"{what} of at most {kind.length_max} bytes without control characters"
        case AddressText():
            return "an address such as " + kind.example
        case _:
            return "a list or a mapping"


def _whole_number(text: str) -> int | None:
    """Return a whole number as YAML writes it: `1000`, `1_000`, `0x3e8`."""
    if WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if OTHER_BASE.fullmatch(text):
        try:
            return int(text, 0)
        except ValueError:
            return None
    return None
