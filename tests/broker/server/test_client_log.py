"""Clients that connect, disconnect or are refused, as lines of the log; how many lines a second."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from broker.config.addresses import parse_address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings
from broker.config.settings_mqtt import MqttSettings
from broker.server.bounded_log import LINES_MAX, ClientLog
from broker.server.host import Host
from broker.server.listener import Listener
from broker.server.shared_counts import SharedCounts
from broker.server.shared_figures import SharedFigures
from broker.server.worker import Worker
from broker.session.connection import Connection
from broker.workers.shares import Place


def lines(json_log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in json_log.getvalue().splitlines()]


def test_the_fields_of_the_lines(json_log: io.StringIO) -> None:
    log = ClientLog(lambda: 0.0, "info")
    log.client_connected("c", "::1:5", 5, "user", 60)
    log.client_disconnected("c", "::1:5", "keep alive timeout")
    log.client_refused("d", "::1:6", "root", "wrong password")
    log.subscription_refused("c", b"$stream/x/a/\xc3\xa9", "no start")
    connected, disconnected, refused, not_subscribed = lines(json_log)
    for line in (connected, disconnected, refused, not_subscribed):
        assert (line.pop("level"), line.pop("part")) == ("info", "client")
        del line["time"]
    assert connected == {
        "event": "connected",
        "client_id": "c",
        "addr": "::1:5",
        "version": 5,
        "username": "user",
        "keep_alive": 60,
    }
    assert disconnected == {
        "event": "disconnected",
        "client_id": "c",
        "addr": "::1:5",
        "reason": "keep alive timeout",
    }
    assert refused == {
        "event": "refused",
        "client_id": "d",
        "addr": "::1:6",
        "username": "root",
        "reason": "wrong password",
    }
    assert not_subscribed == {
        "event": "subscription refused",
        "client_id": "c",
        "filter": "$stream/x/a/é",
        "reason": "no start",
    }


def test_the_lines_of_a_second_are_bounded_and_the_others_counted(json_log: io.StringIO) -> None:
    now = 100.0
    log = ClientLog(lambda: now, "info")
    for number in range(LINES_MAX + 7):
        log.client_refused(str(number), "", "", "")
    assert [line["client_id"] for line in lines(json_log)] == [str(number) for number in range(LINES_MAX)]
    now = 101.0
    for number in range(2):
        log.client_refused(f"later {number}", "", "", "")
    assert [line.get("left_out_before") for line in lines(json_log)[LINES_MAX:]] == [7, None]


def test_all_lines_are_written_at_debug(json_log: io.StringIO) -> None:
    log = ClientLog(lambda: 100.0, "debug")
    for number in range(2 * LINES_MAX):
        log.client_refused(str(number), "", "", "")
    assert len(lines(json_log)) == 2 * LINES_MAX


class Shell:
    """The shell of a connection that was accepted."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport: asyncio.Transport | None = transport
        self.listener = Listener(ListenerSettings(parse_address("127.0.0.1:1883")), "listeners[0]", 0.0)
        self.counted_address = ""
        self.connection: Connection | None = None

    def abort(self) -> None:
        """There is no socket."""


async def test_a_client_above_max_connections_is_named_by_its_address(json_log: io.StringIO) -> None:
    host = Host(Settings(mqtt=MqttSettings(max_connections=1)))
    host.broker.add_observer(ClientLog(host.now, "info"))
    shells = [Shell(asyncio.Transport({"peername": ("::1", port)})) for port in (40000, 40001)]
    assert [host.admit(shell) for shell in shells] == [True, False]
    (line,) = lines(json_log)
    assert line["event"] == "refused"
    assert line["addr"] == "[::1]:40001"
    assert line["reason"] == "as many connections as max_connections allows"
    host.turns.stop()


@pytest.mark.parametrize(
    ("wanted", "possible", "of_other_worker", "reasons"),
    [
        (0, 2, 500, ["", "", "open files"]),
        (502, 3, 500, ["", "", "max_connections"]),
        (502, 1, 500, ["", "open files"]),
        (0, 2, 0, ["", "", "open files"]),
    ],
)
async def test_open_files_are_those_of_one_worker_and_max_connections_that_of_all(
    json_log: io.StringIO, tmp_path: Path, wanted: int, possible: int, of_other_worker: int, reasons: list[str]
) -> None:
    counts = SharedCounts(2)
    counts.set(1, of_other_worker)
    sockets = socket.socketpair()
    place = Place(0, 2, False, {}, "")
    worker = Worker(place, str(tmp_path), sockets, {}, sockets[0], counts, False, SharedFigures(range(2)), 0.0)
    host = Host(Settings(mqtt=MqttSettings(max_connections=wanted)), worker=worker)
    host.connections_possible = possible
    host.broker.add_observer(ClientLog(host.now, "info"))
    for number, reason in enumerate(reasons):
        assert host.admit(Shell(asyncio.Transport({"peername": ("::1", number)}))) == (not reason)
        assert not reason or reason in lines(json_log)[-1]["reason"]
    host.turns.stop()
    for one in sockets:
        one.close()
