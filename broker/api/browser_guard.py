"""Requests that a web page of somebody else sends are refused here.

A browser lets any page send requests to an API on the same machine or network, and tells the API in three header fields
who asks. `Origin` and `Sec-Fetch-Site` name the page's site (Fetch Metadata Request Headers, RFC 6454). `Host` is the name
that the page used: with DNS rebinding it is the page's own name, which resolves to an address of the node. Programs send
neither of the first two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from broker.config.addresses import is_ip

LOCAL_NAME: Final = "localhost"
OWN_SITES: Final = ("same-origin", "none")  # "none": the operator typed the address
AUTHORITY: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]@/?#]*)(?::[0-9]*)?")
ALLOW_HINT: Final = "or add the name to allowed_hosts of this api.http listener"


class BrowserGuard:
    """The rules of one listener.

    allowed_hosts  host names without port that operators use beside localhost and IP addresses
    on_loopback    whether the listener has a loopback address: there, and where `allowed_hosts` is set, Host is checked
    """

    def __init__(self, allowed_hosts: Sequence[str], on_loopback: bool) -> None:
        self.on_loopback = on_loopback
        self._allowed = frozenset(name.lower().rstrip(".") for name in allowed_hosts)
        self._checks_host = on_loopback or bool(self._allowed)

    def refusal(self, hosts: Sequence[str], origins: Sequence[str], fetch_sites: Sequence[str]) -> str:
        """Return why the request is refused, empty when it is not. The arguments are all values of the three header
        fields."""
        if self._checks_host:
            for host in hosts:
                if not self._is_own(host):
                    return f'the Host "{host[:100]}" is not a name of this node: use localhost or an IP address, {ALLOW_HINT}'
        for site in fetch_sites:
            if site not in OWN_SITES:
                return f"web pages of other sites may not use this API (Sec-Fetch-Site is {site[:100]})"
        for origin in origins:
            authority = authority_of(origin)
            if authority not in [host.lower() for host in hosts] and host_name(authority) not in self._allowed:
                return f'web pages of "{origin[:100]}" may not use this API: call it from a page of this node, {ALLOW_HINT}'
        return ""

    def _is_own(self, authority: str) -> bool:
        name = host_name(authority)
        return name == LOCAL_NAME or name in self._allowed or is_ip(name)


def host_name(authority: str) -> str:
    """The host of HOST or HOST:PORT in lower case, without brackets and last dot; empty when it is neither."""
    match = AUTHORITY.fullmatch(authority.strip())
    return match["host"].lower().strip("[]").rstrip(".") if match else ""


def authority_of(origin: str) -> str:
    """HOST or HOST:PORT of an Origin, in lower case; empty for `null` and for what is no URL."""
    try:
        return urlsplit(origin.strip()).netloc.lower()
    except ValueError:
        return ""
