"""The wheel of deadlines against a list that is searched."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.message import NEVER
from broker.timers import SLOT_SECONDS, Timed, TimerWheel
from filter_shapes import memory_of


class Alarm(Timed):
    """Rings once, unless it is told to ring again after `period`."""

    def __init__(self, at: float, period: float = 0.0) -> None:
        super().__init__()
        self.at = at
        self.period = period
        self.rang: list[float] = []

    def deadline(self) -> float:
        return self.at

    def handle_timeout(self, now: float) -> None:
        assert now >= self.at, "early"
        self.rang.append(now)
        self.at = now + self.period if self.period else NEVER


def run(wheel: TimerWheel, now: float, until: float) -> None:
    """The clock jumps from one wake-up to the next."""
    while True:
        at = wheel.next_timeout()
        if at is None or at > until:
            break
        assert at > now - SLOT_SECONDS
        wheel.handle_timeout(max(at, now))
    wheel.handle_timeout(until)


def test_a_deadline_is_met_at_most_one_slot_late() -> None:
    wheel = TimerWheel()
    alarms = [Alarm(at / 10) for at in range(100)]
    for alarm in alarms:
        wheel.schedule(alarm)
    run(wheel, 0.0, 20.0)
    for alarm in alarms:
        assert len(alarm.rang) == 1
        assert alarm.at == NEVER
    assert all(rang[0] <= at / 10 + SLOT_SECONDS for at, rang in enumerate(a.rang for a in alarms))
    assert wheel.next_timeout() is None
    assert len(wheel) == 0


class Faulty(Alarm):
    def handle_timeout(self, now: float) -> None:
        raise ValueError("a fault of ours")


def test_a_fault_in_one_timer_does_not_stop_the_others() -> None:
    """The fault is told to the caller; who stood in the same slot is visited by the next call."""
    wheel = TimerWheel()
    before, faulty, after = Alarm(1.0), Faulty(1.0), Alarm(1.1)
    for alarm in (before, faulty, after):
        wheel.schedule(alarm)
    with pytest.raises(ValueError, match="a fault of ours"):
        wheel.handle_timeout(2.0)
    wheel.handle_timeout(2.1)
    assert (before.rang, after.rang) == ([2.0], [2.1])
    assert len(wheel) == 0
    assert wheel.next_timeout() is None


def test_an_early_call_rings_no_alarm() -> None:
    wheel = TimerWheel()
    alarm = Alarm(5.0)
    wheel.schedule(alarm)
    assert wheel.handle_timeout(4.99) == 0
    assert alarm.rang == []


def test_a_deadline_that_moves_later_is_asked_and_put_back() -> None:
    wheel = TimerWheel()
    alarm = Alarm(5.0)
    wheel.schedule(alarm)
    alarm.at = 100.0  # as each packet does to Keep Alive: the wheel is not told
    run(wheel, 0.0, 99.0)
    assert alarm.rang == []
    run(wheel, 99.0, 101.0)
    assert len(alarm.rang) == 1


def test_cancelled_deadlines_are_not_kept() -> None:
    """A cancelled deadline is hours away; nothing of it stays in the wheel until then."""
    wheel = TimerWheel()
    for _ in range(1000):
        alarm = Alarm(100_000.0)
        wheel.schedule(alarm)
        alarm.at = 90_000.0
        wheel.schedule(alarm)
        wheel.cancel(alarm)
        wheel.cancel(alarm)
    assert len(wheel) == 0
    assert wheel.next_timeout() is None


def test_slots_of_cancelled_deadlines_are_not_kept() -> None:
    """Each alarm is cancelled long before its time; those that stay ring when they should."""
    wheel = TimerWheel()
    stay = [Alarm(1_000_000.0 + number) for number in range(10)]

    def schedule() -> None:
        for number in range(20_000):
            if number < len(stay):
                wheel.schedule(stay[number])
            alarm = Alarm(2_000_000.0 + number)
            wheel.schedule(alarm)
            wheel.cancel(alarm)

    assert memory_of(schedule) < 3_000 * 500
    run(wheel, 0.0, 1_000_020.0)
    assert [len(alarm.rang) for alarm in stay] == [1] * len(stay)
    assert len(wheel) == 0


def test_a_timer_may_cancel_another_of_its_slot() -> None:
    wheel = TimerWheel()
    victim = Alarm(5.0)

    class Killer(Alarm):
        def handle_timeout(self, now: float) -> None:
            super().handle_timeout(now)
            wheel.cancel(victim)
            victim.at = NEVER

    wheel.schedule(Killer(5.0))
    wheel.schedule(victim)
    run(wheel, 0.0, 10.0)
    assert victim.rang == []


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["new", "periodic", "earlier", "later", "cancel", "again", "advance"]),
        st.integers(0, 19),
        st.integers(0, 400),
    ),
    max_size=60,
)


def change(wheel: TimerWheel, alarm: Alarm, action: str, now: float, seconds: float) -> None:
    if action == "cancel":
        wheel.cancel(alarm)
        alarm.at = NEVER
    elif action == "later" and alarm.at != NEVER:
        alarm.at += seconds
    elif action == "earlier" and alarm.at != NEVER:
        alarm.at = max(now, alarm.at - seconds)
        wheel.schedule(alarm)
    elif action == "again":
        alarm.at = now + seconds
        wheel.schedule(alarm)


@given(ACTIONS)
def test_the_wheel_equals_a_list_that_is_searched(actions: list[tuple[str, int, int]]) -> None:
    """Each alarm rings exactly once for a deadline, in the first slot that is over after it."""
    wheel = TimerWheel()
    now = 0.0
    alarms: list[Alarm] = []
    expected: list[list[int]] = []  # the slots in which each alarm must ring

    def slot_of(at: float) -> int:
        return math.floor(at / SLOT_SECONDS) + 1

    for action, which, amount in actions:
        seconds = amount / 40
        if action in ("new", "periodic"):
            alarm = Alarm(now + seconds, 3.1 if action == "periodic" else 0.0)
            alarms.append(alarm)
            expected.append([])
            wheel.schedule(alarm)
        elif action == "advance":
            until = now + seconds
            at = now
            while True:
                due = [a.at for a in alarms if slot_of_or_never(a.at) * SLOT_SECONDS <= until]
                if not due:
                    break
                at = max(at, min(slot_of(d) for d in due) * SLOT_SECONDS)
                wheel.handle_timeout(at)
                assert all(a.at > at or slot_of(a.at) * SLOT_SECONDS > at for a in alarms), "one was forgotten"
            wheel.handle_timeout(until)
            now = until
        elif alarms:
            change(wheel, alarms[which % len(alarms)], action, now, seconds)
    waiting = [alarm for alarm in alarms if alarm.at != NEVER]
    assert len(wheel) == len(waiting)
    assert (wheel.next_timeout() is None) == (not waiting)


@given(ACTIONS)
def test_is_earlier_tells_when_to_ask_again(actions: list[tuple[str, int, int]]) -> None:
    """As server.turns does: next_timeout is asked when the timer has fired and when is_earlier says so, never else."""
    wheel = TimerWheel()
    now = 0.0
    armed: float | None = None
    alarms: list[Alarm] = []
    for action, which, amount in actions:
        seconds = amount / 40
        if action in ("new", "periodic"):
            alarms.append(Alarm(now + seconds, 3.1 if action == "periodic" else 0.0))
            wheel.schedule(alarms[-1])
        elif action == "advance":
            until = now + seconds
            while armed is not None and armed <= until:
                now = max(now, armed)
                wheel.handle_timeout(now)
                armed = wheel.next_timeout()
            now = until
        elif alarms:
            change(wheel, alarms[which % len(alarms)], action, now, seconds)
        if armed is None or wheel.is_earlier:
            at = wheel.next_timeout()
            armed = at if armed is None or at is None else min(armed, at)
        late = [alarm.at for alarm in alarms if alarm.at + SLOT_SECONDS < now]
        assert not late, "it slept through a deadline"
        assert armed is not None or all(alarm.at == NEVER for alarm in alarms)


def slot_of_or_never(at: float) -> float:
    return NEVER if at == NEVER else math.floor(at / SLOT_SECONDS) + 1


def test_deadlines_before_the_clock_began() -> None:
    """Of sessions that a machine had before its restart."""
    wheel = TimerWheel()
    alarms = [Alarm(at) for at in (-1e9, -1.0, -0.1)]
    for alarm in (*alarms, *alarms):
        wheel.schedule(alarm)
    assert len(wheel) == len(alarms)
    wheel.cancel(alarms[0])
    assert len(wheel) == len(alarms) - 1
    wheel.handle_timeout(SLOT_SECONDS)
    assert [alarm.rang for alarm in alarms] == [[], [SLOT_SECONDS], [SLOT_SECONDS]]
