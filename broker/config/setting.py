"""One configuration key: its default, its meaning, the values that it takes, and whether its feature is there yet.

A key is a field of a frozen dataclass: `name: type = setting(default, ...)`. The loader, the printed configuration and
docs/configuration.md are all made from these fields, for the keys of plugins too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

T = TypeVar("T")
METADATA_KEY: Final = "setting"  # of a field of a settings class


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number of minimum..maximum."""

    minimum: int
    maximum: int
    example: int


@dataclass(frozen=True, slots=True)
class WholeOrAuto:
    """A whole number of minimum..maximum, or `auto`; kept as text."""

    minimum: int
    maximum: int
    example: int


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, with or without a unit (`64KiB`)."""

    minimum: int
    maximum: int
    example: str


@dataclass(frozen=True, slots=True)
class SizeOrShare:
    """A Size, or a share of the machine's memory (`60%`); kept as text. 0 is allowed, for none."""

    minimum: int
    example: str


@dataclass(frozen=True, slots=True)
class Duration:
    """Go style text, seconds as float in the settings."""

    minimum: float
    example: str


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, at most `length_max` bytes of UTF-8, without control characters. `is_name`: only blanks are no value.
    `is_url`: what follows a `?` may be a secret, and is printed as `***`."""

    example: str
    length_max: int = 4096
    is_name: bool = False
    is_url: bool = False


@dataclass(frozen=True, slots=True)
class AddressText:
    """An address as `addresses.parse_address` reads it. `listens`: the node opens it, so no other key may have the same."""

    example: str
    default_port: int | None = None
    unix_allowed: bool = False
    to_connect: bool = False  # then an empty host means this machine, and port 0 is no port
    listens: bool = False
    srv_allowed: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """A YAML list of such values, kept as a tuple."""

    of: Choice | Text | AddressText


@dataclass(frozen=True, slots=True)
class Section:
    """A nested mapping: the field's type is another dataclass of settings, or what `find` gives where that depends on the
    installed plugins."""

    find: Callable[[], type[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Sections:
    """A YAML list of mappings: the field's type is a tuple of another dataclass of settings."""


class EntryFault(ValueError):
    """The body of an entry cannot be meant. `key` is the path of its key in the body, "" for the whole body."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True)
class Entries:
    """A YAML mapping of names to bodies with rules of their own, kept as (name, body) pairs of plain data.

    check    raises EntryFault for a name and a body that cannot be meant; returns warnings as (key, text)
    secrets  keys of a body that are printed as `***`
    """

    check: Callable[[str, Any], list[tuple[str, str]]]
    what: str
    example: str
    secrets: tuple[str, ...] = ()


Kind = (
    Whole
    | WholeOrAuto
    | Size
    | SizeOrShare
    | Duration
    | Flag
    | Choice
    | Text
    | AddressText
    | Sequence
    | Section
    | Sections
    | Entries
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. `doc` is its meaning with unit; `price` is what raising or lowering it costs. An extension is a key that the
    Go broker does not know. `aliases` are other spellings of the key.
    """

    doc: str
    kind: Kind
    price: str = ""
    default_text: str = ""
    aliases: tuple[str, ...] = ()
    secret: bool = False
    is_extension: bool = False


def described(setting: Setting) -> dict[str, Any]:
    """Return the metadata of a field whose default is made for each object, or which has none: its key is required."""
    return {METADATA_KEY: setting}


def setting(
    default: T,
    doc: str,
    kind: Kind,
    price: str = "",
    default_text: str = "",
    aliases: tuple[str, ...] = (),
    secret: bool = False,
) -> T:
    """Make the field of a key that the Go broker has, too."""
    made: T = field(default=default, metadata=described(Setting(doc, kind, price, default_text, aliases, secret)))
    return made


def extension(
    default: T,
    doc: str,
    kind: Kind,
    price: str = "",
    default_text: str = "",
    aliases: tuple[str, ...] = (),
    secret: bool = False,
) -> T:
    """Make the field of a key that only this broker has."""
    about = Setting(doc, kind, price, default_text, aliases=aliases, secret=secret, is_extension=True)
    made: T = field(default=default, metadata=described(about))
    return made
