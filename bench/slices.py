"""The measured slices: each is written to a file at once, so that an interrupted run can be continued."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import BenchFailed


@dataclass(frozen=True)
class Slice:
    """One run of the generator: the values of the row's figures by their keys, and the number of lost messages."""

    row: str
    participant: str
    round: int
    values: dict[str, float]
    lost: int


class Slices:
    """All slices of a run, in memory and as lines of JSON in a file. The first line describes commits and options."""

    def __init__(self, path: Path, subject: dict[str, str], continues: bool) -> None:
        """Raise BenchFailed when the file to continue is of other commits or options."""
        self.all: list[Slice] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if continues and path.exists():
            first, *lines = path.read_text().splitlines()
            if json.loads(first) != subject:
                raise BenchFailed(f"--continue: {path} is of {first}, and this run is of {json.dumps(subject)}")
            self.all = [Slice(**json.loads(line)) for line in lines]
            self._file = path.open("a", buffering=1)
        else:
            self._file = path.open("w", buffering=1)
            self._file.write(json.dumps(subject) + "\n")

    def add(self, found: Slice) -> None:
        self.all.append(found)
        self._file.write(json.dumps(asdict(found)) + "\n")

    def of(self, row: str, participant: str) -> dict[int, Slice]:
        """The slices by round."""
        return {found.round: found for found in self.all if (found.row, found.participant) == (row, participant)}

    def rounds_done(self, row: str, participants: list[str]) -> int:
        """Number of rounds that every participant has finished."""
        return min(len(self.of(row, participant)) for participant in participants)

    def close(self) -> None:
        self._file.close()
