"""For all tests: asyncio runs on the loop of a node; what fails in tests/support shows its values; examples of Hypothesis may
take their time."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import broker.message
from broker.server.node_loop import NodeLoop

pytest.register_assert_rewrite(*(path.stem for path in (Path(__file__).parent / "support").glob("*.py")))

from effort import effort  # noqa: E402
from node_process import LANE_WORKERS  # noqa: E402

# How long an example takes depends on what else runs on the machine.
settings.register_profile(
    "any time", max_examples=effort(200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any time")

# JVMs of tests live for seconds: the code of the first compiler does, one thread collects garbage, and the classes of Spark are
# not verified again.
SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, SHORT_LIVED_JVM)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop's transports and timers differ from asyncio's own in small ways that only real use shows."""
    return {"uvloop": NodeLoop}


def pytest_collection_finish(session: pytest.Session) -> None:
    """The garbage collector does not look through thousands of tests each time: they stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The compiled form has no tests that change constants inside of compiled code, and nodes with workers none that look into
    their one process."""
    for item in items if LANE_WORKERS > 1 else ():
        if mark := item.get_closest_marker("one_process"):
            item.add_marker(pytest.mark.skip(reason=f"needs one process: {mark.args[0]}"))
    if broker.message.__file__.endswith(".py"):
        return
    apart = [item for item in items if item.get_closest_marker("interpreted")]
    config.hook.pytest_deselected(items=apart)
    items[:] = [item for item in items if not item.get_closest_marker("interpreted")]
