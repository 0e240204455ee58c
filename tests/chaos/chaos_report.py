"""What a chaos run did and found, and its summary."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from judgement import Judgement
from schedule import Plan, Reader, Victim


@dataclass
class Report:
    """recovery_seconds  of each kill: until the victim, or what it belongs to, worked again"""

    plan: Plan
    killed: list[tuple[Victim, str]] = field(default_factory=list)
    recovery_seconds: list[float] = field(default_factory=list)
    ended_by_themselves: dict[str, list[int]] = field(default_factory=dict)
    seconds: float = 0.0
    published: int = 0
    sent_again: int = 0
    connects: int = 0
    judgement: Judgement = field(default_factory=Judgement)

    @property
    def is_clean(self) -> bool:
        return not self.judgement.faults

    def lines(self) -> list[str]:
        """The summary, for a reader who knows nothing of the run."""
        judgement = self.judgement
        kinds = Counter(victim for victim, _ in self.killed)
        killed = "".join(f", {count} x {victim}" for victim, count in sorted(kinds.items()))
        lines = [
            f"{self.plan.nodes} nodes, seed {self.plan.seed}, {self.seconds:.0f} s, {len(self.killed)} kills -9{killed}",
            f"published at QoS 1, all acknowledged    {self.published:>10,}   ({self.sent_again:,} sent more than once, "
            f"{self.connects:,} connections)",
            f"records in the logs of the nodes        {judgement.source_rows:>10,}",
            f"{f'rows read ({self.plan.reader})':<40}{judgement.archive_rows:>10,}",
        ]
        if self.plan.has_sink:
            in_batches = f"in {judgement.sink_batches:,} batches"
            lines.append(f"rows that the sink published and logged {judgement.sink_rows:>10,}   {in_batches}")
        if self.plan.reader is Reader.REPLAY:
            lines.append(
                f"sessions that began anew                {judgement.begun:>10,}   {judgement.again:,} messages came again"
            )
        for name, statuses in self.ended_by_themselves.items():
            if statuses:
                lines.append(
                    f"{name} ended by itself {len(statuses)} times (exit status {statuses}) and was started again"
                )
        if self.recovery_seconds:
            slowest = max(self.recovery_seconds)
            lines.append(f"work went on after each kill, at the latest after {slowest:.1f} s")
        if self.is_clean:
            lines += [
                "every acknowledged message was read",
                "no record was read twice, and each row is as in the log",
            ]
            if self.plan.has_sink:
                lines.append(
                    "each (query, batch, row) of the sink is in the log of its node once, each record was copied once"
                )
        else:
            lines += [f"FAULT: {fault}" for fault in judgement.faults]
        return lines
