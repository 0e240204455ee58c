"""The keys of a settings class, read from its fields: what the loader, the printer and the documentation walk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args, get_type_hints

from broker.config.setting import METADATA_KEY, Section, Sections, Setting


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section. The name of `field` ends in "_" where the key is a word of Python. `section` is the
    class of the nested mapping or mappings, if it has any."""

    name: str
    setting: Setting
    section: type[Any] | None
    field: dataclasses.Field[Any]

    def of(self, settings: object) -> Any:
        """Return the value of the key in a settings object."""
        return getattr(settings, self.field.name)

    @property
    def is_required(self) -> bool:
        return self.field.default is self.field.default_factory is dataclasses.MISSING

    def default(self) -> Any:
        """Return the value of a file that does not set the key. Not for a required key."""
        if self.field.default_factory is not dataclasses.MISSING:
            return self.field.default_factory()
        assert self.field.default is not dataclasses.MISSING
        return self.field.default


_known: Final[dict[type[Any], tuple[Key, ...]]] = {}  # bounded by the number of settings classes


def keys_of(settings_class: type[Any]) -> tuple[Key, ...]:
    """Return the keys of a settings class in the order of its fields. Raises TypeError for a field without a Setting."""
    if settings_class in _known:
        return _known[settings_class]
    hints = get_type_hints(settings_class)
    keys: list[Key] = []
    for field in dataclasses.fields(settings_class):
        setting = field.metadata.get(METADATA_KEY)
        if not isinstance(setting, Setting):
            raise TypeError(
                f"{settings_class.__name__}.{field.name} has no Setting: write {field.name}: TYPE = setting(DEFAULT, ...)"
            )
        section = None
        if isinstance(setting.kind, Section) and setting.kind.find is not None:
            section = setting.kind.find()
        elif isinstance(setting.kind, Section | Sections):
            classes = [hints[field.name], *get_args(hints[field.name])]
            section = next(item for item in classes if isinstance(item, type) and dataclasses.is_dataclass(item))
        keys.append(Key(field.name.rstrip("_"), setting, section, field))
    _known[settings_class] = tuple(keys)
    return _known[settings_class]


def walk(settings_class: type[Any], prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every key of a class and of its sections with its path; a list of mappings adds `[]` to the path."""
    for key in keys_of(settings_class):
        path = f"{prefix}{key.name}"
        yield path, key
        if key.section is not None:
            brackets = "[]" if isinstance(key.setting.kind, Sections) else ""
            yield from walk(key.section, f"{path}{brackets}.")
