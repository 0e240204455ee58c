"""Whether a link passes a message of its upstream on into this domain, by the headers of the message."""

from __future__ import annotations

from enum import Enum

from broker.link_header import LinkHeaderError, encode_header, received
from federation.links.duplicates import DuplicateWindow


class Refusal(Enum):
    """Why a message is not passed on. Each is a reason of the link's `dropped` counters."""

    HEADER = "link_header"  # it cannot be read, or its path does not end with the upstream
    PATH = "link_path"  # the message was in this domain already
    HOPS = "link_hops"
    DUPLICATE = "link_duplicate"


def accepts(
    headers: list[bytes], upstream: bytes, own_domain: bytes, max_hops: int, window: DuplicateWindow | None
) -> tuple[bytes, Refusal | None]:
    """(Message.link of the message as published here, why it is not passed on).

    headers   the values of the `gmqttd-link` properties of the PUBLISH (broker.link_header.split_properties)
    upstream  the domain that the upstream's CONNACK named; NO_DOMAIN for a broker of another kind
    window    of the domain, shared by all links; None where the headers are not to be trusted so far

    A message without a header comes from the upstream's own clients. The path of a message from a broker of another kind gets
    NO_DOMAIN appended, because that broker does not append itself.
    """
    if not headers:
        return encode_header((upstream,)), None
    try:
        link, header = received(headers, upstream)
    except LinkHeaderError:
        return b"", Refusal.HEADER
    path = header.path
    if own_domain in path:
        return b"", Refusal.PATH
    if len(path) > max_hops:
        return b"", Refusal.HOPS
    if window is not None and not window.is_new(header):
        return b"", Refusal.DUPLICATE
    return link, None
