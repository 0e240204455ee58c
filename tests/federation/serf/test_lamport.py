"""The Lamport clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.msgpack_fields import LAMPORT_TIME_MAX, WITNESSED_TIME_MAX
from federation.serf.lamport import LamportClock


@given(st.lists(st.integers(0, 50) | st.none()))
def test_a_new_message_is_later_than_all_before_it(times: list[int | None]) -> None:
    """A number is the time of a received message, None a message of this node."""
    clock = LamportClock()
    latest = 0
    for time in times:
        if time is None:
            own = clock.increment()
            assert own > latest
            latest = own
        else:
            clock.witness(time)
            latest = max(latest, time)
        assert clock.time == latest + 1


def test_forged_times_do_not_advance_the_clock() -> None:
    clock = LamportClock()
    for time in (WITNESSED_TIME_MAX + 1, LAMPORT_TIME_MAX):
        clock.witness(time)
    assert clock.time == 1
    clock.witness(WITNESSED_TIME_MAX)
    assert clock.increment() == WITNESSED_TIME_MAX + 1
