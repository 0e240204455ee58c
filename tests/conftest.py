"""For all tests: asyncio runs on uvloop, as in a node; what fails in tests/support shows its values."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest
import uvloop

SUPPORT = (
    "api_calls",
    "auth_plugin",
    "broker_world",
    "event_log_reader",
    "failing_files",
    "direct_peers",
    "federation_world",
    "go_broker",
    "mosquitto_process",
    "mqtt_client",
    "node_process",
    "go_stream_member",
    "stations",
)
pytest.register_assert_rewrite(*SUPPORT)

# JVMs of tests live for seconds: the code of the first compiler does, and one thread collects garbage.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, SHORT_LIVED_JVM)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop's transports and timers differ from asyncio's own in small ways that only real use shows."""
    return {"uvloop": uvloop.new_event_loop}
