"""A YAML file that is a list of entries, each with a few texts: accounts, tokens. Faults have their line, and no value."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import yaml

from broker.config.yaml_faults import yaml_fault

FILE_BYTES_MAX: Final = 64 * 2**20
ENTRIES_MAX: Final = 100_000
PLAIN_TEXT: Final = re.compile(r"[ !#-\[\]-~]*")

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class EntriesFault(Exception):
    """The file cannot be used. `line` counts from 1, 0 for the whole file. The text has nothing secret."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.line = line


def read_entries(data: bytes, names: Collection[str], what: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, texts by name) of each entry; other names are ignored. `what` is an entry for faults. Raises EntriesFault."""
    if len(data) > FILE_BYTES_MAX:
        raise EntriesFault(0, f"the file has more than {FILE_BYTES_MAX} bytes")
    try:
        root = yaml.compose(data.decode("utf-8-sig"), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise EntriesFault(data.count(b"\n", 0, error.start) + 1, "this is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line, text = yaml_fault(error)
        raise EntriesFault(line, text) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise EntriesFault(0, "this is not YAML") from None
    if root is None or root.tag == "tag:yaml.org,2002:null":
        return
    if not isinstance(root, yaml.SequenceNode):
        raise EntriesFault(1, f"this is not a list of {what}s, whose lines begin with `- `")
    if len(root.value) > ENTRIES_MAX:
        raise EntriesFault(0, f"the file has more than {ENTRIES_MAX} {what}s")
    for node in root.value:
        yield node.start_mark.line + 1, _texts(node, names, what)


def _texts(node: yaml.Node, names: Collection[str], what: str) -> dict[str, str]:
    if not isinstance(node, yaml.MappingNode):
        raise EntriesFault(node.start_mark.line + 1, f"this is not an entry of one {what}: {', '.join(names)}")
    texts: dict[str, str] = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in names:
            line = key.start_mark.line + 1
            if not isinstance(value, yaml.ScalarNode):
                raise EntriesFault(line, f"{key.value} is not a text")
            if key.value in texts:
                raise EntriesFault(line, f"a second {key.value} in one {what}")
            texts[key.value] = value.value
    return texts


def quoted(text: str) -> str:
    """Return the text as a double-quoted scalar of ASCII characters."""
    if PLAIN_TEXT.fullmatch(text):
        return f'"{text}"'
    parts = []
    for character in text:
        if character in '"\\':
            parts.append(f"\\{character}")
        elif " " <= character <= "~":
            parts.append(character)
        else:
            parts.append(f"\\U{ord(character):08X}")
    return f'"{"".join(parts)}"'
