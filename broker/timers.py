"""Deadlines of ten thousand clients in one wheel, not in ten thousand timers.

A `Timed` tells its deadline when asked; the wheel only remembers in which slot to ask. Moving a deadline later (every
packet does that for Keep Alive) costs nothing: the slot is visited, the deadline is asked, and it is put back.
"""

from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import mypyc_attr

from broker.message import NEVER

SLOT_SECONDS: Final = 0.25  # a deadline is met up to this much late
EMPTY_SLOTS_MIN: Final = 1_024  # slots that became empty before their time, from which they are cleared away


@mypyc_attr(allow_interpreted_subclasses=True)
class Timed:
    """Something with a deadline. `timer_slot` belongs to the wheel; -1 when it is in none."""

    def __init__(self) -> None:
        self.timer_slot = -1

    def deadline(self) -> float:
        """Monotonic seconds, NEVER for none. Whoever moves it earlier calls `TimerWheel.schedule` again."""
        return NEVER

    def handle_timeout(self, now: float) -> None:
        """The deadline has passed. Afterwards it must be another one, or NEVER."""


class TimerWheel:
    """Slots of SLOT_SECONDS, visited in order; each Timed is in one slot at most, so nothing that is over is kept."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[Timed, None]] = {}  # a dict for its order, and to take one out without a search
        self._order: list[int] = []
        self.is_earlier = False  # since next_timeout was asked, something was scheduled before all that was there
        self._emptied = 0  # slots since the last clearing, some of which may have been filled again or be over

    def schedule(self, timed: Timed) -> None:
        """Note the deadline of `timed`, unless the wheel asks it early enough anyway."""
        deadline = timed.deadline()
        if deadline == NEVER:
            return
        slot = max(
            0, int(deadline / SLOT_SECONDS) + 1
        )  # a session that outlived its process can have a deadline before 0
        if 0 <= timed.timer_slot <= slot:
            return
        self.cancel(timed)
        timed.timer_slot = slot
        entries = self._slots.get(slot)
        if entries is None:
            self._slots[slot] = {timed: None}
            heapq.heappush(self._order, slot)
            if self._order[0] == slot:
                self.is_earlier = True
        else:
            entries[timed] = None

    def cancel(self, timed: Timed) -> None:
        """Forget it: for what is over, whose slot may be hours away."""
        if timed.timer_slot >= 0:
            entries = self._slots.get(timed.timer_slot)
            if entries is not None:
                entries.pop(timed, None)
                if not entries:
                    self._emptied += 1
                    if self._emptied >= EMPTY_SLOTS_MIN and self._emptied * 2 >= len(self._slots):
                        self._clear_empty_slots()
            timed.timer_slot = -1

    def _clear_empty_slots(self) -> None:
        """Those of sessions that were to end in a year, and ended today, would be kept for the year."""
        self._emptied = 0
        self._slots = {slot: entries for slot, entries in self._slots.items() if entries}
        self._order = list(self._slots)
        heapq.heapify(self._order)

    def next_timeout(self) -> float | None:
        """When to call handle_timeout, or None."""
        self.is_earlier = False
        order = self._order
        while order and not self._slots[order[0]]:
            del self._slots[heapq.heappop(order)]
        return order[0] * SLOT_SECONDS if order else None

    def handle_timeout(self, now: float) -> int:
        """Visit every slot that is over; harmless when early. Returns how many deadlines had passed."""
        passed = 0
        while self._order and self._order[0] * SLOT_SECONDS <= now:
            slot = heapq.heappop(self._order)
            entries = self._slots.pop(slot)
            try:
                for timed in entries:
                    if timed.timer_slot != slot:
                        continue  # cancelled, or moved, by one that was visited before it
                    timed.timer_slot = -1
                    if timed.deadline() <= now:
                        timed.handle_timeout(now)
                        passed += 1
                    self.schedule(timed)
            except BaseException:
                # A fault in one is nothing to the others of its slot: they are visited by the next call.
                for timed in entries:
                    if timed.timer_slot == slot:
                        timed.timer_slot = -1
                        self.schedule(timed)
                raise
        return passed

    def __len__(self) -> int:
        return sum([len(entries) for entries in self._slots.values()])
