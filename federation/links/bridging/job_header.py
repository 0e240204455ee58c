"""Headers of federated queues: the user property `gmqttd-link` of what a queue link asks for, of offers, and of jobs.

    SUBSCRIBE   1 limit=N                                        jobs that the link takes since its connection began
    offer       1 queue=NAME offer=N sent=N path=DOMAIN          `none` where the upstream has no such queue
    job         1 queue=NAME visits=N node=NODE seq=N path=DOMAIN

NAME is `$share/GROUP/FILTER`, percent-encoded. A job has a number of its own for each link that it goes over
(docs/protocol-links.md).
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from broker.origin import NUMBER_MAX, VERSION, Origin, fields_of, number_of

NO_QUEUE: Final = -1  # offer of an upstream that has no queue for the group
NO_LIMIT: Final = -1
QUEUE_BYTES_MAX: Final = 1_024  # of `$share/GROUP/FILTER`, so that a header stays small

_NONE: Final = b"none"


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
    offered = _NONE if count == NO_QUEUE else b"%d" % count
    return Origin(others={b"queue": name, b"offer": offered, b"sent": b"%d" % sent})


def offer_of(origin: Origin) -> int:
    """Return how many jobs an offer says; NO_QUEUE for none. Raises HeaderError."""
    others = origin.others
    return NO_QUEUE if others is None or others.get(b"offer") == _NONE else _number(origin, b"offer", NO_QUEUE)


def sent_of(origin: Origin) -> int:
    """Return how many jobs an upstream has sent before an offer; 0 where it is of an older version. Raises
    HeaderError."""
    return _number(origin, b"sent", 0)


def job(name: bytes, visits: int, node: bytes, sequence: int) -> Origin:
    """The origin of a job that leaves the domain."""
    return Origin((), node, sequence, 0, {b"queue": name, b"visits": b"%d" % visits})


def queue_of(origin: Origin | None) -> bytes:
    """The name of the queue that a job or an offer belongs to, b"" for any other message."""
    return b"" if origin is None or origin.others is None else origin.others.get(b"queue", b"")


def visits_of(origin: Origin | None) -> int:
    """Return how many links a job has passed; 0 for a message that is none. Raises HeaderError."""
    return 0 if origin is None else _number(origin, b"visits", 0)


def _number(origin: Origin, key: bytes, default: int) -> int:
    return default if origin.others is None else number_of(origin.others, key, default, 0, NUMBER_MAX)
