"""Events of a node that are logged."""

# compiled with mypyc
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BadAddress:
    """A member's tag fed_addr is no address; it gets nothing."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class NoWay:
    """A member tells an address, but it and this node do not agree about TLS; it gets nothing."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SendsNothing:
    """A Go broker that is reached has no stream to this node."""

    name: str
    seconds: float
