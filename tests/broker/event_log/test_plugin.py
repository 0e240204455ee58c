"""The address that other nodes are told of, and the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.addresses import Address
from broker.config.settings import Settings
from broker.event_log.plugin import EventLogPlugin, log_addr
from broker.server.host import Host
from event_log_reader import MakeLog, read_all


@pytest.mark.parametrize(
    ("listening", "advertise", "told"),
    [
        (["127.0.0.1:18084"], None, "127.0.0.1:18084"),
        (["unix:///run/api.sock", "0.0.0.0:18084", "10.0.0.9:2"], None, "10.0.0.5:18084"),
        (["[::1]:18084"], None, "[::1]:18084"),
        (["127.0.0.1:18084"], Address("tcp", "192.0.2.1", 0), "192.0.2.1:18084"),
        (["127.0.0.1:18084"], Address("tcp", "", 99), "10.0.0.5:99"),
    ],
)
def test_the_log_address_is_that_of_the_api(listening: list[str], advertise: Address | None, told: str) -> None:
    assert log_addr(listening, advertise, ["8.8.8.8", "10.0.0.5"]) == (told, None)


def test_a_node_without_a_tcp_api_tells_none() -> None:
    found, warning = log_addr(["unix:///run/api.sock"], None, [])
    assert found == ""
    assert "api.grpc has no TCP address" in (warning or "")


def test_a_machine_without_a_private_address_is_warned_of() -> None:
    found, warning = log_addr([":18084"], None, [])
    assert found == "127.0.0.1:18084"
    assert "only nodes on this machine" in (warning or "")


async def test_metrics_tell_what_is_missing_and_how_far_readers_are(make_log: MakeLog, tmp_path: Path) -> None:
    log = await make_log(segment_bytes=2**16)
    for number in range(30):  # 12 in each segment
        log.append(b"t", b"%04d" % number * 1250)
        await log.flush()
    await log.hold("g", "q", log.log_id, 4)
    plugin = EventLogPlugin(Host(Settings()))
    plugin.log = log
    sorted((tmp_path / "log").glob("*.log"))[1].unlink()
    assert len(await read_all(log)) == 18
    found = {metric.name: metric.samples for metric in plugin.metrics()}
    assert found["gmqtt_event_log_missing_records"] == {(): 12}
    assert found["gmqtt_event_log_hold_lag_records"] == {("g", "q"): 26}
