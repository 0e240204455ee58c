"""Whether a link passes a message of its upstream on into this domain, by the headers of the message."""

from __future__ import annotations

from enum import Enum

from broker.link_header import NO_DOMAIN, LinkHeaderError, canonical, encode_header, parse_header
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
    if len(headers) > 1:
        return b"", Refusal.HEADER
    try:
        header = parse_header(headers[0])
        link = canonical(headers[0])
        if upstream == NO_DOMAIN and (not header.path or header.path[-1] != NO_DOMAIN):
            path = (*header.path, NO_DOMAIN)
            link = encode_header(path, header.node, header.sequence)
        else:
            path = header.path
            if not path or path[-1] != upstream:
                return b"", Refusal.HEADER
    except LinkHeaderError:
        return b"", Refusal.HEADER
    if own_domain in path:
        return b"", Refusal.PATH
    if len(path) > max_hops:
        return b"", Refusal.HOPS
    if window is not None and not window.is_new(header):
        return b"", Refusal.DUPLICATE
    return link, None
