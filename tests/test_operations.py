"""docs/operations.md, docs/architecture.md and the unit file say what the code does."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Final

from broker.counters import DROP_REASONS
from broker.event_log.plugin import NOT_LOGGED
from broker.server.command_fault import EXIT_BAD_CONFIGURATION, EXIT_FAILED
from broker.server.run import EXIT_TIMEOUT
from federation.counters import lost_messages
from federation.links.bridging.ends import DROP_REASONS as LINK_DROP_REASONS
from federation.stream.counters import DropReason, SkipReason, StreamCounters

ROOT: Final = Path(__file__).resolve().parent.parent
TEXT: Final = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> list[str]:
    """What stands in code marks in the first column of a section's tables."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def test_the_lines_of_the_log_are_those_of_the_code() -> None:
    sources = "\n".join(
        path.read_text(encoding="utf-8") for part in ("broker", "federation") for path in (ROOT / part).rglob("*.py")
    )
    lines = first_column(section("The log"))
    assert len(lines) > 20
    for line in lines:
        assert f'"{line}' in sources, line


def test_the_reasons_are_those_of_the_counters() -> None:
    named = first_column(section("When something is wrong"))
    reasons = [word.removeprefix("NODE.") for word in named if "_" in word and not word.startswith("STATUS_")]
    assert reasons
    for reason in reasons:
        assert reason in (*DROP_REASONS, *LINK_DROP_REASONS, *DropReason, *SkipReason), reason


def test_every_reason_for_a_lost_message_is_explained() -> None:
    named = [word for word in first_column(section("Why messages are dropped")) if word != "messages dropped"]
    lost = lost_messages({"NODE": StreamCounters()})
    assert sorted(named) == sorted([*DROP_REASONS, *LINK_DROP_REASONS, NOT_LOGGED, *lost])


def test_the_exit_statuses() -> None:
    statuses = [
        line.split("|")[1].strip()
        for line in section("Start, check, reload, stop").splitlines()
        if line.startswith("| ")
    ]
    assert statuses == ["exit status", "---", "0", str(EXIT_FAILED), str(EXIT_BAD_CONFIGURATION)]


def test_the_unit_fits_the_command() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "configs/gmqttd.service", encoding="utf-8")
    service = unit["Service"]
    assert service["ExecStart"].split()[1:3] == ["start", "-c"]
    assert "-HUP $MAINPID" in service["ExecReload"]
    assert service["RestartPreventExitStatus"] == str(EXIT_BAD_CONFIGURATION)
    assert float(service["TimeoutStopSec"]) > EXIT_TIMEOUT


def test_the_names_of_the_architecture_are_those_of_the_code() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    sources = "\n".join(
        path.read_text(encoding="utf-8") for part in ("broker", "federation") for path in (ROOT / part).rglob("*.py")
    )
    defined = set(re.findall(r"(?:def|class) (\w+)", sources))
    modules = {path.stem for part in ("broker", "federation") for path in (ROOT / part).rglob("*.py")}
    prose = text.partition("## The five doors")[2]
    words = [word.partition("(")[0] for word in re.findall(r"`([^`\n]+)`", prose)]
    names = [word for word in words if re.fullmatch(r"[\w/.]+", word) and re.search(r"[A-Z_./]", word)]
    assert len(names) > 20
    for name in names:
        last = re.split(r"[/.]", name.removesuffix(".py"))[-1]
        known = last in defined or last in modules or re.search(rf"\b{last}\b", sources) is not None
        assert known or (ROOT / name).exists() or name == "federation/links", name
