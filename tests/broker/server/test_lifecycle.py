"""Stop and reload of a node inside this process."""

from __future__ import annotations

import asyncio
import io
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.config.addresses import Address
from broker.config.settings import ApiSettings, Settings
from broker.config.settings_listeners import ApiListener, ListenerSettings, TlsSettings, WebsocketSettings
from broker.plugins import Plugin
from broker.server import lifecycle
from broker.server.lifecycle import Server
from broker.server.listener import LIMITS
from broker.server.shared_counts import SharedCounts
from broker.server.shared_figures import SharedFigures
from broker.server.start_error import StartError
from broker.server.worker import Worker
from broker.workers.shares import Place
from node_process import free_port
from waiting import DEADLINE


class Hanging(Plugin):
    """`leave` never ends."""

    async def leave(self) -> None:
        await asyncio.Event().wait()


class Failing(Plugin):
    async def leave(self) -> None:
        raise RuntimeError("the leave failed")


class Good(Plugin):
    is_stopped = False

    async def stop(self) -> None:
        self.is_stopped = True


async def test_a_plugin_that_hangs_or_fails_does_not_hold_up_the_stop(
    log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LEAVE_SECONDS_MAX", 0.01)
    server = Server(Settings(listeners=()))
    good = Good(server)
    server.plugins = [Hanging(server), Failing(server), good]
    async with asyncio.timeout(DEADLINE):
        await server.stop()
        await server.stop()
        await server.wait_stopped()
    assert good.is_stopped
    assert log.getvalue().count("not done in time") == 1
    assert log.getvalue().count("RuntimeError: the leave failed") == 1


class Announcing(Plugin):
    """Announces the address of the API, and keeps the tags that it finds at its start."""

    found: dict[str, str] | None = None

    def tags(self) -> dict[str, str]:
        assert self.server.api is not None
        return {"api": ",".join(self.server.api.grpc_addresses)}

    async def start(self) -> None:
        self.found = dict(self.server.tags)


async def test_plugins_announce_the_open_api_before_any_of_them_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "load_plugin", {"first": Announcing, "second": Plugin}.get)
    listener = ApiListener(Address("tcp", "127.0.0.1", 0))
    server = Server(
        Settings(listeners=(), api=ApiSettings(grpc=(listener,), http=()), plugin_order=("first", "second"))
    )
    await server.start()
    announcing = server.plugins[0]
    assert isinstance(announcing, Announcing)
    assert server.api is not None
    assert announcing.found == {"api": server.api.grpc_addresses[0]}
    assert not announcing.found["api"].endswith(":0")
    await server.stop()


async def test_a_reload_takes_mqtt_and_log_and_names_the_other_keys(log: io.StringIO) -> None:
    server = Server(Settings(listeners=()))
    former = server.settings
    changed = replace(
        former,
        mqtt=replace(former.mqtt, max_packet_size=1_000),
        log=replace(former.log, clients=False),
        pid_file="/run/other.pid",
    )
    for _ in range(2):  # until the restart each reload names the key
        assert await server.reload(changed) == ["pid_file"]
        assert server.settings.pid_file == former.pid_file
        assert server.broker.max_packet_size == 1_000
        assert server.broker.observer is None
    await server.reload(former)
    assert server.broker.observer is not None
    await server.stop()


async def test_a_reload_takes_limits_of_listeners_and_names_the_other_keys() -> None:
    """Each from the entry with its address, in whatever order they stand."""
    addresses = [Address("tcp", host, 0) for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3")]
    former = tuple(ListenerSettings(address, websocket=WebsocketSettings()) for address in addresses)
    server = Server(Settings(listeners=former))
    await server.start()
    limits: dict[str, Any] = {
        "allow_anonymous": True,
        "handshake_timeout": 1.0,
        **{name: 7 for name in LIMITS if name.startswith("max_")},
    }
    assert set(limits) == set(LIMITS)
    origins = WebsocketSettings(allowed_origins=("https://a",))
    changed = replace(
        server.settings,
        listeners=(
            replace(former[2], tls=TlsSettings(cert="a", key="b"), websocket=WebsocketSettings("/mqtt")),
            replace(former[0], websocket=origins, **limits),
            ListenerSettings(Address("tcp", "127.0.0.4", 0)),
        ),
    )
    for _ in range(2):  # until the restart each reload names the keys
        assert await server.reload(changed) == ["listeners", "listeners[2].tls", "listeners[2].websocket.path"]
    assert await server.reload(replace(changed, listeners=(changed.listeners[1], *former[1:]))) == []
    await server.stop()


class Reading(Plugin):
    """Reads a file at each reload; `fault` is raised there."""

    fault: Exception | None = None
    reloads = 0

    async def reload(self) -> None:
        self.reloads += 1
        if self.fault is not None:
            raise self.fault


async def test_a_reload_reaches_each_plugin(log: io.StringIO) -> None:
    """The fault of one is logged and keeps no other from reading its files."""
    server = Server(Settings(listeners=()))
    plugins = [Reading(server), Reading(server), Reading(server)]
    plugins[0].fault = StartError("plugins.reading.file: /etc/list is not there")
    plugins[1].fault = KeyError("a bug")
    server.plugins = list(plugins)
    assert await server.reload(server.settings) == []
    assert [plugin.reloads for plugin in plugins] == [1, 1, 1]
    assert "/etc/list is not there" in log.getvalue()
    assert "a bug" in log.getvalue()


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Watched(SharedCounts):
    """Of two workers, of which the other one reads its store until this one has asked twice.

    read  whether this worker had read its store when it said so
    seen  which ports were open when it asked
    """

    def __init__(self, *ports: int) -> None:
        super().__init__(2)
        self.server: Server | None = None
        self.ports = ports
        self.read = False
        self.seen: list[list[bool]] = []

    def has_loaded(self, index: int) -> None:
        assert self.server is not None
        self.read = self.server.broker.commits.journal is not None
        super().has_loaded(index)

    def is_loading(self) -> bool:
        self.seen.append([is_open(port) for port in self.ports])
        if len(self.seen) == 3:
            SharedCounts.has_loaded(self, 1)
        return super().is_loading()


async def test_a_worker_opens_neither_listeners_nor_api_before_all_have_read_their_stores(tmp_path: Path) -> None:
    """Another one may have the session of a client, and take what comes by the API."""
    ports = free_port(), free_port()
    mqtt, api = (Address("tcp", "127.0.0.1", port) for port in ports)
    counts = Watched(*ports)
    gossip, channel = socket.socketpair(), socket.socketpair()
    figures = SharedFigures(range(2))
    worker = Worker(Place(0, 2, False, {}, ""), str(tmp_path), gossip, {}, channel[0], counts, True, figures, 0.0)
    settings = Settings(
        listeners=(ListenerSettings(mqtt),), api=ApiSettings(http=(ApiListener(api),)), data_dir=str(tmp_path / "data")
    )
    server = counts.server = Server(settings, "", worker)
    try:
        async with asyncio.timeout(DEADLINE):
            await server.start()
        are_open = [is_open(port) for port in ports]
    finally:
        await server.stop()
        for sock in (*gossip, *channel):
            sock.close()
    assert counts.read
    assert counts.seen == [[False, False]] * 3
    assert are_open == [True, True]
