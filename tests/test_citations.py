"""Citations lead somewhere: pages, their sections, decisions, and modules that pages name.

The forms: `wire-gossip 4.1` and `wire-federation 3` (numbered sections of docs/wire-*.md), `decision 3` and
`docs/decisions/0003`, `docs/operations.md`, links of Markdown. The MQTT specifications are cited in brackets: a statement by
its name, [MQTT-3.1.2-24], a section or table with the version, [MQTT5 3.1.2.11], [MQTT3.1.1 table 3.1].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from repository import ROOT, is_generated, tracked_files

SUFFIXES: Final = (".py", ".md", ".toml", ".proto", ".yml", ".service", ".in", "")
WIRE_PAGES: Final = ("wire-gossip", "wire-federation", "wire-event-log")
# The history of the product names what is gone.
HISTORY: Final = ("docs/changelog.md",)
# What a page names as a place for something that is to come.
PLANNED: Final = frozenset({"federation/links"})

WIRE: Final = re.compile(r"\b(wire-[a-z]+)(?:\.md)? (\d+(?:\.\d+)*)((?:(?:,| and| to) \d+(?:\.\d+)*)*)")
BARE_SECTION: Final = re.compile(r"\bsections? (\d+(?:\.\d+)*)", re.IGNORECASE)
# Numbers of sections and tables without the specification. Two numbers in parentheses may be a call.
BARE_NUMBER: Final = re.compile(r"(?<!\w)\((\d(?:\.\d+){2,})\b|(?<!\[MQTT5 )(?<!\[MQTT3\.1\.1 )\b(table \d[.-]\d+)")
MQTT: Final = re.compile(r"\[MQTT[^\]]*\]?")
NUMBERS: Final = r"\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*"
# The specification writes one of its names as MQTT-3-8.3-4.
MQTT_FORM: Final = re.compile(
    rf"\[MQTT(?:-\d[.-]\d+\.\d+-\d+(?:(?:/|\.\.)\d+)*|(?:5|3\.1\.1|3\.1) (?:{NUMBERS}|table \d[.-]\d+))\]"
)
PAGE: Final = re.compile(r"(?<![\w/.}-])((?:[\w-]+/)+[\w.-]+\.md)\b")
DECISION: Final = re.compile(r"\bdecisions?(?:/| )(\d+)", re.IGNORECASE)
LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE: Final = re.compile(r"`([^`\s]+)`")
HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def sections(page: str) -> set[str]:
    """The numbers of a page's headings."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return {number for title in HEADING.findall(text) for number in re.findall(r"^(\d+(?:\.\d+)*)\.? ", title)}


def decisions() -> set[int]:
    return {int(path.name[:4]) for path in (ROOT / "docs/decisions").glob("[0-9][0-9][0-9][0-9]-*.md")}


def anchors(path: Path) -> set[str]:
    """As they are made of headings on the pages of a repository."""
    titles = HEADING.findall(path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def is_place(name: str) -> bool:
    """Whether a path in a page exists, from the root or inside of a package; `folder/module.Name.name` counts too."""
    folder, _, last = name.rstrip("/").rpartition("/")
    stem = last.partition(".")[0]
    names = (name.rstrip("/"), f"{folder}/{stem}.py", f"{folder}/{stem}")
    return any((ROOT / base / each).exists() for base in ("", "broker", "federation", "pipeline") for each in names)


def folders() -> set[str]:
    """First parts of paths that a page may name."""
    found = {name.partition("/")[0] for name in tracked_files() if "/" in name}
    inner = {
        path.name
        for package in ("broker", "federation", "pipeline")
        for path in (ROOT / package).iterdir()
        if path.is_dir()
    }
    return {name for name in found | inner if not name.startswith((".", "_"))}


def faults(name: str, text: str) -> Iterator[str]:
    """What in the text of the file `name` cites something that is not there."""
    is_page = name.endswith(".md")
    own_page = Path(name).stem if is_page and Path(name).stem in WIRE_PAGES else ""
    for page, first, more in WIRE.findall(text):
        if page not in WIRE_PAGES:
            yield f"{page} is no page of docs/"
            continue
        for number in (first, *re.findall(r"\d+(?:\.\d+)*", more)):
            if number not in sections(page):
                yield f"{page} has no section {number}"
    for number in BARE_SECTION.findall(text):
        if not own_page:
            yield f"section {number} of which page or specification? (wire-gossip {number}, [MQTT5 {number}])"
        elif number not in sections(own_page):
            yield f"{own_page} has no section {number}"
    if not is_page:
        for number, table in BARE_NUMBER.findall(text):
            yield f"{number or table} of which specification? ([MQTT5 {number or table}])"
    for citation in MQTT.findall(text):
        if not MQTT_FORM.fullmatch(citation):
            yield f"{citation} is neither of the form [MQTT-3.1.2-24] nor [MQTT5 3.1.2.11]"
    for path in PAGE.findall(text):
        if not any((base / path).is_file() for base in (ROOT, (ROOT / name).parent)):
            yield f"there is no {path}"
    for number in DECISION.findall(text):
        if int(number) not in decisions():
            yield f"there is no decision {number}"
    if is_page:
        yield from page_faults(name, text)


def page_faults(name: str, text: str) -> Iterator[str]:
    for path, anchor in LINK.findall(text):
        target = (ROOT / name).parent / path if path else ROOT / name
        if not target.exists():
            yield f"there is no {path}"
        elif anchor and anchor not in anchors(target):
            yield f"{path} has no heading #{anchor}"
    if name in HISTORY:
        return
    known = folders()
    for word in CODE.findall(text):
        is_path = re.fullmatch(r"[a-z_]+(?:/[A-Za-z_0-9.]+)+/?", word) is not None
        if is_path and word.partition("/")[0] in known and word not in PLANNED and not is_place(word):
            yield f"there is no {word}"


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("federation/x.py", "Rules (wire-gossip 6.6).", 0),
        ("federation/x.py", "Rules (wire-gossip 6.99 and 8.1).", 1),
        ("federation/x.py", "Rules (wire-gossip 6.1, 88 and 99).", 2),
        ("federation/x.py", "Rules (wire-serf 6).", 1),
        ("federation/x.py", "Rules of section 6.6", 1),
        ("broker/x.py", "PUBLISH (section 3.3) and sections 3.4, 3.5", 2),
        ("broker/x.py", "PUBLISH [MQTT5 3.3], [MQTT5 3.4 to 3.7, 3.9] [MQTT5 table 2-4] [MQTT3.1.1 table 3.1]", 0),
        ("broker/x.py", "[MQTT-3.3.1-9..11] [MQTT-3-8.3-4] [MQTT-3.3.2-15/17]", 0),
        ("broker/x.py", "[MQTT-3.3.1] [MQTT5 chapter 3] [MQTT 5 3.3] [MQTT-3.3.1-9", 4),
        ("broker/x.py", "unknown property (2.2.2.2), table 2-4; go_on(1.0)", 2),
        ("federation/x.py", "see docs/nothing.md and docs/operations.md", 1),
        ("federation/x.py", "(decision 3, docs/decisions/0003, decision 999)", 1),
        ("docs/x.md", "[a](operations.md#the-log) [b](operations.md#no-such-heading) [c](nothing.md)", 2),
        ("docs/x.md", "`federation/node.py` `stream/outbox.Outbox.add` `server/nothing.py` `v1/clients`", 1),
        ("docs/wire-gossip.md", "section 4.1 and section 40.1", 1),
    ],
)
def test_the_check_counts_faults(name: str, text: str, count: int) -> None:
    assert len(list(faults(name, text))) == count


def test_wire_pages_have_numbered_sections() -> None:
    for page in WIRE_PAGES:
        assert {"1", "2", "3", "4", "5"} <= sections(page)


def test_citations_lead_somewhere() -> None:
    this = Path(__file__).name
    found = []
    for name in tracked_files():
        path = ROOT / name
        if path.suffix not in SUFFIXES or path.name == this or is_generated(path):
            continue
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            found += [f"{name}: {fault}" for fault in faults(name, data.decode(errors="replace"))]
    assert not found, "\n".join(found)
