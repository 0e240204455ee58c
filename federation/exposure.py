"""Warnings of the start about who reaches the addresses between nodes."""

from __future__ import annotations

from collections.abc import Iterator

from broker.config.addresses import is_loopback
from federation.settings import FederationSettings


def exposure_warnings(settings: FederationSettings) -> Iterator[tuple[str, str]]:
    """(key, text) of each address of `plugins.federation` that other machines reach without a proof of who they are."""
    fed_addr, gossip_addr = settings.fed_addr, settings.gossip_addr
    if not settings.require_tls and not is_loopback(fed_addr.host):
        yield (
            "fed_addr",
            f"whoever reaches {fed_addr} can join the federation, read and publish: other nodes are not authenticated "
            "and nothing is encrypted; "
            + (
                "require_tls: true closes it, where there are no Go brokers"
                if settings.tls is not None
                else "use a loopback or private address, or set tls and require_tls"
            ),
        )
    rpc_addr = settings.rpc_addr
    if rpc_addr is not None and not is_loopback(rpc_addr.host):
        who = "whoever reads the key on its way to" if settings.rpc_auth else "whoever reaches"
        remedy = "use a loopback address" if settings.rpc_auth else "use a loopback address, or at least set rpc_auth"
        yield (
            "rpc_addr",
            f"{who} {rpc_addr} can make nodes leave, change keys and read the log: nothing is encrypted there; {remedy}",
        )
    if is_loopback(gossip_addr.host) or (settings.encrypts_gossip and settings.gossip_verify_incoming):
        return
    if settings.require_tls:
        yield (
            "gossip_addr",
            f"whoever reaches {gossip_addr} can name members, and have members taken for failed: gossip is not "
            "authenticated; messages and definitions are not reached there; set encrypt_keys, or use a loopback or private "
            "address",
        )
    else:
        yield (
            "gossip_addr",
            f"whoever reaches {gossip_addr} can join the federation, read and publish: other nodes are not authenticated "
            "and nothing is encrypted; set encrypt_keys, or use a loopback or private address",
        )
