"""The seam between the store of a broker and copies of it on other nodes (`Commits.replicator`; None without them)."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Replicator:
    """Copies what the store is given. A batch that has failed is given again, with more."""

    def written(self, batch: dict[int, tuple[object, ...] | None], now: float) -> None:
        """The store begins to write these records now; None is one that is deleted."""
        raise AssertionError("a subclass implements this")

    def stored(self, below: int, numbers: list[int]) -> None:
        """The store has all batches so far, with the records below this number: `Commits.settle` of these commits is due when
        the copies have them, too."""
        raise AssertionError("a subclass implements this")
