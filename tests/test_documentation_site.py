"""The documentation as a site: it is built without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
README_LINES_MAX: Final = 120
LINE_MAX: Final = 128
TABLE_LINE_MAX: Final = 160
LOADED: Final = re.compile(
    r"""<(?:script|img|source|iframe)[^>]*\ssrc="?(https?:)?//|"""
    r"""<link[^>]*rel="?(?:stylesheet|preload|icon)"?[^>]*href="?(?:https?:)?//"""
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_is_built_and_loads_nothing() -> None:
    done = subprocess.run([ROOT / "scripts/build_site"], capture_output=True, text=True, check=False, timeout=500)
    if "No matching distribution" in done.stderr or "NewConnectionError" in done.stderr:
        pytest.skip("no package index here")
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((ROOT / "run/site/html").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        assert not LOADED.search(page.read_text()), page


def test_each_page_is_in_the_navigation() -> None:
    listed = re.findall(r": ([a-z/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path for folder in ("", "how-to") for path in (ROOT / "docs" / folder).glob("*.md")]
    assert sorted(listed) == sorted(
        [*(path.relative_to(ROOT / "docs").as_posix() for path in pages), "decisions/index.md"]
    )


def test_each_page_is_linked_from_another() -> None:
    pages = {path.resolve() for path in (ROOT / "docs").rglob("*.md")}
    linked = {
        (path.parent / target).resolve()
        for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages]
        for target in re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", path.read_text())
        if (path.parent / target).resolve() != path
    }
    assert sorted(pages - linked) == []


def test_pages_name_values_and_the_image_of_the_chart() -> None:
    chart = ROOT / "deploy/helm/gmqttd"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    version = yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"]
    text = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    settings = re.findall(r"--set ([A-Za-z.]+)=", text)
    assert settings
    for setting in settings:
        found = values
        for key in setting.split("."):
            assert key in found, setting
            found = found[key]
    assert set(re.findall(r"REGISTRY/gmqttd:(\S+)", text)) == {version}


def test_the_readme_fits_two_screens() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= README_LINES_MAX
    assert max(map(len, lines)) <= LINE_MAX


def test_no_line_of_a_table_is_wide_in_what_a_reader_begins_with() -> None:
    for path in [ROOT / "docs/index.md", *(ROOT / "docs/how-to").glob("*.md")]:
        wide = [line for line in path.read_text().splitlines() if line.startswith("|") and len(line) > TABLE_LINE_MAX]
        assert wide == [], path
