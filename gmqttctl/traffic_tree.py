"""The traffic of topics, summed up by prefix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Branch:
    """All topics with one prefix."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.topics = 0
        self.branches: dict[str, Branch] = {}


def tree_rows(topics: Iterable[Mapping[str, Any]], depth: int) -> list[dict[str, Any]]:
    """Rows {name, level, messages, bytes, topics} of the tree of TopicTraffic in JSON, in the order in which it is drawn: the
    busiest branch first, each before its own branches, `depth` levels of topics deep."""
    root = Branch()
    for topic in topics:
        levels = topic["topic_name"].split("/")
        branch = root
        for level in levels[:depth]:
            branch = branch.branches.setdefault(level, Branch())
            branch.messages += int(topic["messages"])
            branch.bytes += int(topic["bytes"])
            branch.topics += 1
    return _rows(root, 0)


def _rows(branch: Branch, level: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, inner in sorted(branch.branches.items(), key=lambda item: (-item[1].messages, item[0])):
        row = {"name": name, "level": level, "messages": inner.messages, "bytes": inner.bytes, "topics": inner.topics}
        rows += [row, *_rows(inner, level + 1)]
    return rows
