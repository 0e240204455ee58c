"""Players of `scripts/chaos federation` with other people's clients: paho-mqtt and mosquitto."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from random import Random
from typing import Final

from client_library import PYTHON, SUPPORT, driver_environment
from ledger import Ledger, Receipts
from mosquitto_process import MosquittoSub
from players import STAY_SECONDS, Player, Stage

LINE_BYTES_MAX: Final = 2**20
PAUSE_SECONDS: Final = 0.5  # between two messages of mosquitto_pub, and before a mosquitto_sub starts again
PUB_SECONDS: Final = 20.0  # a mosquitto_pub that a node does not answer for so long ends


class PahoPlayer:
    """One process of paho_sessions.py. A subscriber without levels."""

    def __init__(
        self,
        stage: Stage,
        ports: Sequence[int],
        client_id: str,
        version: int,
        levels: Sequence[int] = (),
        rate: float = 0.0,
    ) -> None:
        self.receipts = Receipts(client_id, 2)
        topics = tuple(f"t/{client_id}/{qos}" for qos in levels)
        self.player = Player(client_id, topics, None if levels else self.receipts)
        self.subscribed = asyncio.Event()
        self.done = asyncio.Event()
        self.ledger: Ledger = stage.ledger
        for topic in topics:
            self.ledger.add_topic(topic)
        self._stage = stage
        options = {
            "client_id": client_id,
            "version": version,
            "ports": list(ports),
            "levels": list(levels),
            "rate": rate,
        }
        self._options = json.dumps(options)
        self._ports = list(ports)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(str(PYTHON), str(SUPPORT / "paho_sessions.py"), self._options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=driver_environment(),
            limit=LINE_BYTES_MAX,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        ledger = self.ledger
        while line := await self._process.stdout.readline():
            kind, *values = json.loads(line)
            if kind == "came":
                self.receipts.note(*values)
            elif kind == "sent":
                ledger.sent[values[0]] += 1
            elif kind == "acknowledged":
                ledger.acknowledged[values[0]].add(values[1])
            elif kind == "refused":
                ledger.refused[values[0]].add(values[1])
            elif kind == "served":
                self._stage.served(self.player, *values)
            elif kind == "subscribed":
                self.subscribed.set()
            else:
                self.done.set()

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def enough(self) -> None:
        self._tell("enough")

    async def roam(self, random: Random) -> None:
        while True:
            await asyncio.sleep(random.uniform(*STAY_SECONDS))
            self._tell(f"go {random.choice(self._ports)}")

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading


class MosquittoSubscriber:
    """mosquitto_sub with QoS 1. It connects to its node again by itself; where that refuses it, it ends, and starts at the next
    one. What it has of a QoS 2 exchange ends with it, so it asks for QoS 1."""

    def __init__(self, stage: Stage, ports: Sequence[int], client_id: str, version: int) -> None:
        self.receipts = Receipts(client_id, 1)
        self.player = Player(client_id, receipts=self.receipts)
        self.subscribed = asyncio.Event()
        self._stage = stage
        self._ports = list(ports)
        self._protocol = ("-V", "mqttv5", "-x", "7200") if version == 5 else ("-V", "mqttv311")
        self._sub: MosquittoSub | None = None
        self._running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                *(
                    "stdbuf",
                    "-oL",
                    "mosquitto_sub",
                    "-d",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    str(self._ports[0]),
                    *self._protocol,
                ),
                *("-i", self.player.client_id, "-c", "-q", "1", "-t", "t/#", "-k", "10"),
                *("-F", f"{MosquittoSub.MARK.decode()}%t %r x%x"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=LINE_BYTES_MAX,
            )
            try:
                assert process.stdout is not None
                while line := await process.stdout.readline():
                    self._said(line)
                await process.wait()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            self._ports.append(self._ports.pop(0))
            await asyncio.sleep(PAUSE_SECONDS)

    def _said(self, line: bytes) -> None:
        if line.startswith(MosquittoSub.MARK):
            topic, _, payload = line.removeprefix(MosquittoSub.MARK).split()
            self.receipts.note(topic.decode(), int(bytes.fromhex(payload[1:].decode())))
        elif b"received CONNACK (0)" in line:
            self._stage.served(self.player, self._ports[0], None)
        elif line.startswith(b"Subscribed"):
            self.subscribed.set()

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)


class MosquittoPublisher:
    """A mosquitto_pub for each message, of QoS 1, until it was acknowledged."""

    def __init__(self, stage: Stage, ports: Sequence[int], client_id: str) -> None:
        self.topic = f"t/{client_id}/1"
        self.player = Player(client_id, (self.topic,), is_durable=False)
        self.done = asyncio.Event()
        self.ledger: Ledger = stage.ledger
        self.ledger.add_topic(self.topic)
        self._stage = stage
        self._ports = list(ports)
        self._is_enough = False
        self._running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._running = asyncio.create_task(self._run())

    def enough(self) -> None:
        self._is_enough = True

    async def _run(self) -> None:
        while not self._is_enough:
            number = self.ledger.sent[self.topic]
            self.ledger.sent[self.topic] += 1
            while not await self._publish(number):
                self._ports.append(self._ports.pop(0))
            self.ledger.acknowledged[self.topic].add(number)
            await asyncio.sleep(PAUSE_SECONDS)
        self.done.set()

    async def _publish(self, number: int) -> bool:
        port = self._ports[0]
        process = await asyncio.create_subprocess_exec(
            *("mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-V", "mqttv5", "-q", "1"),
            *("-t", self.topic, "-m", str(number)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(PUB_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            return False
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode or output:  # a PUBACK with an error is only a warning
            await asyncio.sleep(PAUSE_SECONDS)
            return False
        self._stage.served(self.player, port, None)
        return True

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
