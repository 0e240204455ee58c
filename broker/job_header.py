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

from broker.link_header import VERSION, LinkHeaderError

NO_QUEUE: Final = -1  # offer of an upstream that has no queue for the group
NO_LIMIT: Final = -1
QUEUE_BYTES_MAX: Final = 1_024  # of `$share/GROUP/FILTER`, so that a header stays small
LIMIT_MAX: Final = 2**63 - 1

_NONE: Final = b"none"
_LIMIT: Final = b" limit="
_OFFER: Final = b" offer="
_QUEUE: Final = b" queue="
_SENT: Final = b" sent="
_VISITS: Final = b" visits="


def quoted(full: bytes) -> bytes:
    """The name of a queue in headers."""
    return quote_from_bytes(full, safe="").encode()


def unquoted(name: bytes) -> bytes:
    """The inverse of `quoted`."""
    return unquote_to_bytes(name)


def encode_limit(limit: int) -> bytes:
    return b"%d" % VERSION + _LIMIT + b"%d" % limit


def parse_limit(value: bytes) -> int:
    """The limit in a header of SUBSCRIBE; NO_LIMIT for a header of another kind. Raises LinkHeaderError."""
    return _number(value, _LIMIT, NO_LIMIT)


def encode_offer(name: bytes, count: int, sent: int) -> bytes:
    """The header of an offer, as Message.link. `sent`: jobs since the connection began, which an offer may overtake: they wait
    for the store."""
    offered = _NONE if count == NO_QUEUE else b"%d" % count
    return b"%d" % VERSION + _QUEUE + name + _OFFER + offered + _SENT + b"%d path=" % sent


def offer_of(link: bytes) -> int:
    """How many jobs a header offers; NO_QUEUE for none. Raises LinkHeaderError."""
    return NO_QUEUE if _text(link, _OFFER) == _NONE else _number(link, _OFFER, NO_QUEUE)


def sent_of(link: bytes) -> int:
    """How many jobs an upstream has sent before an offer; 0 where it is of an older version. Raises LinkHeaderError."""
    return _number(link, _SENT, 0)


def encode_job(name: bytes, visits: int, node: bytes, sequence: int) -> bytes:
    """The header of a job that leaves the domain, as Message.link."""
    return b"%d" % VERSION + _QUEUE + name + _VISITS + b"%d node=%s seq=%d path=" % (visits, node, sequence)


def queue_of(link: bytes) -> bytes:
    """The name of the queue that a job or an offer belongs to, b"" for any other message."""
    return _text(link, _QUEUE)


def visits_of(link: bytes) -> int:
    """How many links a job has passed; 0 for a message that is none. Raises LinkHeaderError."""
    return _number(link, _VISITS, 0)


def _text(link: bytes, key: bytes) -> bytes:
    start = link.find(key)
    if start < 0:
        return b""
    start += len(key)
    end = link.find(b" ", start)
    return link[start:] if end < 0 else link[start:end]


def _number(link: bytes, key: bytes, default: int) -> int:
    text = _text(link, key)
    if not text:
        return default
    if not text.isdigit() or len(text) > 19 or int(text) > LIMIT_MAX:
        raise LinkHeaderError(f"field {key[1:-1].decode()} is {text[:80].decode('ascii', 'replace')!a}, no number")
    return int(text)
