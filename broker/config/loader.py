"""A configuration file becomes Settings, or every fault in it with its line, key, and what would be right.

The YAML is read as a tree of nodes, which have their lines and the text as written: a node name `007` stays text, and `yes`
is a flag only where a flag belongs.
"""

# not a core: reads files
from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from broker.config.environment import MERGE_TAG, compose, insert_variables, scalars, set_keys
from broker.config.installed import installed_plugins, plugin_fault
from broker.config.printer import secrets_of
from broker.config.rules import Protects, check_settings
from broker.config.schema import Key, keys_of, walk
from broker.config.setting import Entries, EntryFault, Kind, Section, Sections, Sequence
from broker.config.settings import DEFAULT_LISTENERS_WITH_AUTH, Settings
from broker.config.values import ValueFault, is_null, plain_data, read_value, written
from broker.config.yaml_faults import yaml_fault

FILE_BYTES_MAX: Final = 2**20
FAULTS_MAX: Final = 100  # of one file; the last line counts the others
ITEMS_MAX: Final = 1000  # of one list
NODES_MAX: Final = 20_000  # of one section after its aliases are followed

# Keys that some files of the Go broker have and that it does not use.
UNUSED_KEYS: Final = ("gRPC", "config_dir", "mqtt.max_awaiting_rel", "plugins.admin")


Place = tuple[str, int]  # the file or the variable of the environment, and the line


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a file, or in a variable of the environment, which `file` then names. `line` counts from 1; it is 0,
    and `key` empty, for a fault of the whole file."""

    file: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        told = f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"
        # It goes to a terminal: what the file quotes with escapes of YAML stays an escape.
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in told)


class Warning(Fault):
    """Something that a file sets and the node does not do. The file is good."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LoadResult:
    """`settings` is None exactly when there are faults."""

    settings: Settings | None
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)


def load(path: str | os.PathLike[str], allow_missing: bool = False) -> LoadResult:
    """Read and check a file. Never raises for anything that a file can be.

    allow_missing: a plugin that the file asks for and that is not installed is a warning, not a fault.
    """
    file = os.fspath(path)
    try:
        data = _read_file(file, FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return _one_fault(file, "there is no such file; gmqttd takes another one with -c FILE")
    except IsADirectoryError:
        return _one_fault(file, "this is a directory; name a YAML file in it")
    except PermissionError:
        return _one_fault(file, "this user may not read the file")
    except (OSError, ValueError) as error:
        return _one_fault(file, f"the file cannot be read: {getattr(error, 'strerror', None) or error}")
    found = load_bytes(data, file, allow_missing, os.environ)
    if found.settings is not None and _is_read_by_all(file):
        texts = _own_texts(data, file)
        key = next((key for key, secret in secrets_of(found.settings) if secret in texts), "")
        if key:
            text = "every user of this machine may read this secret; chmod o-r the file, or write ${NAME} of a variable"
            found.warnings.append(Warning(file, 0, key, text))
    return found


def load_bytes(
    data: bytes, file: str, allow_missing: bool = False, environment: Mapping[str, str] | None = None
) -> LoadResult:
    """Check the content of a file; `file` is the name for its faults, `environment` has the variables, if any."""
    if len(data) > FILE_BYTES_MAX:
        return _one_fault(file, f"the file has more than {FILE_BYTES_MAX} bytes; that is not a configuration of a node")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _one_fault(file, f"the byte 0x{data[error.start]:02x} is not UTF-8 text", line)
    try:
        root = compose(text, file)
    except yaml.MarkedYAMLError as error:
        line, what = yaml_fault(error)
        return _one_fault(file, what, line)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return _one_fault(file, f"this is not YAML: the character U+{error.character:04X} is not allowed", line)
    except (yaml.YAMLError, ValueError) as error:
        return _one_fault(file, f"this is not YAML: {error}")
    except RecursionError:
        return _one_fault(file, "the file is nested too deeply; a configuration has at most five levels")
    is_empty = root is None or is_null(root)
    if is_empty:
        start = yaml.Mark(file, 0, 0, 0, None, 0)
        root = yaml.MappingNode("", [], start, start)
    if not isinstance(root, yaml.MappingNode):
        return _one_fault(file, "this is not a mapping of keys; for example \"listeners: [{address: ':1883'}]\"", 1)
    reading = _Reading(file, allow_missing)
    reading.insert(environment or {}, root)
    if is_empty and not root.value:
        return _one_fault(file, "the file sets nothing; the least is \"listeners: [{address: ':1883'}]\"")
    return reading.run(root)


def _read_file(path: str, size: int) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(size)


def _is_read_by_all(path: str) -> bool:
    """Return whether the modes of the file and of all folders above let everybody read it."""
    place = Path(os.path.realpath(path))
    try:
        if not place.stat().st_mode & stat.S_IROTH:
            return False
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in place.parents)
    except OSError:
        return False


def _own_texts(data: bytes, file: str) -> set[str]:
    """The values that stand in a good file itself, not in variables."""
    root = compose(data.decode("utf-8-sig"), file)
    if root is None:
        return set()
    for _ in insert_variables(root, {}, _read_file):
        pass  # a variable without a default stays as it is written
    return {node.value for node in scalars(root)}


def _place(node: yaml.Node) -> Place:
    return node.start_mark.name, node.start_mark.line + 1


def _one_fault(file: str, text: str, line: int = 0) -> LoadResult:
    return LoadResult(None, [Fault(file, line, "", text)])


class _Reading:
    """One walk over one file, which collects faults and warnings beside the values."""

    def __init__(self, file: str, allow_missing: bool) -> None:
        self._file = file
        self._allow_missing = allow_missing
        self._faults: list[Fault] = []
        self._missing_faults: list[Fault] = []  # these keep no other rule from being checked
        self._warnings: list[Warning] = []
        self._places: dict[str, Place] = {}
        self._nulls: set[str] = set()
        self._nodes_seen = 0

    def insert(self, environment: Mapping[str, str], root: yaml.MappingNode) -> None:
        """Put into the tree what the environment says."""
        for node, text in insert_variables(root, environment, _read_file):
            self._fault(node, "", text)
        for variable, text in set_keys(root, environment):
            self._faults.append(Fault(variable, 0, "", text))

    def run(self, root: yaml.MappingNode) -> LoadResult:
        # A variable that is not set would only be a fault once more as a value.
        settings = None if self._faults else self._read_section(Settings, root, "")
        if not self._faults:
            assert isinstance(settings, Settings)
            if "auth" in settings.plugin_order and not self._is_set("listeners"):
                settings = replace(settings, listeners=DEFAULT_LISTENERS_WITH_AUTH)
            self._check_plugins(settings)
            for key, text in check_settings(settings):
                self._faults.append(Fault(*self._places.get(key, (self._file, 0)), key, text))
        self._faults[:0] = self._missing_faults
        if self._faults:
            self._faults.sort(key=lambda fault: fault.line)
            more = len(self._faults) - FAULTS_MAX
            if more > 0:
                self._faults[FAULTS_MAX:] = [Fault(self._file, 0, "", f"and {more} more")]
            return LoadResult(None, self._faults, self._warnings)
        assert isinstance(settings, Settings)
        return LoadResult(settings, [], self._warnings)

    def _is_set(self, path: str) -> bool:
        return path in self._places and path not in self._nulls

    def _check_plugins(self, settings: Settings) -> None:
        """Every name in `plugin_order` is an installed plugin, and keys of a plugin are set for one that runs."""
        installed = installed_plugins()
        for index, name in enumerate(settings.plugin_order):
            key = f"plugin_order[{index}]"
            if plugin_fault(name):
                self._faults.append(Fault(*self._places[key], key, plugin_fault(name)))
            elif name in installed:
                continue
            else:
                near = difflib.get_close_matches(name, list(installed), n=1)
                hint = f"the nearest is {near[0]}" if near else f"installed are {', '.join(installed) or 'none'}"
                self._missing(self._places[key], key, f'no plugin "{name}" is installed; {hint}')
        for name in installed:
            path = f"plugins.{name}"
            if path in self._places and name not in settings.plugin_order:
                self._keys_without_effect(settings, name)

    def _keys_without_effect(self, settings: Settings, name: str) -> None:
        """Warn of keys of a plugin that the file does not load. Keys that are to protect the node are a fault."""
        path = f"plugins.{name}"
        section = getattr(settings.plugins, name)
        protecting = section.protecting_keys() if isinstance(section, Protects) else []
        found = [key for key in protecting if self._is_set(f"{path}.{key}")]
        if not found:
            text = f"plugin_order does not name {name}, so these keys have no effect"
            self._warnings.append(Warning(*self._places[path], path, text))
        for key in found:
            right = ", ".join([name, *settings.plugin_order])
            text = (
                f"plugin_order does not name {name}, so this key would protect nothing and every client would be let in; "
                f"write plugin_order: [{right}], or leave the key out"
            )
            self._faults.append(Fault(*self._places[f"{path}.{key}"], f"{path}.{key}", text))

    def _missing(self, place: Place, path: str, text: str) -> None:
        """The file asks for a plugin that is not there."""
        if not self._allow_missing:
            text = f"{text}; --allow-missing starts without it"
            self._missing_faults.append(Fault(*place, path, text))
        else:
            self._warnings.append(Warning(*place, path, text))

    def _fault(self, node: yaml.Node, path: str, text: str) -> None:
        self._faults.append(Fault(*_place(node), path, text))

    def _warn(self, node: yaml.Node, path: str, text: str) -> None:
        self._warnings.append(Warning(*_place(node), path, text))

    def _read_section(self, settings_class: type[Any], node: yaml.MappingNode, path: str) -> object | None:
        """Return the settings object of a mapping, or None after a fault."""
        prefix = f"{path}." if path else ""
        keys = {name: key for key in keys_of(settings_class) for name in (key.name, *key.setting.aliases)}
        values: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        faults_before = len(self._faults)
        for key_node, value_node in self._pairs(node, path):
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, path, "a key must be a word")
                continue
            name = key_node.value
            key = keys.get(name)
            if key is None:
                self._unknown(key_node, f"{prefix}{name[:100]}", keys)
                continue
            if key.name in first_lines:
                self._fault(key_node, f"{prefix}{name}", f"this key is already set in line {first_lines[key.name]}")
                continue
            first_lines[key.name] = key_node.start_mark.line + 1
            self._places[f"{prefix}{key.name}"] = _place(key_node)
            if is_null(value_node):
                self._nulls.add(f"{prefix}{key.name}")
                continue  # a key without a value is a key that is not set
            faults_then = len(self._faults)
            value = self._read(key, value_node, f"{prefix}{key.name}")
            if len(self._faults) == faults_then and value is not None:
                values[key.field.name] = value
        for key in keys.values():
            if key.is_required and key.name not in values and len(self._faults) == faults_before:
                example = getattr(key.setting.kind, "example", "")
                self._fault(node, f"{prefix}{key.name}", f'this key is missing; for example {key.name}: "{example}"')
        if len(self._faults) > faults_before:
            return None
        made: object = settings_class(**values)
        return made

    def _pairs(self, node: yaml.MappingNode, path: str) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the pairs of a mapping, and those of `<<` that the mapping does not set itself."""
        own: list[tuple[yaml.Node, yaml.Node]] = []
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        names = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
        for key_node, value_node in node.value:
            self._nodes_seen += 1
            if not (isinstance(key_node, yaml.ScalarNode) and key_node.tag == MERGE_TAG):
                own.append((key_node, value_node))
                continue
            sources = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            for source in sources[:ITEMS_MAX]:
                if not isinstance(source, yaml.MappingNode):
                    self._fault(value_node, path, '"<<" takes a mapping, or a list of mappings')
                    continue
                for inner_key, inner_value in source.value:
                    if isinstance(inner_key, yaml.ScalarNode) and inner_key.value not in names:
                        names.add(inner_key.value)
                        merged.append((inner_key, inner_value))
        return own + merged

    def _read(self, key: Key, node: yaml.Node, path: str) -> Any:
        """Return the value of a key, or None: after a fault, or for a text that means the default."""
        kind = key.setting.kind
        if isinstance(kind, Section):
            assert key.section is not None
            if not isinstance(node, yaml.MappingNode):
                names = ", ".join(inner.name for inner in keys_of(key.section))
                self._fault(node, path, f"{written(node)} is not a mapping; its keys are {names}")
                return None
            return self._read_section(key.section, node, path)
        if isinstance(kind, Entries):
            return self._read_entries(kind, node, path)
        if isinstance(kind, Sections | Sequence):
            if not isinstance(node, yaml.SequenceNode):
                shown = "this value" if key.setting.secret else written(node)
                self._fault(node, path, f'{shown} is not a list; its items stand in lines that begin with "- "')
                return None
            if len(node.value) > ITEMS_MAX:
                self._fault(node, path, f"the list has {len(node.value)} items, at most {ITEMS_MAX} are possible")
                return None
            return tuple(self._read_item(key, item, f"{path}[{i}]") for i, item in enumerate(node.value))
        return self._read_scalar(key, kind, node, path)

    def _read_scalar(self, key: Key, kind: Kind, node: yaml.Node, path: str) -> Any:
        try:
            return read_value(key.setting, kind, node)
        except ValueFault as fault:
            self._fault(node, path, str(fault))
            return None

    def _read_item(self, key: Key, node: yaml.Node, path: str) -> Any:
        self._places[path] = _place(node)
        kind = key.setting.kind
        if isinstance(kind, Sequence):
            return self._read_scalar(key, kind.of, node, path)
        assert key.section is not None
        if not isinstance(node, yaml.MappingNode):
            first = keys_of(key.section)[0]
            example = getattr(first.setting.kind, "example", "")
            self._fault(node, path, f'{written(node)} is not a mapping; for example {first.name}: "{example}"')
            return None
        self._nodes_seen += 1
        if self._nodes_seen > NODES_MAX:
            self._fault(node, path, f"the file has more than {NODES_MAX} values when its aliases are followed")
            return None
        return self._read_section(key.section, node, path)

    def _read_entries(self, kind: Entries, node: yaml.Node, path: str) -> tuple[tuple[str, Any], ...] | None:
        if not isinstance(node, yaml.MappingNode):
            self._fault(
                node, path, f"{written(node)} is not a mapping of names to {kind.what}; for example {kind.example}"
            )
            return None
        entries: dict[str, Any] = {}
        for key_node, value_node in self._pairs(node, path):
            name = str(key_node.value)
            entry_path = f"{path}.{name[:100]}"
            self._places[entry_path] = _place(key_node)
            if name in entries:
                self._fault(key_node, entry_path, "this name is already set")
                continue
            try:
                entries[name] = plain_data(value_node)
                for key, text in kind.check(name, entries[name]):
                    self._warn(key_node, f"{entry_path}.{key}" if key else entry_path, text)
            except EntryFault as fault:
                self._fault(key_node, f"{entry_path}.{fault.key}" if fault.key else entry_path, str(fault))
        return tuple(entries.items())

    def _unknown(self, key_node: yaml.ScalarNode, path: str, keys: dict[str, Key]) -> None:
        if path in UNUSED_KEYS:
            self._warn(key_node, path, "this key has no effect, here as in the Go broker")
            return
        name = path.rpartition(".")[2]
        known = [known_path for known_path, _ in walk(Settings)]
        elsewhere = [known_path for known_path in known if known_path.rpartition(".")[2] == name]
        near = difflib.get_close_matches(name, list(keys), n=1)
        prefix = path[: len(path) - len(name)]
        is_plugin = path == f"plugins.{name}"
        if is_plugin and plugin_fault(name):
            text = plugin_fault(name)
        elif is_plugin and name in installed_plugins():
            text = f"the plugin {name} has no keys"
        elif near:
            text = f"unknown key; the nearest known one is {prefix}{near[0]}"
        elif elsewhere:
            text = f"unknown key here; it belongs at {' or '.join(elsewhere[:3])}"
        else:
            text = f"unknown key; known here are {', '.join(keys)}"
        self._fault(key_node, path, text)
