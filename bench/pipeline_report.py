"""Makes the table of `scripts/bench pipeline`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from comparison import Comparison, compare
from report import number

METHOD: Final = (
    "Values are medians over rounds. A ratio is the median of the ratios of all rounds, with its 95 % interval (bootstrap over "
    "rounds). A mark is missed where the ratio lies below it, a limit where one round does. A lost or a doubled row fails its "
    "line."
)
TABLE_HEAD: Final = (
    "| work | data | unit | this | beside | theirs | this / theirs (95 %) | mark | |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)
BEGIN: Final = "<!-- pipeline table -->"
END: Final = "<!-- end of pipeline table -->"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    beside, theirs  what is measured alternately, and its values; "" and none for a figure by itself
    mark            smallest ratio, 0 for none; or largest value of a figure by itself
    fault           why there is no figure; "" for none
    """

    work: str
    data: str
    unit: str
    ours: Sequence[float]
    beside: str
    theirs: Sequence[float]
    mark: float
    fault: str

    @property
    def comparison(self) -> Comparison | None:
        return compare(self.ours, self.theirs) if self.theirs else None

    @property
    def is_met(self) -> bool:
        if self.fault or not self.ours:
            return False
        found = self.comparison
        return max(self.ours) <= self.mark if found is None else found.ratio >= self.mark

    def text(self) -> str:
        ours = theirs = ratio = ""
        found = self.comparison
        if self.ours:
            ours = number(statistics.median(self.ours))
            ratio = f"worst {number(max(self.ours))}"
        if found is not None:
            theirs = number(statistics.median(self.theirs))
            ratio = f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"
        mark = f"{'≥' if self.beside else '≤'} {number(self.mark)}" if self.mark else ""
        verdict = ("met" if mark else "") if self.is_met else f"**MISSED** {self.fault}".rstrip()
        cells = [self.work, self.data, self.unit, ours, self.beside, theirs, ratio, mark, verdict]
        return f"| {' | '.join(cells)} |"


def report(lines: Sequence[Line], facts: Mapping[str, str]) -> str:
    """The table in Markdown, the verdict, and the facts of machine and builds."""
    missed = sum(not line.is_met for line in lines)
    verdict = f"{missed} of {len(lines)} lines MISSED" if missed else "Every mark is met"
    table = "\n".join([*TABLE_HEAD, *(line.text() for line in lines)])
    described = "\n".join(f"- {name}: {text}" for name, text in facts.items())
    return f"{table}\n\n{METHOD} {verdict}.\n\n{described}\n"


def write(folder: Path, name: str, text: str, lines: Sequence[Line], facts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    data = {"facts": facts, "lines": [{**asdict(line), "met": line.is_met} for line in lines]}
    for found, line in zip(data["lines"], lines, strict=True):
        comparison = line.comparison
        found["ratio"] = None if comparison is None else asdict(comparison)  # type: ignore[index]
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
