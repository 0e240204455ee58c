"""Anonymous memory of processes: what the page cache does not share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mqtt_load import process_tree


def anonymous_bytes(pids: Sequence[int]) -> int:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1]) * 1024
    return total


def tree_bytes(pid: int, name: str = "") -> int:
    """Of a process and its descendants, those of one program where `name` gives its name. One that ends meanwhile is 0."""
    total = 0
    for each in process_tree(pid):
        try:
            if not name or Path(f"/proc/{each}/comm").read_text().startswith(name):
                total += anonymous_bytes([each])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


@contextmanager
def peaks(figures: Mapping[str, Callable[[], int]], pause: float) -> Iterator[dict[str, int]]:
    """The highest value of each figure meanwhile, which is taken every `pause` seconds."""
    found = {name: measure() for name, measure in figures.items()}
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(pause):
            for name, measure in figures.items():
                found[name] = max(found[name], measure())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
