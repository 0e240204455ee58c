"""What a node calls wrong with its federation."""

from __future__ import annotations

from collections.abc import Callable

from broker.alarm import ERROR, WARN, Alarm
from federation.alarms import BEHIND_SECONDS, node_alarms
from federation.stream.sender import PeerSender
from federation.stream.state import State
from simulator.federation import Federation
from simulator.node_store import Disk
from wording import check_named

Change = Callable[[PeerSender], None]


def alarms(federation: Federation) -> list[Alarm]:
    """Those of the first node."""
    process = federation.node(federation.hosts[0])
    return node_alarms(process.node, process.serf, federation.world.now)


def no_stream(sender: PeerSender) -> None:
    sender.state, sender.reason = State.BACKOFF, "refused"


def is_behind(sender: PeerSender) -> None:
    sender.is_behind = True
    sender.outbox.append_frame(b"", -2 * BEHIND_SECONDS)


def is_congested(sender: PeerSender) -> None:
    sender.congested = True


def differs(sender: PeerSender) -> None:
    sender.counters.retained_unmended = 3


def test_each_fault_of_a_stream_is_one_alarm() -> None:
    table: list[tuple[Change, str, list[str]]] = [
        (no_stream, ERROR, ["n2", "refused"]),
        (is_behind, WARN, ["n2", "kept here"]),
        (is_congested, WARN, ["n2", "outbox"]),
        (differs, WARN, ["n2", "retained"]),
    ]
    for change, level, words in table:
        federation = Federation(2, 2)
        assert alarms(federation) == []
        change(federation.node(federation.hosts[0]).node.senders["n2"])
        (found,) = alarms(federation)
        assert found.level == level
        check_named(found.text, words)


def test_a_node_that_is_slow_for_a_moment_is_no_alarm() -> None:
    federation = Federation(2, 2)
    sender = federation.node(federation.hosts[0]).node.senders["n2"]
    sender.is_behind = True
    assert alarms(federation) == []  # nothing waits for it
    sender.outbox.append_frame(b"", federation.world.now - BEHIND_SECONDS)
    assert alarms(federation) == []


def test_a_member_that_fails_is_suspected_before_and_the_copies_are_short() -> None:
    federation = Federation(2, 2, each=[{"disk": Disk()}, {"disk": Disk()}])
    federation.world.run_until(lambda: not alarms(federation), 60.0, "all is well")
    federation.hosts[1].crash()
    seen: set[str] = set()

    def has_failed() -> bool:
        found = alarms(federation)
        seen.update(alarm.text for alarm in found)
        # The stream that is lost with the member is no second fault.
        return any(alarm.level == ERROR for alarm in found) and not any("stream" in alarm.text for alarm in found)

    federation.world.run_until(has_failed, 60.0, "the member has failed")
    for words in (["n2", "suspected"], ["n2", "failed"]):
        assert any(all(word in text for word in words) for text in seen), (words, seen)

    def is_short() -> bool:
        return any("0 of 1 copies" in alarm.text for alarm in alarms(federation))

    federation.world.run_until(is_short, 60.0, "the copy is not whole")


def test_a_member_that_has_left_is_no_alarm() -> None:
    federation = Federation(2, 2)
    federation.do(federation.hosts[1], lambda node, now: node.leave(now))
    federation.world.run(60.0)
    assert alarms(federation) == []
