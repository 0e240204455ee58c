"""The number of workers of a node: by its settings, by the cores of the machine, and by the folders of earlier starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from broker.config.settings import WORKERS_MAX, Settings
from broker.server.named_files import folder_of, path_in
from broker.workers.shares import FOLDER_PREFIX


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def worker_count(workers: str) -> int:
    """Return the number of workers that `workers` of the file means."""
    return min(WORKERS_MAX, cores()) if workers == "auto" else int(workers)


def leaving_workers(settings: Settings, data_dir: str, count: int) -> list[int]:
    """Return the workers of earlier starts that this one does not have any more, and whose stores have sessions perhaps."""
    if settings.store_type != "sqlite" or not data_dir:
        return []
    found: list[int] = []
    for folder in Path(data_dir).glob(f"{FOLDER_PREFIX}*"):
        number = folder.name.removeprefix(FOLDER_PREFIX)
        if number.isdecimal() and int(number) >= count and folder.is_dir():
            found.append(int(number))
    return sorted(found)


def needs_supervisor(settings: Settings, config_file: str) -> bool:
    """Return whether the node has several processes: its own, or those of an earlier start."""
    count = worker_count(settings.workers)
    data_dir = path_in(folder_of(config_file), settings.data_dir) if settings.data_dir else ""
    return count > 1 or bool(leaving_workers(settings, data_dir, count))


def worker_warnings(settings: Settings) -> Iterator[str]:
    """Yield what a start has to say about `workers`."""
    count = worker_count(settings.workers)
    if count > cores():
        yield f"workers: {count} are more than the {cores()} cores that this node may use; each more takes time from the others"
