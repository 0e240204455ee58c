"""Clients of other people's MQTT libraries, each in a process of its own (driver.py says how they are called)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from repository import ROOT
from waiting import DEADLINE, stand_still

SUPPORT: Final = Path(__file__).parent
PACKAGES: Final = ROOT / "run" / "clients"  # scripts/setup --clients
PYTHON: Final = PACKAGES / "venv" / "bin" / "python"
LINE_BYTES_MAX: Final = 64 * 2**20


def missing_library(library: str) -> str:
    """Why the library cannot be run, "" when it can."""
    if library == "mqttjs":
        if shutil.which("node") is None:
            return "node (Debian package nodejs) is missing"
        found = (PACKAGES / "node_modules" / "mqtt").is_dir()
    else:
        found = any((PACKAGES / "venv").glob(f"lib/python*/site-packages/{'paho' if library == 'paho' else library}"))
    return "" if found else f"{library} is missing: scripts/setup --clients installs it"


def kafka_jars() -> list[str]:
    """Spark's Kafka source; none where scripts/setup --jars has not fetched it."""
    return [str(path) for path in sorted((PACKAGES / "jars").glob("*.jar"))]


def driver_environment() -> dict[str, str]:
    """Without the variable that keeps a driver from importing the module beside it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def driver_command(library: str) -> list[str]:
    if library == "mqttjs":
        return ["node", str(SUPPORT / "mqttjs_driver.cjs"), f"{PACKAGES}/"]
    return [str(PYTHON), str(SUPPORT / f"{library}_driver.py")]


@dataclass(frozen=True, slots=True)
class Received:
    """One message. `properties` have the names of driver files; {} before MQTT 5."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any]


class LibraryClient:
    """One client. `ended` has the library's words for the end of its connection."""

    def __init__(self, library: str, version: int, process: asyncio.subprocess.Process) -> None:
        self.library = library
        self.version = version
        self.process = process
        self.messages: asyncio.Queue[Received] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            value = json.loads(line)
            if "message" in value:
                message = value["message"]
                message["payload"] = base64.b64decode(message["payload"])
                self.messages.put_nowait(Received(**message))
            elif "ended" in value:
                self.ended.put_nowait(value["ended"])
            else:
                self._answers.put_nowait(value)
        self._answers.put_nowait({"error": "the driver has ended"})

    async def call(self, name: str, **arguments: object) -> Any:
        """Call the library; its answer. An AssertionError has the text of what it raised."""
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"call": name, **arguments}).encode() + b"\n")
        async with asyncio.timeout(DEADLINE):
            await stdin.drain()
            answer = await self._answers.get()
        assert "result" in answer, f"{self.library}, {name}: {answer}"
        return answer["result"]

    async def connect(
        self,
        port: int,
        client_id: str,
        *,
        clean: bool = True,
        keep_alive: int = 60,
        will: dict[str, object] | None = None,
        transport: str = "tcp",
        cafile: str = "",
        **properties: Any,
    ) -> bool | None:
        """Whether a session was present; None where the library does not tell, and in MQTT 3.1, which cannot.

        transport  tcp, tls, ws or wss; the last two with the path /mqtt
        cafile     the authority of the server's certificate
        """
        present: bool | None = await self.call(
            "connect",
            port=port,
            client_id=client_id,
            version=self.version,
            clean=clean,
            keep_alive=keep_alive,
            will=will,
            properties=properties,
            transport=transport,
            cafile=cafile,
        )
        return present if self.version > 3 else None

    async def subscribe(self, *filters: str, qos: int = 0, identifier: int = 0) -> None:
        """Every filter must be granted with this QoS."""
        granted = await self.call("subscribe", filters=filters, qos=qos, identifier=identifier)
        assert granted == [qos] * len(filters)

    async def unsubscribe(self, *filters: str) -> None:
        await self.call("unsubscribe", filters=filters)

    async def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, **properties: Any) -> None:
        encoded = base64.b64encode(payload).decode()
        await self.call("publish", topic=topic, payload=encoded, qos=qos, retain=retain, properties=properties)

    async def disconnect(self) -> None:
        await self.call("disconnect")

    async def message(self) -> Received:
        async with asyncio.timeout(DEADLINE):
            return await self.messages.get()

    async def stand_still(self) -> None:
        await stand_still(self.process.pid)

    async def stop(self, signal_number: int = signal.SIGKILL) -> None:
        """End the process without a word to the broker."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal_number)
        async with asyncio.timeout(DEADLINE):
            await self.process.wait()
            await self._reading


class Libraries:
    """Starts clients; ends them with the test."""

    def __init__(self, skip: Callable[[str], object]) -> None:
        self._skip = skip
        self._clients: list[LibraryClient] = []

    async def start(self, library: str, version: int) -> LibraryClient:
        """A client that is not connected yet. Skips the test where the library is missing."""
        missing = missing_library(library)
        if missing:
            self._skip(missing)
        process = await asyncio.create_subprocess_exec(
            *driver_command(library),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=driver_environment(),
            limit=LINE_BYTES_MAX,
        )
        client = LibraryClient(library, version, process)
        self._clients.append(client)
        return client

    async def connected(self, library: str, version: int, port: int, client_id: str, **options: Any) -> LibraryClient:
        client = await self.start(library, version)
        await client.connect(port, client_id, **options)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.stop()
