"""A timer wheel for the deadlines of all clients.

The wheel holds each `Timed` in a slot and asks for its deadline when the slot is due. Moving a deadline later, as every
packet does for Keep Alive, costs nothing: the wheel then moves the `Timed` to a later slot.
"""

# compiled with mypyc
from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import mypyc_attr

from broker.message import NEVER

SLOT_SECONDS: Final = 0.25  # `handle_timeout` comes at most this much after a deadline
EMPTY_SLOTS_MIN: Final = 1_024  # fewer slots that cancels emptied are not removed


@mypyc_attr(allow_interpreted_subclasses=True)
class Timed:
    """Something with a deadline. Only the wheel changes `timer_slot`; -1 is no slot."""

    def __init__(self) -> None:
        self.timer_slot = -1

    def deadline(self) -> float:
        """Monotonic seconds, NEVER for none. After moving it earlier, call `TimerWheel.schedule`."""
        return NEVER

    def handle_timeout(self, now: float) -> None:
        """The deadline has passed. Must move the deadline later or to NEVER."""


class TimerWheel:
    """Slots of SLOT_SECONDS, visited in order. Each Timed is in one slot at most.

    is_earlier  since the last `next_timeout`, a deadline before all others was scheduled
    """

    def __init__(self) -> None:
        self._slots: dict[int, dict[Timed, None]] = {}  # inner dicts keep the order and remove in constant time
        self._order: list[int] = []  # a heap of the slots
        self.is_earlier = False
        self._emptied = 0  # slots that cancels emptied since the last clearing; some may be in use again or over

    def schedule(self, timed: Timed) -> None:
        """Put `timed` into the slot of its deadline, unless it is in an earlier one."""
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
        """Take `timed` out of its slot."""
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
        """Remove empty slots. The slot of a session with an expiry of one year otherwise stays for that year."""
        self._emptied = 0
        self._slots = {slot: entries for slot, entries in self._slots.items() if entries}
        self._order = list(self._slots)
        heapq.heapify(self._order)

    def next_timeout(self) -> float | None:
        """Return when to call `handle_timeout`; None without deadlines."""
        self.is_earlier = False
        order = self._order
        while order and not self._slots[order[0]]:
            del self._slots[heapq.heappop(order)]
        return order[0] * SLOT_SECONDS if order else None

    def handle_timeout(self, now: float) -> int:
        """Visit every slot that is due. Returns the number of deadlines that have passed."""
        passed = 0
        while self._order and self._order[0] * SLOT_SECONDS <= now:
            slot = heapq.heappop(self._order)
            entries = self._slots.pop(slot)
            try:
                for timed in entries:
                    if timed.timer_slot != slot:
                        continue  # cancelled or moved by one before it
                    timed.timer_slot = -1
                    if timed.deadline() <= now:
                        timed.handle_timeout(now)
                        passed += 1
                    self.schedule(timed)
            except BaseException:
                # A fault in one does not cancel the others of its slot: the next call visits them.
                for timed in entries:
                    if timed.timer_slot == slot:
                        timed.timer_slot = -1
                        self.schedule(timed)
                raise
        return passed

    def __len__(self) -> int:
        return sum([len(entries) for entries in self._slots.values()])
