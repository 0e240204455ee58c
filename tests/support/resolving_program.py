"""`python -m broker` on a machine whose resolver is the DNS server at this port of loopback: the first argument."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import dns.resolver

from broker.server.cli import main

if TYPE_CHECKING:
    from dns.resolver import BaseResolver


def run(port: int) -> None:
    def read(resolver: BaseResolver, file: Any) -> None:
        """In the place of /etc/resolv.conf, which has no ports."""
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = port

    dns.resolver.BaseResolver.read_resolv_conf = read  # type: ignore[assignment,method-assign]
    main()


if __name__ == "__main__":
    run(int(sys.argv.pop(1)))
