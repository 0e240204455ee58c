"""Headers of links between domains: the user property `gmqttd-link` of CONNECT, CONNACK, SUBSCRIBE and UNSUBSCRIBE, and the
fields of a PUBLISH that only links know.

The form is that of an origin (broker/origin.py), with other fields (docs/protocol-links.md).
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from broker.codec import properties as props
from broker.codec.packets import Properties
from broker.origin import (
    NAME,
    NAME_BYTES,
    NO_DOMAIN,
    NUMBER_MAX,
    PATH_MAX,
    VERSION,
    HeaderError,
    Origin,
    check_domain,
    decode_origin,
    fields_of,
    number_of,
    path_of,
    shown,
    version_of,
)
from broker.routing.subscriber import NODE_PREFIX

NAME_TEXT: Final = NAME.decode()
JOBS_TAG: Final = f"{NODE_PREFIX}jobs"
"""Beginning of the client identifiers of links for jobs between the nodes of a cluster; the name of the node follows."""
FENCED: Final = "fenced"
"""How the reason of a CONNACK begins when another node of the same domain holds the session with a higher epoch."""
HOPS_MAX: Final = 65_535
INTERESTS_MAX: Final = 32  # headers of one SUBSCRIBE: paths on which its filters are wanted
NO_QUEUE: Final = -1  # offer of an upstream that has no queue for the group
NO_LIMIT: Final = -1
QUEUE_BYTES_MAX: Final = 1_024  # of `$share/GROUP/FILTER`, so that a header stays small

_QUOTED_MAX: Final = 128


def headers_of(properties: Properties) -> list[bytes]:
    """The headers of a packet other than PUBLISH."""
    return [text.encode() for key, text in props.get_user_properties(properties) if key == NAME_TEXT]


def origin_node(node_name: str, number: int) -> bytes:
    """The name of a node in headers. `number` is a random one of the process, below 2**32: sequence numbers begin again with
    each process."""
    quoted = "".join(
        [chr(byte) if byte in NAME_BYTES and byte != 0x25 else f"%{byte:02X}" for byte in node_name.encode()]
    )
    return quoted[:_QUOTED_MAX].encode() + b"~%08x" % number


def _domain(fields: dict[bytes, bytes]) -> bytes:
    domain = fields.get(b"domain", NO_DOMAIN)
    if domain != NO_DOMAIN:
        check_domain(domain)
    return domain


VIA: Final = b"via"
"""Field of a message: the brokers of another kind that it has passed, as `LinkEnd.addresses` has them, joined by commas."""


def received(headers: list[bytes], sender: bytes, address: bytes = b"") -> Origin:
    """The origin of a message that came over a link with headers. `sender` is the domain at its other end: the last one of the
    path, or NO_DOMAIN for a broker of another kind, which is appended, with its `address`. Raises HeaderError."""
    if len(headers) > 1:
        raise HeaderError(f"a message has {len(headers)} headers, may have one")
    origin = decode_origin(headers[0])
    last = origin.path[-1] if origin.path else b""
    if last == sender:
        return origin
    if sender != NO_DOMAIN:
        raise HeaderError(f"path of a message ends with {shown(last)}, must end with the sender, {shown(sender)}")
    return came_from(origin.passed(NO_DOMAIN), address)


def came_from(origin: Origin, address: bytes) -> Origin:
    """With the address of a broker of another kind, b"" for none."""
    others = {} if origin.others is None else dict(origin.others)
    passed = others[VIA].split(b",") if VIA in others else []
    if not address or address in passed:
        return origin
    others[VIA] = b",".join([*passed, address][-PATH_MAX:])
    return origin.with_others(others)


# --- CONNECT and CONNACK ---


class LinkConnect(NamedTuple):
    """The header of CONNECT.

    domain           name of the domain; NO_DOMAIN for a broker without one
    max_hops         messages go there while they have passed fewer links
    relays           its interest may come from domains behind it, whatever its SUBSCRIBEs say: messages have sequence numbers
    version          of the format, the lower one of both ends
    message_ttl      seconds that a message may wait for the domain here, -1 for no limit
    epoch            of the node of the domain that runs the link; 0 for one that does not say
    takes_deletions  its subscriptions bring deletions of retained messages, too
    """

    domain: bytes
    max_hops: int
    relays: bool = False
    version: int = VERSION
    message_ttl: float = -1.0
    epoch: int = 0
    takes_deletions: bool = False


def encode_connect(
    domain: bytes,
    max_hops: int,
    relays: bool,
    message_ttl: float = -1.0,
    epoch: int = 0,
    takes_deletions: bool = True,
) -> bytes:
    """The header of CONNECT. `message_ttl` is in seconds, in the header in milliseconds; -1 for none. `epoch`: 0 for none."""
    text = b"%d domain=%s max-hops=%d relays=%d" % (VERSION, domain, max_hops, 1 if relays else 0)
    if takes_deletions:
        text += b" deletions=1"
    if epoch:
        text += b" epoch=%d" % epoch
    return text if message_ttl < 0 else text + b" message-ttl=%d" % round(message_ttl * 1000)


def parse_connect(value: bytes) -> LinkConnect:
    """Read the header of CONNECT. Raises HeaderError."""
    fields = fields_of(value)
    max_hops = number_of(fields, b"max-hops", 1, 1, HOPS_MAX)
    relays = number_of(fields, b"relays", 0, 0, 1) == 1
    message_ttl = number_of(fields, b"message-ttl", -1, 0, NUMBER_MAX)
    ttl = -1.0 if message_ttl < 0 else message_ttl / 1000
    epoch = number_of(fields, b"epoch", 0, 0, NUMBER_MAX)
    deletions = number_of(fields, b"deletions", 0, 0, 1) == 1
    version = min(version_of(value), VERSION)
    return LinkConnect(_domain(fields), max_hops, relays, version, ttl, epoch, deletions)


class LinkWelcome(NamedTuple):
    """The header of CONNACK.

    domain          as in LinkConnect
    version         of the format, the lower one of both ends
    refused         why the client is served as one that is no link; "" for a link
    queue_messages  bound of the link's queue at the upstream, -1 where it does not say
    queue_bytes     likewise
    has_queues      queue links may take jobs of its shared groups
    """

    domain: bytes
    version: int
    refused: str
    queue_messages: int
    queue_bytes: int
    has_queues: bool = False


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
    return text + b" lends=1" if welcome.has_queues else text


def parse_welcome(value: bytes) -> LinkWelcome:
    """Read the header of CONNACK. Raises HeaderError."""
    fields = fields_of(value)
    return LinkWelcome(
        _domain(fields),
        min(version_of(value), VERSION),
        fields.get(b"refused", b"").decode("ascii", "replace"),
        number_of(fields, b"queue-messages", -1, 0, NUMBER_MAX),
        number_of(fields, b"queue-bytes", -1, 0, NUMBER_MAX),
        number_of(fields, b"lends", 0, 0, 1) == 1,
    )


# --- interest ---


class Interest(NamedTuple):
    """One way on which a domain is interested in the messages of a filter.

    path  the domains that are, the one whose clients are first; the last one is the domain that subscribes
    hops  how many links the messages may pass on their way to the first one
    """

    path: tuple[bytes, ...]
    hops: int


def encode_interest(path: tuple[bytes, ...], hops: int) -> bytes:
    """The header of SUBSCRIBE. A SUBSCRIBE may have several, for all of its filters."""
    return b"%d hops=%d path=%s" % (VERSION, hops, b",".join(path))


def parse_interest(value: bytes) -> Interest:
    """Read a header of SUBSCRIBE. Raises HeaderError."""
    fields = fields_of(value)
    path = path_of(fields.get(b"path", b""))
    if not path:
        raise HeaderError(f"header {shown(value)} of a SUBSCRIBE has no path")
    return Interest(path, number_of(fields, b"hops", 1, 1, HOPS_MAX))


def canonical_interest(header: bytes) -> bytes:
    """A header that `parse_interest` has read, in the form in which equal ones are equal: the path is the last field."""
    fields = fields_of(header)
    path = fields.pop(b"path")
    others = b"".join([b" " + key + b"=" + text for key, text in fields.items()])
    return header.partition(b" ")[0] + others + b" path=" + path


ONLY_ASKED: Final = b"%d only-asked=1" % VERSION
"""The header of UNSUBSCRIBE of a link that goes on with the session of another process: besides its own filters the packet ends
all subscriptions of the session that were not asked for on this connection."""


def parse_only_asked(value: bytes) -> bool:
    """Return whether a header of UNSUBSCRIBE is such a one. Raises HeaderError."""
    return number_of(fields_of(value), b"only-asked", 0, 0, 1) == 1


# --- federated queues ---
#
# SUBSCRIBE   1 limit=N                                        jobs that the link takes since its connection began
# offer       1 queue=NAME offer=N sent=N path=DOMAIN          `none` where the upstream has no such queue
# job         1 queue=NAME visits=N node=NODE seq=N path=DOMAIN
#
# NAME is `$share/GROUP/FILTER`, percent-encoded. A job has a number of its own for each link that it goes over.


def quoted(full: bytes) -> bytes:
    """The name of a queue in headers."""
    return quote_from_bytes(full, safe="").encode()


def unquoted(name: bytes) -> bytes:
    """The inverse of `quoted`."""
    return unquote_to_bytes(name)


def encode_limit(limit: int) -> bytes:
    return b"%d limit=%d" % (VERSION, limit)


def parse_limit(value: bytes) -> int:
    """The limit in a header of SUBSCRIBE; NO_LIMIT for a header of another kind. Raises HeaderError."""
    return number_of(fields_of(value), b"limit", NO_LIMIT, 0, NUMBER_MAX)


def offer(name: bytes, count: int, sent: int) -> Origin:
    """The origin of an offer. `sent`: jobs since the connection began, which an offer may overtake: they wait for the
    store."""
    offered = b"none" if count == NO_QUEUE else b"%d" % count
    return Origin(others={b"queue": name, b"offer": offered, b"sent": b"%d" % sent})


def offer_of(origin: Origin) -> tuple[int, int]:
    """(jobs that an offer says, NO_QUEUE for none; jobs that the upstream has sent before it, 0 where it is of an older
    version). Raises HeaderError."""
    others = origin.others or {}
    count = NO_QUEUE if others.get(b"offer") == b"none" else number_of(others, b"offer", NO_QUEUE, 0, NUMBER_MAX)
    return count, number_of(others, b"sent", 0, 0, NUMBER_MAX)


def job(name: bytes, visits: int, node: bytes, sequence: int) -> Origin:
    """The origin of a job that leaves the domain."""
    return Origin((), node, sequence, 0, {b"queue": name, b"visits": b"%d" % visits})


def queue_of(origin: Origin | None) -> bytes:
    """The name of the queue that a job or an offer belongs to, b"" for any other message."""
    return b"" if origin is None or origin.others is None else origin.others.get(b"queue", b"")


def visits_of(origin: Origin | None) -> int:
    """Return how many links a job has passed; 0 for a message that is none. Raises HeaderError."""
    return 0 if origin is None or origin.others is None else number_of(origin.others, b"visits", 0, 0, NUMBER_MAX)
