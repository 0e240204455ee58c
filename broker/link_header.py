"""The header of links between domains: the user property `gmqttd-link` of CONNECT, CONNACK, SUBSCRIBE and PUBLISH.

    value:  VERSION, then " " KEY "=" TEXT for each field                 ASCII, docs/protocol-links.md

A later version keeps the fields of this one, and a reader steps over fields that it does not know: so old and new talk. A
message has its header as `Message.link`: the value in the canonical form, in which the path is the last field. A message of
a client of this domain has none (b""), or one with a sequence number and an empty path.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.link_gate import LinkGate

VERSION: Final = 1
NAME: Final = b"gmqttd-link"
PROPERTY_HEAD: Final = b"\x26\x00\x0bgmqttd-link"  # User Property: id, length of the name, name
FENCED: Final = "fenced"
"""How the reason of a CONNACK begins when another node of the same domain holds the session with a higher epoch."""
NO_DOMAIN: Final = b"-"  # in paths: a broker that has no domain name, or is not of this kind

DOMAIN_BYTES_MAX: Final = 64
NODE_BYTES_MAX: Final = 160
PATH_MAX: Final = 64  # domains of one path
VALUE_BYTES_MAX: Final = 8_192
HOPS_MAX: Final = 65_535
SEQUENCE_MAX: Final = 2**63 - 1
WANTS_MAX: Final = 32  # headers of one SUBSCRIBE: paths on which its filters are wanted

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NAME_BYTES: Final = _LETTERS + b"._@:~%+-"
_PATH: Final = b" path="
_TIME: Final = b" time="
_QUOTED_MAX: Final = 128


class LinkHeaderError(Exception):
    """A header that cannot be read, or that its sender may not send. `text` says what is wrong and what would be right."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


# --- names ---


def check_domain(name: bytes) -> None:
    """Raise LinkHeaderError for a name that no domain may have."""
    if not name or len(name) > DOMAIN_BYTES_MAX or name[0] not in _LETTERS or name.strip(_NAME_BYTES):
        raise LinkHeaderError(
            f"domain name {_shown(name)}: 1 to {DOMAIN_BYTES_MAX} letters, digits and . _ @ : ~ % + -, "
            "the first of them a letter or a digit"
        )


def origin_node(node_name: str, number: int) -> bytes:
    """The name of a node in headers. `number` is a random one of the process, below 2**32: sequence numbers begin again with
    each process."""
    quoted = "".join(
        [chr(byte) if byte in _NAME_BYTES and byte != 0x25 else f"%{byte:02X}" for byte in node_name.encode()]
    )
    return quoted[:_QUOTED_MAX].encode() + b"~%08x" % number


def _shown(value: bytes) -> str:
    return ascii(value[:80].decode("utf-8", "replace"))


# --- fields of any header ---


def _fields(value: bytes) -> dict[bytes, bytes]:
    """The fields of a header by key. Raises LinkHeaderError."""
    if len(value) > VALUE_BYTES_MAX:
        raise LinkHeaderError(f"header of {len(value)} bytes, at most {VALUE_BYTES_MAX}")
    parts = value.split(b" ")
    version = parts[0]
    if not version.isdigit() or len(version) > 4 or int(version) < VERSION:
        raise LinkHeaderError(f"header {_shown(value)} does not begin with its version, {VERSION} or above")
    found: dict[bytes, bytes] = {}
    for part in parts[1:]:
        key, equals, text = part.partition(b"=")
        if not key or not equals:
            raise LinkHeaderError(f"field {_shown(part)} of a header is not KEY=TEXT")
        if key in found:
            raise LinkHeaderError(f"field {_shown(key)} is twice in one header")
        found[key] = text
    return found


def _version(value: bytes) -> int:
    return int(value.partition(b" ")[0])


def _number(fields: dict[bytes, bytes], key: bytes, default: int, least: int, most: int) -> int:
    text = fields.get(key)
    if text is None:
        return default
    if not text.isdigit() or len(text) > 20 or not least <= int(text) <= most:
        raise LinkHeaderError(f"field {key.decode()} is {_shown(text)}, may be {least} to {most}")
    return int(text)


def _domain(fields: dict[bytes, bytes]) -> bytes:
    domain = fields.get(b"domain", NO_DOMAIN)
    if domain != NO_DOMAIN:
        check_domain(domain)
    return domain


def _path(text: bytes) -> tuple[bytes, ...]:
    """The domains of a path, checked. Raises LinkHeaderError."""
    if not text:
        return ()
    path = text.split(b",")
    if len(path) > PATH_MAX:
        raise LinkHeaderError(f"path of {len(path)} domains, at most {PATH_MAX}")
    for domain in path:
        if domain != NO_DOMAIN:
            check_domain(domain)
            if path.count(domain) > 1:
                raise LinkHeaderError(f"domain {_shown(domain)} is twice in one path")
    return tuple(path)


# --- messages ---


class LinkHeader:
    """The header of a message.

    path      the domains that the message has passed, the one that it was published in first; () there
    node      in which it was published (`origin_node`), b"" where the domain gave it no sequence number
    sequence  number of the message among those of its node
    """

    __slots__ = ("node", "path", "sequence")

    def __init__(self, path: tuple[bytes, ...], node: bytes = b"", sequence: int = 0) -> None:
        self.path = path
        self.node = node
        self.sequence = sequence


def parse_header(value: bytes) -> LinkHeader:
    """Read the header of a message. Raises LinkHeaderError."""
    fields = _fields(value)
    path = fields.get(b"path")
    if path is None:
        raise LinkHeaderError(f"header {_shown(value)} of a message has no path")
    node = fields.get(b"node", b"")
    if len(node) > NODE_BYTES_MAX or node.strip(_NAME_BYTES):
        raise LinkHeaderError(f"node {_shown(node)} of a header is no name of a node")
    _number(fields, b"time", 0, 1, SEQUENCE_MAX)
    if (b"seq" in fields) != (node != b""):
        raise LinkHeaderError(f"header {_shown(value)} has only one of node and seq")
    return LinkHeader(_path(path), node, _number(fields, b"seq", 0, 0, SEQUENCE_MAX))


def canonical(value: bytes) -> bytes:
    """A header that `parse_header` has read, in the form of `Message.link`: the path is the last field; unknown fields stay."""
    head, found, path = value.rpartition(_PATH)
    if found and b" " not in path:
        return value
    fields = _fields(value)
    path = fields.pop(b"path")
    head = value.partition(b" ")[0]
    return head + b"".join([b" " + key + b"=" + text for key, text in fields.items()]) + _PATH + path


def encode_header(path: tuple[bytes, ...], node: bytes = b"", sequence: int = 0) -> bytes:
    """The header of a message, in the form of `Message.link`."""
    origin = b" node=" + node + b" seq=%d" % sequence if node else b""
    return b"%d" % VERSION + origin + _PATH + b",".join(path)


def path_text(link: bytes) -> bytes:
    """The path of `Message.link`, its domains joined by commas."""
    return link[link.rindex(_PATH) + 6 :] if link else b""


def hops(link: bytes) -> int:
    """How many links the message of this `Message.link` has passed."""
    path = path_text(link)
    return path.count(b",") + 1 if path else 0


def is_sequenced(link: bytes) -> bool:
    """Whether the header has the number that makes copies on two paths known as copies."""
    return b" node=" in link


def may_come_again(link: bytes) -> bool:
    """Whether the message came over a link and has a number: copies of it may come on other ways, also to other nodes."""
    return is_sequenced(link) and not link.endswith(b"=")


def numbered(link: bytes, node: bytes, sequence: int) -> bytes:
    """The header of a message that is given a number."""
    return _with_field(link, b" node=%s seq=%d" % (node, sequence))


def time_of(link: bytes) -> int:
    """When the message was published, in milliseconds since 1970 by the clock of the node where it was; 0 where nobody says."""
    at = link.find(_TIME)
    return 0 if at < 0 else int(link[at + len(_TIME) :].partition(b" ")[0])


def timed(link: bytes, milliseconds: int) -> bytes:
    """The header with the time of the message's publication."""
    field = b"%s%d" % (_TIME, milliseconds)
    at = link.find(_TIME)
    return _with_field(link, field) if at < 0 else link[:at] + field + link[link.index(b" ", at + 1) :]


def _with_field(link: bytes, field: bytes) -> bytes:
    if not link:
        return b"%d" % VERSION + field + _PATH
    end = link.index(b" ")
    return link[:end] + field + link[end:]


def extended(link: bytes, domain: bytes) -> bytes:
    """The header of a message that leaves the domain."""
    if not link:
        return b"%d" % VERSION + _PATH + domain
    return link + domain if link.endswith(b"=") else link + b"," + domain


# --- what a packet's properties have ---


def property_of(value: bytes) -> bytes:
    """The header as an encoded User Property."""
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


def received(headers: list[bytes], sender: bytes) -> tuple[bytes, LinkHeader]:
    """(Message.link, the same) of a message that came over a link with headers. `sender` is the domain at its other end: the
    last one of the path, or NO_DOMAIN for a broker of another kind, which is appended. Raises LinkHeaderError."""
    if len(headers) > 1:
        raise LinkHeaderError(f"a message has {len(headers)} headers, may have one")
    header = parse_header(headers[0])
    last = header.path[-1] if header.path else b""
    if last == sender:
        return canonical(headers[0]), header
    if sender != NO_DOMAIN:
        raise LinkHeaderError(f"path of a message ends with {_shown(last)}, must end with the sender, {_shown(sender)}")
    header = LinkHeader((*header.path, NO_DOMAIN), header.node, header.sequence)
    return extended(canonical(headers[0]), NO_DOMAIN), header


def forwarded(headers: list[bytes]) -> bytes:
    """Message.link of a message of another node of this domain, b"" where its header cannot be read: a node of an older
    version does not look at what its clients say."""
    if not headers:
        return b""
    try:
        parse_header(headers[0])
    except LinkHeaderError:
        return b""
    return canonical(headers[0])


# --- the two ends of a link ---


class LinkFacts:
    """What a connection knows about the domain at its other end.

    domain       its name; NO_DOMAIN for a broker without one, or of another kind
    max_hops     messages go there while they have passed fewer links
    relays       its interest may come from domains behind it, whatever its SUBSCRIBEs say: messages have sequence numbers
    version      of the format, the lower one of both ends
    message_ttl  seconds that a message may wait for the domain here, -1 for no limit
    epoch        of the node of the domain that runs the link; 0 for one that does not say
    is_explicit  messages without a header get one on the way there: the other end does not know where they come from
    header       of its messages that have none
    gate         of a link of this node, None for link sessions of other domains
    asked        filters that a link session has subscribed to on this connection
    jobs         of a queue link of this node: the queues here by their names in headers of the upstream (broker/job_header.py);
                 None for all other links
    is_node      the other end is another node of this domain: jobs that it may have may move there
    is_released  the session may be taken up by another user (broker/session/link_session.py)
    """

    __slots__ = (
        "asked",
        "domain",
        "epoch",
        "gate",
        "header",
        "is_explicit",
        "is_node",
        "is_released",
        "jobs",
        "max_hops",
        "message_ttl",
        "relays",
        "version",
    )

    def __init__(
        self,
        domain: bytes,
        max_hops: int,
        relays: bool = False,
        version: int = VERSION,
        message_ttl: float = -1.0,
        epoch: int = 0,
    ) -> None:
        self.domain = domain
        self.max_hops = max_hops
        self.relays = relays
        self.version = version
        self.message_ttl = message_ttl
        self.is_explicit = False
        self.epoch = epoch
        self.header = encode_header((domain,))
        self.gate: LinkGate | None = None
        self.asked: set[bytes] = set()
        self.jobs: dict[bytes, bytes] | None = None
        self.is_node = False
        self.is_released = False

    def takes(self, topic: bytes) -> bool:
        """Whether the domain may publish to a topic here, in a message that is no job."""
        return self.jobs is None and not self.is_node and (self.gate is None or self.gate.takes(topic))

    def refuses(self, link: bytes) -> bool:
        """Whether a message with this header does not go to the domain."""
        return self.refuses_path(link) or self.refuses_hops(link)

    def refuses_path(self, link: bytes) -> bool:
        """Whether a message with this header was in the domain already."""
        if not link or self.domain == NO_DOMAIN:
            return False
        return b"," + self.domain + b"," in b"," + path_text(link) + b","

    def refuses_hops(self, link: bytes) -> bool:
        """Whether a message with this header has passed as many links as the domain allows."""
        return hops(link) >= self.max_hops


def encode_connect(domain: bytes, max_hops: int, relays: bool, message_ttl: float = -1.0, epoch: int = 0) -> bytes:
    """The header of CONNECT. `message_ttl` is in seconds, in the header in milliseconds; -1 for none. `epoch`: 0 for none."""
    text = b"%d domain=%s max-hops=%d relays=%d" % (VERSION, domain, max_hops, 1 if relays else 0)
    if epoch:
        text += b" epoch=%d" % epoch
    return text if message_ttl < 0 else text + b" message-ttl=%d" % round(message_ttl * 1000)


def parse_connect(value: bytes) -> LinkFacts:
    """Read the header of CONNECT. Raises LinkHeaderError."""
    fields = _fields(value)
    max_hops = _number(fields, b"max-hops", 1, 1, HOPS_MAX)
    relays = _number(fields, b"relays", 0, 0, 1) == 1
    message_ttl = _number(fields, b"message-ttl", -1, 0, SEQUENCE_MAX)
    ttl = -1.0 if message_ttl < 0 else message_ttl / 1000
    epoch = _number(fields, b"epoch", 0, 0, SEQUENCE_MAX)
    return LinkFacts(_domain(fields), max_hops, relays, min(_version(value), VERSION), ttl, epoch=epoch)


class LinkWelcome:
    """The header of CONNACK.

    domain          as in LinkFacts
    version         as in LinkFacts
    refused         why the client is served as one that is no link; "" for a link
    queue_messages  bound of the link's queue at the upstream, -1 where it does not say
    queue_bytes     likewise
    lends           queue links may borrow jobs of its shared groups
    """

    __slots__ = ("domain", "lends", "queue_bytes", "queue_messages", "refused", "version")

    def __init__(
        self,
        domain: bytes,
        version: int,
        refused: str,
        queue_messages: int,
        queue_bytes: int,
        lends: bool = False,
    ) -> None:
        self.domain = domain
        self.version = version
        self.refused = refused
        self.queue_messages = queue_messages
        self.queue_bytes = queue_bytes
        self.lends = lends


def encode_welcome(welcome: LinkWelcome) -> bytes:
    """The header of CONNACK. A reason is one word."""
    if welcome.refused:
        return b"%d refused=%s" % (welcome.version, welcome.refused.encode())
    text = b"%d domain=%s queue-messages=%d queue-bytes=%d" % (
        welcome.version,
        welcome.domain,
        welcome.queue_messages,
        welcome.queue_bytes,
    )
    return text + b" lends=1" if welcome.lends else text


def parse_welcome(value: bytes) -> LinkWelcome:
    """Read the header of CONNACK. Raises LinkHeaderError."""
    fields = _fields(value)
    return LinkWelcome(
        _domain(fields),
        min(_version(value), VERSION),
        fields.get(b"refused", b"").decode("ascii", "replace"),
        _number(fields, b"queue-messages", -1, 0, SEQUENCE_MAX),
        _number(fields, b"queue-bytes", -1, 0, SEQUENCE_MAX),
        _number(fields, b"lends", 0, 0, 1) == 1,
    )


# --- interest ---


class LinkWant:
    """One way on which a domain wants the messages of a filter.

    path  the domains that want them, the one whose clients do first; the last one is the domain that subscribes
    hops  how many links the messages may pass on their way to the first one
    """

    __slots__ = ("hops", "path")

    def __init__(self, path: tuple[bytes, ...], hops: int) -> None:
        self.path = path
        self.hops = hops


def encode_want(path: tuple[bytes, ...], hops: int) -> bytes:
    """The header of SUBSCRIBE. A SUBSCRIBE may have several, for all of its filters."""
    return b"%d hops=%d path=%s" % (VERSION, hops, b",".join(path))


def parse_want(value: bytes) -> LinkWant:
    """Read a header of SUBSCRIBE. Raises LinkHeaderError."""
    fields = _fields(value)
    path = _path(fields.get(b"path", b""))
    if not path:
        raise LinkHeaderError(f"header {_shown(value)} of a SUBSCRIBE has no path")
    return LinkWant(path, _number(fields, b"hops", 1, 1, HOPS_MAX))


ONLY_ASKED: Final = b"%d only-asked=1" % VERSION
"""The header of UNSUBSCRIBE of a link that goes on with the session of another process: besides its own filters the packet ends
all subscriptions of the session that were not asked for on this connection."""


def parse_only_asked(value: bytes) -> bool:
    """Whether a header of UNSUBSCRIBE is such a one. Raises LinkHeaderError."""
    return _number(_fields(value), b"only-asked", 0, 0, 1) == 1
