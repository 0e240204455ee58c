"""Nodes with the plugin `auth`, and logins."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from broker.codec.packets import ConnAck, Connect

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import MqttClient


def passwd(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker", "passwd", *arguments],
        input=stdin,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def with_auth(**keys: Any) -> dict[str, Any]:
    return {"plugin_order": ["auth"], "plugins": {"auth": keys}}


def port_of(server: Server) -> int:
    return int(server.listeners.addresses[0].rpartition(":")[2])


async def connack_of(client: MqttClient, username: str | None, password: bytes | None, **fields: Any) -> ConnAck:
    client.send(Connect("c", client.version, username=username, password=password, **fields))
    return await client.answer(ConnAck)
