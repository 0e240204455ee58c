"""The limit of open files: raised, with a reserved part."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker.config.settings import MqttSettings
from broker.server.open_files import connections_max, few_files_warning


def test_the_limit_is_raised_to_the_hard_limit() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 700))\n"
        "from broker.server.open_files import raise_file_limit as r; print(r(), r())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "700 700\n"


@pytest.mark.parametrize(
    ("file_limit", "clients"), [(10, 1), (60, 13), (1024, 736), (4096, 3552), (1_000_000, 999_456)]
)
def test_some_files_are_reserved(file_limit: int, clients: int) -> None:
    assert connections_max(file_limit) == clients


@pytest.mark.parametrize(
    ("wanted", "file_limit", "workers", "words"),
    [
        (0, 1024, 1, ["1024 files", "736 clients", "LimitNOFILE"]),
        (0, 4096, 1, []),
        (500, 1024, 1, []),
        (50_000, 4096, 1, ["mqtt.max_connections is 50000", "4096 files", "3552 clients"]),
        (2944, 1024, 4, []),
        (2945, 1024, 4, ["mqtt.max_connections is 2945", "4 workers", "1024 files", "736 clients"]),
    ],
)
def test_the_warning_of_too_few_files(wanted: int, file_limit: int, workers: int, words: list[str]) -> None:
    text = few_files_warning(MqttSettings(max_connections=wanted), file_limit, workers)
    assert bool(text) == bool(words)
    for word in words:
        assert word in text
