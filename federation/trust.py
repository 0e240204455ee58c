"""Trust between nodes: how a member is reached, and which name the other end of a connection has proved (docs/security.md).

A certificate proves the DNS names of its subjectAltName, letter by letter: no wildcards, no common name. That of NAME is also
that of NAME/1 and so on, its workers: they have one file.
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.config.addresses import AddressError, parse_address

DEFAULT_FEDERATION_PORT: Final = 8901
DEFAULT_TLS_PORT: Final = 8903
TAG_ADDR: Final = "fed_addr"  # HOST:PORT where the member takes streams without TLS
TAG_TLS: Final = "fed_tls"  # HOST:PORT where it takes everything between nodes, with TLS
NAMES_MAX: Final = 4  # of a certificate, in a text
NAME_CHARS_MAX: Final = 128

# Why a node is refused: labels of the metric, and words of the counters in the log.
PLAIN: Final = "plain"
CERTIFICATE: Final = "certificate"
NAME: Final = "name"
HANDSHAKE: Final = "handshake"
REFUSALS: Final = (PLAIN, CERTIFICATE, NAME, HANDSHAKE)

WITHOUT_TLS: Final = "it has no TLS, and require_tls is true here; set plugins.federation.tls there"
ONLY_TLS: Final = "it takes no streams without TLS; set plugins.federation.tls here"
TAKES_GO_ONLY: Final = (
    "without TLS this node takes the Go broker's stream alone; set plugins.federation.tls on the other node"
)
NO_NAME: Final = "the certificate has no DNS name; that of a node has the name of the node"


@dataclass(frozen=True, slots=True)
class Reach:
    """The way to a member.

    addr         HOST:PORT; "" for none
    is_tls       with TLS
    is_go_only   without TLS, at a node that has TLS: it takes the Go broker's stream there and nothing else
    fault        why there is no way, where it tells an address; "" otherwise
    bad_address  text of a tag that is no address; "" otherwise
    """

    addr: str = ""
    is_tls: bool = False
    is_go_only: bool = False
    fault: str = ""
    bad_address: str = ""


NO_WAY: Final = Reach()


def reach_of(tags: Mapping[str, str], has_tls: bool, requires_tls: bool) -> Reach:
    """Return the way to a member with these tags. `has_tls` and `requires_tls` are of this node."""
    plain, secure = tags.get(TAG_ADDR, ""), tags.get(TAG_TLS, "")
    if has_tls and secure:
        return _read(secure, DEFAULT_TLS_PORT, True, False)
    if not plain:
        return Reach(fault=ONLY_TLS) if secure else Reach()
    if requires_tls:
        return Reach(fault=WITHOUT_TLS)
    return _read(plain, DEFAULT_FEDERATION_PORT, False, bool(secure))


def _read(text: str, default_port: int, is_tls: bool, is_go_only: bool) -> Reach:
    try:
        addr = parse_address(text, default_port, unix_allowed=False).host_port
    except AddressError:
        return Reach(bad_address=text[:100])
    return Reach(addr, is_tls, is_go_only)


def dns_names(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of a certificate, as `ssl.SSLObject.getpeercert` gives it."""
    return tuple(str(value) for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "DNS")


def name_fault(names: Collection[str], name: str) -> str:
    """Return why a certificate with these names is not that of a node; "" where it is."""
    if name in names or node_of(name) in names:
        return ""
    shown = [text[:NAME_CHARS_MAX] for text in names][:NAMES_MAX]
    told = ", ".join(shown) if shown else "no DNS name"
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"the certificate is for {told}{more}; that of {name[:NAME_CHARS_MAX]} has this name as a DNS name"


def node_of(name: str) -> str:
    """Return the node of a worker by its name; the name itself where it is none."""
    node, _, index = name.rpartition("/")
    return node if node and index.isdecimal() else name


class Caller:
    """The other end of a connection to this node.

    addr   HOST:PORT, for the log
    names  of its certificate; None on a connection without TLS
    """

    def __init__(self, addr: str, names: Collection[str] | None, tls_members: Collection[str]) -> None:
        """`tls_members` are the members that this node reaches with TLS."""
        self.addr = addr
        self.names = names
        self._tls_members = tls_members

    @property
    def refusal(self) -> str:
        """Return the word of REFUSALS for a fault of this caller."""
        return PLAIN if self.names is None else NAME

    def fault(self, name: str) -> str:
        """Return why this is not the node that it says; "" where it is, or may be."""
        if self.names is not None:
            return name_fault(self.names, name)
        if name in self._tls_members:
            return f"{name} has TLS (its tag {TAG_TLS}), so nobody is taken for {name} without it"
        return ""


# What OpenSSL says of a certificate, in part, and what would be right.
REMEDIES: Final = (
    ("expired", "make a new one and reload that node"),
    ("not yet valid", "set the clocks of both machines"),
    ("issuer", "it and cacert of this node need the same authority"),
    ("self-signed", "it and cacert of this node need the same authority"),
    ("self signed", "it and cacert of this node need the same authority"),
    ("purpose", "its extended key usage, if it has one, needs serverAuth and clientAuth"),
    (
        "did not return",
        "only nodes connect here, and plugins.federation.tls of each needs cert and key",
    ),
)
# The same for what the other end says of the certificate of this node, in an alert.
ALERTS: Final = (
    ("expired", "make a new one and reload this node"),
    ("unknown ca", "the certificate of this node and cacert of that one need the same authority"),
    ("certificate required", "plugins.federation.tls of this node needs cert and key"),
    ("certificate", "make a new one with `gmqttd cert create-node`"),
)


def told(reason: str) -> tuple[str, str]:
    """Return (the word of REFUSALS, a sentence with what would be right) for the reason of a TLS layer."""
    _, alert, cause = reason.partition(" alert ")
    if alert:
        for part, remedy in ALERTS:
            if part in cause:
                return CERTIFICATE, f"it refuses the certificate of this node: {cause}; {remedy}"
        return HANDSHAKE, reason
    for part, remedy in REMEDIES:
        if part in reason:
            return CERTIFICATE, f"{reason}; {remedy}"
    return (CERTIFICATE if "certificate" in reason else HANDSHAKE), reason
