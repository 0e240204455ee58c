"""Makes the table and its JSON from slices."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from comparison import Comparison, compare
from rows import OTHER, THIS, Row
from slices import Slices

METHOD: Final = (
    "Values are medians over rounds. A ratio is the median of the ratios of all rounds, with its 95 % interval (bootstrap over "
    "rounds). A mark beside another commit is missed where the whole interval lies above it, a mark beside a peer where the "
    "ratio does, and a limit where one slice does."
)
TABLE_HEAD: Final = (
    "| load | figure | this | beside | theirs | this / theirs (95 %) | mark | |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)
BEGIN: Final = "<!-- table -->"
END: Final = "<!-- end of table -->"


@dataclass(frozen=True)
class Line:
    """One line of the table: a figure compared with a participant, or by itself (`beside` is "", `theirs` empty)."""

    row: str
    unit: str
    beside: str
    ours: Sequence[float]
    theirs: Sequence[float]
    comparison: Comparison | None
    mark: float  # largest ratio, or largest value of a figure by itself; infinite for none
    lost: int
    lost_by_peer: int

    @property
    def is_met(self) -> bool:
        if self.lost:
            return False
        if self.comparison is None:
            return max(self.ours) <= self.mark
        return (self.comparison.low if self.beside == OTHER else self.comparison.ratio) <= self.mark

    def text(self, labels: Mapping[str, str]) -> str:
        theirs, ratio, mark, verdict = "", f"worst {number(max(self.ours))}", "", ""
        if self.comparison is not None:
            found = self.comparison
            theirs = number(statistics.median(self.theirs))
            ratio = f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"
        if self.mark < math.inf:
            mark = f"≤ {number(self.mark)}"
            verdict = "met" if self.is_met else "**MISSED**"
        if self.lost:
            verdict = f"**MISSED**: lost {self.lost}"
        if self.lost_by_peer:
            theirs += f", lost {self.lost_by_peer}"
        ours = number(statistics.median(self.ours))
        beside = labels.get(self.beside, self.beside)
        return f"| {' | '.join([self.row, self.unit, ours, beside, theirs, ratio, mark, verdict])} |"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.2f}"


def lines_of(row: Row, slices: Slices) -> Iterator[Line]:
    """The lines of a row. A participant without slices has none."""
    ours = slices.of(row.name, THIS)
    lost = sum(found.lost for found in ours.values())
    for figure in row.figures if ours else ():
        for participant in row.beside:
            theirs = slices.of(row.name, participant)
            rounds = sorted(ours.keys() & theirs.keys())
            if rounds:
                values = [ours[at].values[figure.key] for at in rounds]
                others = [theirs[at].values[figure.key] for at in rounds]
                mark = figure.marks.get(participant, math.inf)
                lost_by_peer = sum(found.lost for found in theirs.values())
                comparison = compare(values, others)
                yield Line(row.name, figure.unit, participant, values, others, comparison, mark, lost, lost_by_peer)
        if figure.limit < math.inf or not row.beside:
            values = [found.values[figure.key] for found in ours.values()]
            yield Line(row.name, figure.unit, "", values, (), None, figure.limit, lost, 0)


def report(
    lines: Sequence[Line],
    rounds: int,
    not_measured: Mapping[str, str],
    facts: Mapping[str, str],
    labels: Mapping[str, str],
) -> str:
    """The table in Markdown, the verdict, and the facts of machine and builds."""
    missed = sum(not line.is_met for line in lines)
    verdict = f"{missed} of {len(lines)} lines MISSED" if missed else "Every mark is met"
    parts = ["\n".join([*TABLE_HEAD, *(line.text(labels) for line in lines)]), f"{rounds} rounds. {METHOD} {verdict}."]
    if not_measured:
        parts.append("Not measured:\n\n" + "\n".join(f"- {name}: {reason}" for name, reason in not_measured.items()))
    parts.append("\n".join(f"- {name}: {text}" for name, text in facts.items()))
    return "\n\n".join(parts) + "\n"


def write(folder: Path, name: str, text: str, lines: Sequence[Line], facts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    data = {
        "facts": facts,
        "lines": [{**asdict(line), "mark": finite(line.mark), "met": line.is_met} for line in lines],
    }
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def finite(value: float) -> float | None:
    return value if value < math.inf else None


def replace_table(page: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put the report between the two comments of the page."""
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"{page} has no {begin} and {end}"
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")
