"""The filters of one SUBSCRIBE or UNSUBSCRIBE, in slices."""

# compiled with mypyc
from __future__ import annotations

from broker.session.session import Session
from broker.slices import Slices, Work


class FilterWork(Work):
    """Adds or removes `count` filters of one session. `codes` are their reason codes, in order."""

    def __init__(self, slices: Slices, session: Session, count: int) -> None:
        self.codes: list[int] = []
        self.session = session
        self._slices = slices
        self._count = count

    def go_on(self, now: float) -> bool:
        codes = self.codes
        slices = self._slices
        while len(codes) < self._count:
            if codes and slices.is_over():
                return False
            slices.steps += 1
            codes.append(self.handle(len(codes)))
        return True

    def handle(self, index: int) -> int:
        """Add or remove one filter. Returns its reason code."""
        raise AssertionError("a subclass implements this")
