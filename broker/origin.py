"""The origin of a message that came from another domain, or whose copies may come there on two paths.

It travels as text: in the last user property `gmqttd-link` of a PUBLISH, in event streams between nodes, and in stores.

    VERSION, then " " KEY "=" TEXT for each field                 ASCII, docs/protocol-links.md

A later version keeps the fields of this one, and a reader keeps fields that it does not know: so old and new talk.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

VERSION: Final = 1
NAME: Final = b"gmqttd-link"
PROPERTY_HEAD: Final = b"\x26\x00\x0bgmqttd-link"  # User Property: id, length of the name, name
NO_DOMAIN: Final = b"-"  # in paths: a broker that has no domain name, or is not of this kind

DOMAIN_BYTES_MAX: Final = 64
NODE_BYTES_MAX: Final = 160
PATH_MAX: Final = 64  # domains of one path
VALUE_BYTES_MAX: Final = 8_192
NUMBER_MAX: Final = 2**63 - 1

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
NAME_BYTES: Final = _LETTERS + b"._@:~%+-"


class HeaderError(Exception):
    """A header that cannot be read, or that its sender may not send. `text` says what is wrong and what would be right."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Origin:
    """It never changes; messages of one sender may share it.

    path             the domains that the message has passed, the one that it was published in first; () there
    node             in which it was published, b"" where the domain gave it no sequence number
    sequence         number of the message among those of its node
    published_at_ms  milliseconds since 1970 by the clock of that node; 0 where it does not say
    others           fields that only a bridge knows, by key; None for none
    """

    __slots__ = ("_leaving", "_text", "node", "others", "path", "published_at_ms", "sequence", "version")

    def __init__(
        self,
        path: tuple[bytes, ...] = (),
        node: bytes = b"",
        sequence: int = 0,
        published_at_ms: int = 0,
        others: dict[bytes, bytes] | None = None,
        version: int = VERSION,
    ) -> None:
        self.path = path
        self.node = node
        self.sequence = sequence
        self.published_at_ms = published_at_ms
        self.others = others
        self.version = version
        self._text = b""
        self._leaving = b""

    def encode(self) -> bytes:
        """The origin as text, made once."""
        text = self._text
        if not text:
            text = b"%d" % self.version
            if self.published_at_ms:
                text += b" time=%d" % self.published_at_ms
            if self.others is not None:
                text += b"".join([b" " + key + b"=" + value for key, value in self.others.items()])
            if self.node:
                text += b" node=%s seq=%d" % (self.node, self.sequence)
            text = self._text = text + b" path=" + self.path_text()
        return text

    def path_text(self) -> bytes:
        """The domains of the path, joined by commas."""
        return b",".join(self.path)

    def may_come_again(self) -> bool:
        """Return whether the message has passed a domain and has a number: copies of it may come on other ways."""
        return self.node != b"" and len(self.path) > 0

    def numbered(self, node: bytes, sequence: int) -> Origin:
        """With a number among those of a node."""
        return Origin(self.path, node, sequence, self.published_at_ms, self.others, self.version)

    def timed(self, milliseconds: int) -> Origin:
        """With the time of the message's publication."""
        return Origin(self.path, self.node, self.sequence, milliseconds, self.others, self.version)

    def passed(self, domain: bytes) -> Origin:
        """Of the message when it leaves the domain."""
        return Origin((*self.path, domain), self.node, self.sequence, self.published_at_ms, self.others, self.version)

    def with_others(self, others: dict[bytes, bytes]) -> Origin:
        """With other fields that only a bridge knows."""
        return Origin(self.path, self.node, self.sequence, self.published_at_ms, others, self.version)

    def leaving(self, domain: bytes) -> bytes:
        """As a User Property of the message when it leaves this domain, made once."""
        if not self._leaving:
            self._leaving = property_of(self.passed(domain).encode())
        return self._leaving


def decode_origin(value: bytes) -> Origin:
    """Read the origin of a message. Raises HeaderError."""
    fields = fields_of(value)
    path = fields.pop(b"path", None)
    if path is None:
        raise HeaderError(f"header {shown(value)} of a message has no path")
    has_number = b"seq" in fields
    sequence = number_of(fields, b"seq", 0, 0, NUMBER_MAX)
    milliseconds = number_of(fields, b"time", 0, 1, NUMBER_MAX)
    node = fields.pop(b"node", b"")
    if len(node) > NODE_BYTES_MAX or node.strip(NAME_BYTES):
        raise HeaderError(f"node {shown(node)} of a header is no name of a node")
    if has_number != (node != b""):
        raise HeaderError(f"header {shown(value)} has only one of node and seq")
    fields.pop(b"seq", None)
    fields.pop(b"time", None)
    return Origin(path_of(path), node, sequence, milliseconds, fields or None, version_of(value))


# --- fields of any header ---


def check_domain(name: bytes) -> None:
    """Raise HeaderError for a name that no domain may have."""
    if not name or len(name) > DOMAIN_BYTES_MAX or name[0] not in _LETTERS or name.strip(NAME_BYTES):
        raise HeaderError(
            f"domain name {shown(name)}: 1 to {DOMAIN_BYTES_MAX} letters, digits and . _ @ : ~ % + -, "
            "the first of them a letter or a digit"
        )


def shown(value: bytes) -> str:
    return ascii(value[:80].decode("utf-8", "replace"))


def fields_of(value: bytes) -> dict[bytes, bytes]:
    """The fields of a header by key. Raises HeaderError."""
    if len(value) > VALUE_BYTES_MAX:
        raise HeaderError(f"header of {len(value)} bytes, at most {VALUE_BYTES_MAX}")
    parts = value.split(b" ")
    version = parts[0]
    if not version.isdigit() or len(version) > 4 or int(version) < VERSION:
        raise HeaderError(f"header {shown(value)} does not begin with its version, {VERSION} or above")
    found: dict[bytes, bytes] = {}
    for part in parts[1:]:
        key, equals, text = part.partition(b"=")
        if not key or not equals:
            raise HeaderError(f"field {shown(part)} of a header is not KEY=TEXT")
        if key in found:
            raise HeaderError(f"field {shown(key)} is twice in one header")
        found[key] = text
    return found


def version_of(value: bytes) -> int:
    return int(value.partition(b" ")[0])


def number_of(fields: dict[bytes, bytes], key: bytes, default: int, least: int, most: int) -> int:
    """The number of a field. Raises HeaderError."""
    text = fields.get(key)
    if text is None:
        return default
    if not text.isdigit() or len(text) > 20 or not least <= int(text) <= most:
        raise HeaderError(f"field {key.decode()} is {shown(text)}, may be {least} to {most}")
    return int(text)


def path_of(text: bytes) -> tuple[bytes, ...]:
    """The domains of a path, checked. Raises HeaderError."""
    if not text:
        return ()
    path = text.split(b",")
    if len(path) > PATH_MAX:
        raise HeaderError(f"path of {len(path)} domains, at most {PATH_MAX}")
    for domain in path:
        if domain != NO_DOMAIN:
            check_domain(domain)
            if path.count(domain) > 1:
                raise HeaderError(f"domain {shown(domain)} is twice in one path")
    return tuple(path)


# --- properties of a packet ---


def property_of(value: bytes) -> bytes:
    """A header as an encoded User Property."""
    return PROPERTY_HEAD + len(value).to_bytes(2, "big") + value


def split_properties(properties: bytes) -> tuple[bytes, list[bytes]]:
    """(other properties, headers) of a forwardable block (Message.properties) that was decoded before."""
    kept: list[bytes] = []
    found: list[bytes] = []
    kept_from = 0
    pos = 0
    end = len(properties)
    while pos < end:
        start = pos
        number = properties[pos]
        pos += 1
        if number == 0x01:  # Payload Format Indicator; all others are strings and binary data
            pos += 1
            continue
        pos += 2 + (properties[pos] << 8) + properties[pos + 1]
        if number == 0x26:
            value_at = pos + 2
            pos = value_at + (properties[pos] << 8) + properties[pos + 1]
            if properties.startswith(PROPERTY_HEAD, start):
                found.append(properties[value_at:pos])
                kept.append(properties[kept_from:start])
                kept_from = pos
    if not found:
        return properties, found
    kept.append(properties[kept_from:])
    return b"".join(kept), found


def carried_properties(properties: bytes, origin: Origin | None) -> bytes:
    """The properties of a message for another node: its origin is the last one."""
    return properties if origin is None else properties + property_of(origin.encode())


def carried_origin(headers: list[bytes]) -> Origin | None:
    """The origin of a message of another node, None where it cannot be read: a node of an older version does not look at what
    its clients say."""
    if not headers:
        return None
    try:
        return decode_origin(headers[0])
    except HeaderError:
        return None
