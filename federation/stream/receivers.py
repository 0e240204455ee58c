"""The receivers of a node by the name of the other node: where a Hello finds its own."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Iterable

from broker.message import NEVER
from federation.stream.promises import STORE_MARK
from federation.stream.receiver import PeerReceiver


class NotAMember(Exception):
    """Hello from a name that is not in the federation (yet)."""


class Receivers:
    """by_name   changed by the node, as others join and leave
    store_id  of this node
    expected  store ids of members, as this node takes them: one that says another is not let in yet (Copies.holds_back)
    still_at  as in the context of the broker
    twin      name of a node that said the same store id last: one of the two stores is a copy; "" for none
    """

    def __init__(self, store_id: str = "") -> None:
        self.by_name: dict[str, PeerReceiver] = {}
        self.store_id = store_id
        self.expected: dict[str, str] = {}
        self.twin = ""
        self.still_at = NEVER

    def get(self, name: str) -> PeerReceiver:
        """Raises NotAMember."""
        receiver = self.by_name.get(name)
        if receiver is None:
            raise NotAMember(f"{name} has not yet joined")
        return receiver

    def hello(self, name: str, session_id: str, store_id: str) -> tuple[bool, int]:
        """As PeerReceiver.hello. Raises NotAMember also for a node with the store id of this one: which events are done is
        known by the store that they come from, so two nodes cannot have one id."""
        receiver = self.get(name)
        if store_id and store_id == self.store_id:
            self.twin = name
            raise NotAMember(f"{name} has a copy of the store of this node, or this one of its")
        _, _, wanted = session_id.partition(STORE_MARK)
        if wanted and wanted != self.store_id:
            raise NotAMember(f"it is not the store {wanted} that {name} asks for: it is another one by now")
        if store_id and self.expected.get(name, "") not in ("", store_id):
            raise NotAMember(f"{name} has another store by now; it has not yet joined with that")
        return receiver.hello(session_id, store_id)

    def know_interest(self, names: Iterable[str]) -> bool:
        """Return whether each of these nodes has told once what it subscribes to. Go brokers do not say when that is
        complete."""
        receivers = [self.by_name.get(name) for name in names]
        return all(receiver is None or not receiver.extended or receiver.has_interest for receiver in receivers)
