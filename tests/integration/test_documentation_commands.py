"""Each command of the README, of the first page and of the how-to pages, as a reader types it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from repository import ROOT
from walked_page import Command, File, Walk, can_walk, missing_line, page, steps_of

HOW_TO: Final = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/how-to").glob("*.md"))
WITHOUT_COMMANDS: Final = {
    "docs/how-to/kubernetes.md": "there is no cluster here; test_chart.py has the chart",
    "docs/how-to/home-automation.md": "files of other programs; test_home_automation.py has what was tried",
}
WALKED: Final = ["README.md", *(name for name in HOW_TO if name not in WITHOUT_COMMANDS)]
PROGRAMS: Final = ("mosquitto_sub", "curl", "openssl", "mosquitto")
HOSTS: Final = ("oslo.example.com", "old.example.com")
BUILD_SECONDS: Final = 1800
TYPED: Final = {"gmqttd passwd": "secret\n"}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", WALKED)
async def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    if reason := can_walk():
        pytest.skip(reason)
    if missing := [program for program in PROGRAMS if program in page(name) and shutil.which(program) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "configs").symlink_to(ROOT / "configs")
    async with Walk(folder, HOSTS, TYPED) as walk:
        await walk.page(page(name))


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 300)
async def test_the_first_page(tmp_path: Path) -> None:
    """In the checkout, as it says. What is built and downloaded first needs the network, which the walk does not have."""
    if reason := can_walk():
        pytest.skip(reason)
    build = [ROOT / "scripts/build_fast"]
    await asyncio.to_thread(subprocess.run, build, check=False, capture_output=True, timeout=BUILD_SECONDS)
    async with Walk(tmp_path / "reader", folder=ROOT) as walk:
        await walk.page(page("docs/index.md"))


def test_every_how_to_page_is_walked_or_says_why_not() -> None:
    for name in HOW_TO:
        commands = [step for step in steps_of(page(name)) if isinstance(step, Command)]
        assert bool(commands) != (name in WITHOUT_COMMANDS), name


def test_steps_of_a_page() -> None:
    text = (
        "Text\n\n    # a.yml\n    x: 1\n\n    y: 2\n\n    # b.sh\n    true\n\n    $ first\n\nText $ no\n\n"
        "    $ run \\\n        --long\n    one … three\n\n    two\n    $ next\n"
    )
    assert steps_of(text) == [
        *(File("a.yml", "x: 1\n\ny: 2\n"), File("b.sh", "true\n"), Command("first", [])),
        *(Command("run --long", ["one … three", "two"]), Command("next", [])),
    ]


@pytest.mark.parametrize(
    ("expected", "output", "missing"),
    [
        (["a  b", "…c"], "x\na b\nc\n", ""),
        (["…c", "a b"], "a b\nxc\n", "a b"),
        (["a"], "ab\n", "a"),
        (["a … d"], "a b c d", ""),
        (["…"], "", "…"),
        ([], "", ""),
    ],
)
def test_lines_come_in_their_order(expected: list[str], output: str, missing: str) -> None:
    assert missing_line(expected, output) == missing
