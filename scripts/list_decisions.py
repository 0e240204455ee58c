"""The page that lists the decisions. scripts/build_docs writes it to docs/decisions/index.md."""

from __future__ import annotations

from pathlib import Path

HEAD = """\
# Decisions

Why the product is as it is: what the question was, what was chosen, what else was possible, what follows.

"""


def decisions_page(root: Path) -> str:
    """One line for each decision, by its number and its title."""
    lines = []
    for file in sorted((root / "docs/decisions").glob("[0-9]*.md")):
        title = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        number, _, text = title.partition(". ")
        lines.append(f"{number}. [{text}]({file.name})\n")
    return HEAD + "".join(lines)
