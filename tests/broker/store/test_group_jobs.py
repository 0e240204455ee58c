"""Jobs of members of a group with a queue, when the process ends before they are acknowledged."""

from __future__ import annotations

from broker.codec.packets import Publish
from broker.session.group_queues import GroupQueues
from broker.store.journal import Journal
from broker.store.restoring import Restoring
from broker_world import Client, World

JOBS = b"$share/g/jobs"


def publishes(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.packets if isinstance(packet, Publish)]


def killed(world: World) -> World:
    """The next process."""
    after = World()
    restoring = Restoring(after.broker, 0.0, after.now)
    stored = dict(sorted(world.stored.items()))
    for number, record in stored.items():
        restoring.add(number, record)
    after.keep(restoring.end(), stored, 0.0)
    after.flush()
    after.advance(0.0)
    return after


def test_jobs_go_back_whether_their_member_stays_or_has_left_the_group() -> None:
    for expiry, leaves in ((0, False), (0, True), (1000, False), (1000, True)):
        world = World()
        world.keep(Journal(), {}, 0.0)
        GroupQueues(world.broker).declare(b"g", b"jobs", 10, 10_000, 0.0, world.now)
        member = world.connect("member", auto=False, expiry=expiry)
        member.subscribe(JOBS)
        world.publish(b"jobs", b"1", qos=1)
        assert publishes(member) == [b"1"]
        if leaves:
            member.unsubscribe(JOBS)
        after = killed(world)
        after.advance(5.0)
        other = after.connect("other")
        other.subscribe(JOBS)
        assert publishes(other) == [b"1"], f"Session Expiry Interval {expiry}, left: {leaves}"
        after.check()
        last = killed(after)
        assert last.connect("late").connection.session is not None
        last.check()
