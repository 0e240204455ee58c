"""The log: each test gives it back as it was."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import structlog

from broker.config.settings import LogSettings
from broker.server.logging import setup_logging


@pytest.fixture(autouse=True)
def former_log() -> Iterator[None]:
    former = structlog.get_config()
    yield
    structlog.configure(**former)


@pytest.fixture
def log(former_log: None) -> io.StringIO:
    """The log as text."""
    stream = io.StringIO()
    setup_logging(LogSettings(), stream)
    return stream


@pytest.fixture
def json_log(former_log: None) -> io.StringIO:
    """The log with an object on each line."""
    stream = io.StringIO()
    setup_logging(LogSettings(format="json"), stream)
    return stream
