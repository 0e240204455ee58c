"""The ends of links for sessions that are made by tests."""

from __future__ import annotations

from broker.broker import Broker
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.ends import OwnEnd, RemoteEnd
from federation.links.bridging.headers import LinkConnect


def remote_end(broker: Broker, domain: bytes, max_hops: int = 1, relays: bool = False) -> RemoteEnd:
    """The link of another domain."""
    return RemoteEnd(bridging_of(broker).consumers, LinkConnect(domain, max_hops, relays))


def own_end(broker: Broker, domain: bytes, max_hops: int = 1, is_explicit: bool = False) -> OwnEnd:
    """The upstream of a link of this node."""
    end = OwnEnd(bridging_of(broker).consumers, domain, max_hops, {})
    end.is_explicit = is_explicit
    return end
