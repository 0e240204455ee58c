"""Who keeps a copy of which store is known to all members, also to one that has started again."""

from __future__ import annotations

from federation.replication.copies import ADOPTED_SECONDS_MAX
from simulator.federation import Federation
from simulator.node_store import Disk

OTHER_STORE = "0d" * 16


def test_a_node_that_has_started_again_waits_for_the_adoption_of_a_lost_store() -> None:
    """Without that it would send what it has for the lost store to the new one, which has no sessions."""
    federation = Federation(2, 3, each=[{"disk": Disk()} for _ in range(3)])
    federation.until_agreement(30.0, "the start")
    federation.run(5.0)
    copies = federation.node(federation.hosts[0]).node.copies
    assert copies is not None
    (keeper,) = copies.replication.listed.names
    other = next(host for host in federation.hosts[1:] if federation.node(host).name != keeper)
    other.crash()
    federation.run(1.0)
    other.start()
    federation.until_agreement(60.0, "the restart")
    federation.run(5.0)
    node = federation.node(other).node
    assert node.copies is not None
    assert node.copies.holds_back(node.senders["n1"], OTHER_STORE, federation.world.now)
    sender = node.senders[keeper]
    sender.is_living = False  # it may be back soon
    assert node.copies.holds_back(node.senders["n1"], OTHER_STORE, federation.world.now)
    assert not node.copies.holds_back(node.senders["n1"], OTHER_STORE, federation.world.now + ADOPTED_SECONDS_MAX)
