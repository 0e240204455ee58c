"""The tags of Serf by which nodes tell what they are (docs/protocol-extensions.md)."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.store.identity import StoreIdentity
from federation.trust import TAG_ADDR, TAG_TLS

TAG_EXTENSIONS: Final = "fed_ext"  # what it reads beyond the Go broker's stream, joined by commas
EXTENSION_FIELDS: Final = "direct2"  # our fields of the Go broker's events
EXTENSION_DIRECT: Final = "direct3"  # the direct stream
EXTENSION_SESSIONS: Final = "session1"  # it shares sessions
EXTENSION_COPIES: Final = "copies2"  # it keeps copies of the stores of others
EXTENSION_NEWEST: Final = "newest1"  # it says which messages of a copy that it hands over their home may lack
EXTENSION_STAMPS: Final = "stamps1"  # stamps of retained messages, on both streams
EXTENSIONS: Final = f"{EXTENSION_FIELDS},{EXTENSION_DIRECT},{EXTENSION_STAMPS}"
TAG_PROCESS: Final = "process"  # another one after each start; a member with it takes copies for shared groups
TAG_DRAINING: Final = "draining"  # present while the member is drained: it takes no clients and no sessions
DRAINING_OVER: Final = "over"  # its value where a worker has given all away, and does not come back
TAG_CLIENTS: Final = "client_addr"  # where clients reach the member, for those that another one sends there
REFERENCE_CHARS_MAX: Final = 128  # of TAG_CLIENTS
TAG_STORE: Final = "store"  # id of the member's store; absent without one
TAG_ZONE: Final = "zone"  # where the member stands: copies go to members of other zones first
ZONE_CHARS_MAX: Final = 64
TAG_WORKER_OF: Final = "worker_of"  # the node that the member is a further worker of; worker 0 has the name of the node
TAG_LINKS: Final = "links"  # present where the plugin links is on
OWN_TAGS: Final = frozenset(
    (
        TAG_ADDR,
        TAG_TLS,
        TAG_EXTENSIONS,
        TAG_PROCESS,
        TAG_DRAINING,
        TAG_CLIENTS,
        TAG_STORE,
        TAG_LINKS,
        TAG_ZONE,
        TAG_WORKER_OF,
    )
)
"""Tags by which nodes know what a member is: no operator writes them."""


def own_tags(
    advertised: str,
    direct: bool,
    identity: StoreIdentity | None = None,
    advertised_tls: str = "",
    shares_sessions: bool = True,
) -> dict[str, str]:
    """Serf tags of a node at these addresses, without TLS and with it (HOST:PORT, "" for none). `direct`: it takes batches."""
    tags = {TAG_ADDR: advertised} if advertised else {}
    if advertised_tls:
        tags[TAG_TLS] = advertised_tls
    if direct:
        tags[TAG_EXTENSIONS] = (
            f"{EXTENSIONS},{EXTENSION_SESSIONS},{EXTENSION_COPIES},{EXTENSION_NEWEST}"
            if shares_sessions
            else EXTENSIONS
        )
    if identity is not None:
        tags[TAG_PROCESS] = f"{identity.store_id[:12]}.{identity.starts}"
        if identity.is_durable:
            tags[TAG_STORE] = identity.store_id
    return tags
