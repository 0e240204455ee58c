"""The environment in a configuration: `${NAME}` in the values of a file, and variables that set keys by their names.

`${NAME}` is the variable NAME; where it is not set, the content of the file that NAME_FILE names, as containers get their
secrets. `GMQTTD_MQTT__MAX_INFLIGHT=50` sets the key `mqtt.max_inflight`, whatever the file says.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from broker.config.schema import Key, keys_of
from broker.config.setting import Entries, Section, Sections, Sequence
from broker.config.settings import Settings

PREFIX: Final = "GMQTTD_"
LEVEL: Final = "__"  # between the names of nested keys
SECRET_BYTES_MAX: Final = 64 * 1024  # of a file that a variable names
TEXT_TAG: Final = "tag:yaml.org,2002:str"
MERGE_TAG: Final = "tag:yaml.org,2002:merge"
REFERENCE: Final = re.compile(r"(\$?)\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?", re.ASCII)
PLAIN: Final = (True, False)  # how a scalar without quotes is resolved


class EnvironmentFault(ValueError):
    """A variable is not set, or cannot be what it is to be."""


ReadFile = Callable[[str, int], bytes]  # path, bytes at most; raises OSError and ValueError


@dataclass(frozen=True, slots=True)
class _Place:
    """The place that a variable leads to. `key` is None for an item of a list of mappings."""

    key: Key | None
    section: type[Any] | None


def compose(text: str, name: str) -> yaml.Node | None:
    """Return the tree of a text; its nodes carry `name` in their marks. Raises yaml.YAMLError and ValueError."""
    loader = yaml.SafeLoader(text)
    loader.name = name
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def insert_variables(
    root: yaml.Node, environment: Mapping[str, str], read: ReadFile
) -> Iterator[tuple[yaml.Node, str]]:
    """Replace `${NAME}` in each value below `root`. Yields what is wrong, with the node that has it."""
    for node in scalars(root):
        if "${" in node.value:
            try:
                node.value = REFERENCE.sub(lambda found: _referred(found, environment, read), node.value)
            except EnvironmentFault as fault:
                yield node, str(fault)
                continue
            if node.style is None:
                node.tag = _tag(node.value)


def scalars(root: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Yield each value below `root` once; keys are none."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue  # an alias
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.ScalarNode):
            yield node


def _referred(found: re.Match[str], environment: Mapping[str, str], read: ReadFile) -> str:
    """Return what stands for one `${…}`. Raises EnvironmentFault."""
    escape, name, default = found.groups()
    if escape:
        return found[0][1:]
    if name is None:
        raise EnvironmentFault('"${" begins no ${NAME} and no ${NAME:-default}; a plain one is written $${')
    if name in environment:
        return environment[name]
    path = environment.get(f"{name}_FILE")
    if path:
        return _content(f"{name}_FILE", path, read)
    if default is None:
        raise EnvironmentFault(f"neither {name} nor {name}_FILE is set; set one, or write ${{{name}:-default}}")
    return str(default)


def _content(variable: str, path: str, read: ReadFile) -> str:
    """Return the text of a file without its last line end. Raises EnvironmentFault."""
    try:
        data = read(path, SECRET_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EnvironmentFault(f'the file "{path}" that {variable} names cannot be read: {reason}') from None
    if len(data) > SECRET_BYTES_MAX:
        raise EnvironmentFault(f'the file "{path}" that {variable} names has more than {SECRET_BYTES_MAX} bytes')
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise EnvironmentFault(f'the file "{path}" that {variable} names is not UTF-8 text') from None


def _tag(text: str) -> str:
    """Return the tag of a value without quotes."""
    tag: str = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, PLAIN)  # type: ignore[no-untyped-call]
    return tag


def set_keys(root: yaml.MappingNode, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Set the keys that variables name, in the order of their names. Yields what is wrong, with the variable.

    A variable without `__` that is no key of the first level is left alone: Kubernetes has `GMQTTD_SERVICE_HOST` and
    others for a Service of that name. An empty one sets nothing.
    """
    first_level = [key.name for key in keys_of(Settings)]
    for variable in sorted(environment):
        text = environment[variable]
        path = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or not text:
            continue
        if LEVEL not in path and path not in first_level:
            near = difflib.get_close_matches(path, first_level, n=1, cutoff=0.85)
            if near:
                yield variable, f"unknown key; the nearest known one is {PREFIX}{near[0].upper()}"
            continue
        try:
            _set(root, variable, path.split(LEVEL), text)
        except EnvironmentFault as fault:
            yield variable, str(fault)


def _set(root: yaml.MappingNode, variable: str, names: list[str], text: str) -> None:
    """Put a value where its names lead to. Raises EnvironmentFault."""
    mark = yaml.Mark(variable, 0, -1, 0, None, 0)  # no line
    node: yaml.Node = root
    place = _Place(None, Settings)
    for position, name in enumerate(names):
        is_last = position == len(names) - 1
        inner: yaml.Node | None
        if isinstance(node, yaml.SequenceNode):
            inner = _item(node, name)
            place = _Place(None, place.section)
        else:
            assert isinstance(node, yaml.MappingNode)
            place, inner = _child(node, place, name)
        if is_last:
            made = _value(place, text, variable, mark)
        elif place.section is None:
            raise EnvironmentFault(f'nothing can be set below "{LEVEL.join(names[: position + 1]).upper()}"')
        else:
            made = _opened(place, inner, mark)
        _put(node, name, place, made, mark)
        node = made


def _child(node: yaml.MappingNode, place: _Place, name: str) -> tuple[_Place, yaml.Node | None]:
    """Return the place of a key, and its present value. Raises EnvironmentFault."""
    assert place.section is not None
    keys = {word.lower(): key for key in keys_of(place.section) for word in (key.name, *key.setting.aliases)}
    key = keys.get(name)
    if key is None:
        near = difflib.get_close_matches(name, list(keys), n=1)
        hint = f"the nearest known one is {near[0].upper()}" if near else f"known are {', '.join(keys).upper()}"
        raise EnvironmentFault(f'unknown key "{name.upper()}"; {hint}')
    words = (key.name, *key.setting.aliases)
    found = next((value for word, value in (*node.value, *_merged(node)) if word.value in words), None)
    return _Place(key, key.section), found


def _merged(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yield the pairs that `<<` brings into a mapping: the first one of a key counts."""
    for word, value in node.value:
        if word.tag == MERGE_TAG:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(source, yaml.MappingNode):
                    yield from source.value


def _item(node: yaml.SequenceNode, name: str) -> yaml.Node | None:
    """Return an item of a list of mappings; None for the one behind its end. Raises EnvironmentFault."""
    count = len(node.value)
    if not (name.isascii() and name.isdigit() and int(name) <= count):
        raise EnvironmentFault(
            f'"{name}" is no item of the list, which has {count}; items count from 0, {count} adds one'
        )
    return node.value[int(name)] if int(name) < count else None


def _opened(place: _Place, present: yaml.Node | None, mark: yaml.Mark) -> yaml.Node:
    """Return a copy of a mapping or list that is there, since an alias may have it elsewhere, or an empty one."""
    kind: type[yaml.CollectionNode] = yaml.MappingNode
    if place.key is not None and isinstance(place.key.setting.kind, Sections):
        kind = yaml.SequenceNode
    if isinstance(present, kind):
        return kind(present.tag, list(present.value), present.start_mark, present.end_mark)
    return kind("", [], mark, mark)


def _put(node: yaml.Node, name: str, place: _Place, made: yaml.Node, mark: yaml.Mark) -> None:
    if isinstance(node, yaml.SequenceNode):
        node.value[int(name) : int(name) + 1] = [made]
        return
    assert place.key is not None
    words = (place.key.name, *place.key.setting.aliases)
    kept = [pair for pair in node.value if pair[0].value not in words]
    node.value = [*kept, (yaml.ScalarNode(TEXT_TAG, place.key.name, mark, mark), made)]


def _value(place: _Place, text: str, variable: str, mark: yaml.Mark) -> yaml.Node:
    """Return the node of a value: YAML for what is a list or a mapping, else the text as it is. Raises EnvironmentFault."""
    kind = place.key.setting.kind if place.key is not None else None
    if kind is not None and not isinstance(kind, Section | Sections | Sequence | Entries):
        tag = _tag(text)
        return yaml.ScalarNode(TEXT_TAG if tag.endswith(":null") else tag, text, mark, mark)
    try:
        node = compose(text, variable)
    except (yaml.YAMLError, ValueError, RecursionError):
        node = None
    if isinstance(kind, Sequence) and not isinstance(node, yaml.SequenceNode):
        items = [yaml.ScalarNode(TEXT_TAG, item.strip(), mark, mark) for item in text.split(",")]
        return yaml.SequenceNode("", items, mark, mark)
    if node is None:
        example = "[{address: ':1883'}]" if isinstance(kind, Sections) else "{name: value}"
        raise EnvironmentFault(
            f"the text is not YAML of a {'list' if isinstance(kind, Sections) else 'mapping'}, as {example}"
        )
    return node
