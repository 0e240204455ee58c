"""The settings of one worker among those of its node."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from broker.config.loader import load
from broker.config.settings import Settings
from broker.workers.shares import Place, memory_share, share, worker_folder, worker_name, worker_settings

MEMBERS = "workers: 4\nplugin_order: [federation]\nplugins: {"
PORTS = {0: 40_000, 1: 40_001, 2: 40_002}


def settings_of(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "node.yml"
    file.write_text(text)
    loaded = load(str(file))
    assert loaded.settings is not None, loaded.faults
    return loaded.settings


def place(index: int, count: int = 3, is_member: bool = False) -> Place:
    return Place(index, count, is_member, PORTS, "YWJjZGVmZ2hpamtsbW5vcA==")


@given(st.integers(0, 100_000), st.integers(1, 64))
def test_the_parts_of_a_limit_are_the_limit(limit: int, count: int) -> None:
    parts = [share(limit, count, index) for index in range(count)]
    assert max(parts) - min(parts) <= 1
    assert sum(parts) == limit or (0 < limit < count and parts == [1] * count)


@pytest.mark.parametrize(
    ("text", "count", "part"),
    [("0", 4, "0"), ("60%", 4, "15%"), ("3%", 4, "1%"), ("1GiB", 4, "256MiB"), ("100MiB", 4, "64MiB")],
)
def test_memory_is_divided(text: str, count: int, part: str) -> None:
    assert memory_share(text, count) == part


def test_worker_0_has_what_the_node_has_without_workers(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "data_dir: data\nworkers: 3\nplugins: {federation: {node_name: n}}\n")
    first = worker_settings(settings, place(0))
    assert first.data_dir == settings.data_dir
    assert first.plugins.federation.node_name == settings.plugins.event_log.node_name
    second = worker_settings(settings, place(1))
    assert second.data_dir == worker_folder("data", 1) != "data"
    assert second.plugins.federation.node_name == worker_name(settings.plugins.event_log.node_name, 1)


def test_workers_of_a_member_have_ports_of_their_own(tmp_path: Path) -> None:
    config = {
        "workers": 3,
        "plugin_order": ["federation", "event_log", "prometheus"],
        "plugins": {
            "federation": {
                "node_name": "berlin",
                "fed_addr": "10.0.0.1:8901",
                "gossip_addr": "10.0.0.1:8902",
                "retry_join": ["10.0.0.2"],
            },
            "event_log": {"dir": "/var/lib/x/log"},
        },
    }
    settings = settings_of(tmp_path, yaml.safe_dump(config))
    told = [worker_settings(settings, place(index, is_member=True)) for index in range(3)]
    federations = [one.plugins.federation for one in told]
    assert [one.node_name for one in federations] == ["berlin", "berlin/1", "berlin/2"]
    assert len({str(address) for one in federations for address in (one.fed_addr, one.gossip_addr)}) == 6
    for one in federations:
        joined = {str(address) for address in one.retry_join}
        assert joined == {"10.0.0.2:8902"} | {str(other.gossip_addr) for other in federations if other is not one}
    assert len({one.plugins.event_log.dir for one in told}) == 3
    assert ["prometheus" in one.plugin_order for one in told] == [True, False, False]


@pytest.mark.parametrize(("text", "ports"), [("10.0.0.1:8084", [8084, 8094]), ("10.0.0.1:0", [0, 0])])
def test_readers_of_a_log_are_told_the_port_of_its_worker(tmp_path: Path, text: str, ports: list[int]) -> None:
    settings = settings_of(tmp_path, f'plugins: {{event_log: {{advertise_addr: "{text}"}}}}')
    addresses = [worker_settings(settings, place(index)).plugins.event_log.advertise_addr for index in range(2)]
    assert [(each.host, each.port) for each in addresses if each] == [("10.0.0.1", port) for port in ports]


@pytest.mark.parametrize(
    ("text", "count", "bytes_of_each"),
    [
        # segment, retention, hold
        ("", 4, (64 << 20, 2560 << 20, 5 << 30)),
        ("retention: {bytes: 0}, hold: {max_bytes: 0}", 4, (64 << 20, 0, 0)),
        ("retention: {bytes: 128MiB}, hold: {max_bytes: 128MiB}", 4, (16 << 20, 32 << 20, 32 << 20)),
        ("segment_bytes: 64KiB, retention: {bytes: 128KiB}, hold: {max_bytes: 128KiB}", 16, (65536, 131072, 131072)),
    ],
)
def test_the_disk_of_a_log_is_that_of_the_node(
    tmp_path: Path, text: str, count: int, bytes_of_each: tuple[int, ...]
) -> None:
    settings = settings_of(tmp_path, f"plugins: {{event_log: {{{text}}}}}")
    for index in range(count):
        at = Place(index, count, False, dict.fromkeys(range(count), 1), place(0).gossip_key)
        log = worker_settings(settings, at).plugins.event_log
        assert (log.segment_bytes, log.retention.bytes, log.hold.max_bytes) == bytes_of_each
        assert log.staged_bytes == settings.plugins.event_log.staged_bytes  # a pipeline stages at one worker
        assert not list(log.broken_rules())


def test_a_worker_that_leaves_serves_nobody(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "workers: 2\n")
    assert worker_settings(settings, place(2, 2)).listeners == ()
    assert worker_settings(settings, place(1, 2)).listeners == settings.listeners


def test_each_worker_has_a_port_of_a_listener_of_its_own(tmp_path: Path) -> None:
    text = "workers: 3\nlisteners: [{address: ':1883'}, {address: '127.0.0.1:1900', each_worker: true}]"
    settings = settings_of(tmp_path, text)
    ports = [[one.address.port for one in worker_settings(settings, place(index, 3)).listeners] for index in range(3)]
    assert ports == [[1883, 1900], [1883, 1910], [1883, 1920]]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("workers: 0", "workers"),
        ("workers: -2", "workers"),
        ("workers: many", "workers"),
        ("workers: 2.5", "workers"),
        ("workers: 65", "workers"),
        ('workers: 2\nlisteners: [{address: "127.0.0.1:0"}]', "listeners[0].address"),
        (
            'workers: 2\nlisteners: [{address: ":1893"}, {address: ":1883", each_worker: true}]',
            "listeners[1].address: worker 1 has port 1893",
        ),
        ('listeners: [{address: "unix:///tmp/mqtt", each_worker: true}]', "listeners[0].each_worker"),
        (
            f"{MEMBERS}federation: {{gossip_addr: '127.0.0.1:65510'}}}}",
            "gossip_addr: worker 3 has port 65540",
        ),
        (
            f"{MEMBERS}federation: {{fed_addr: ':8902', gossip_addr: ':8912'}}}}",
            "plugins.federation.fed_addr: worker 1",
        ),
        (
            "workers: 3\nplugin_order: [event_log]\nplugins: {event_log: {dir: log}}\n"
            "api: {grpc: [{address: 'tcp://127.0.0.1:65516'}]}",
            "api.grpc[0].address: worker 2 has port 65536",
        ),
    ],
)
def test_bad_input_names_the_key(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "node.yml"
    file.write_text(text)
    loaded = load(str(file))
    assert loaded.settings is None
    assert any(named in str(fault) for fault in loaded.faults)


@pytest.mark.parametrize("text", ["workers: 4", "workers: auto", "workers: '4'"])
def test_good_input(tmp_path: Path, text: str) -> None:
    assert settings_of(tmp_path, text).workers in ("4", "auto")
