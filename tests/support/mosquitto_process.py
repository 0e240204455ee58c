"""The clients mosquitto_sub and mosquitto_pub (Debian package mosquitto-clients) as processes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from typing import Final

from waiting import DEADLINE, eventually

MOSQUITTO_MISSING: Final = shutil.which("mosquitto_sub") is None or shutil.which("mosquitto_pub") is None


class MosquittoSub:
    """A running mosquitto_sub. Messages come as (topic, payload, retained)."""

    MARK: Final = b"=message= "

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.messages: asyncio.Queue[tuple[str, bytes, bool]] = asyncio.Queue()
        self.texts: list[str] = []  # the output of the extra format, one for each message
        self.subscribed = asyncio.Event()
        self.output: list[bytes] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            if line.startswith(self.MARK):
                topic, retained, payload, text = line.removeprefix(self.MARK).rstrip(b"\n").split(b" ", 3)
                self.texts.append(text.decode())
                self.messages.put_nowait((topic.decode(), bytes.fromhex(payload[1:].decode()), retained == b"1"))
            else:
                self.output.append(line)
                if line.startswith(b"Subscribed"):
                    self.subscribed.set()

    async def message(self, seconds: float = DEADLINE) -> tuple[str, bytes, bool]:
        async with asyncio.timeout(seconds):
            return await self.messages.get()

    async def said(self, text: bytes) -> None:
        """Wait until it has printed this line."""
        await eventually(lambda: any(text in line for line in self.output), f"mosquitto_sub says {text!r}")

    async def payloads(self, count: int, seconds: float = DEADLINE) -> list[bytes]:
        async with asyncio.timeout(seconds):
            return [(await self.messages.get())[1] for _ in range(count)]

    async def stop(self, signal_number: int = signal.SIGTERM) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal_number)
        async with asyncio.timeout(DEADLINE):
            await self.process.wait()
            await self._reading


class Mosquitto:
    """Starts mosquitto clients of 127.0.0.1; ends them with the test."""

    def __init__(self) -> None:
        self._subs: list[MosquittoSub] = []

    async def sub(
        self, port: int, *arguments: str, version: str = "mqttv5", wait: bool = True, form: str = ""
    ) -> MosquittoSub:
        """Start mosquitto_sub. Returns when the subscription is acknowledged. `form` extends its output format."""
        process = await asyncio.create_subprocess_exec(
            *("stdbuf", "-oL", "mosquitto_sub", "-d", "-h", "127.0.0.1", "-p", str(port), "-V", version),
            *("-F", f"{MosquittoSub.MARK.decode()}%t %r x%x {form}", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=64 * 2**20,
        )
        sub = MosquittoSub(process)
        self._subs.append(sub)
        if wait:
            await eventually(
                lambda: sub.subscribed.is_set() or process.returncode is not None,
                f"mosquitto_sub is subscribed, it said {sub.output}",
            )
            assert sub.subscribed.is_set(), sub.output
        return sub

    async def pub(
        self, port: int, *arguments: str, version: str = "mqttv5", stdin: bytes = b"", refused: str = ""
    ) -> None:
        """Run mosquitto_pub, which must succeed; or fail and say `refused`."""
        await self._run("mosquitto_pub", port, *arguments, version=version, stdin=stdin, refused=refused)

    async def request(self, port: int, *arguments: str, version: str = "mqttv5") -> bytes:
        """Run mosquitto_rr, which must succeed; what it prints, which is the response."""
        return await self._run("mosquitto_rr", port, *arguments, version=version)

    async def _run(
        self, program: str, port: int, *arguments: str, version: str, stdin: bytes = b"", refused: str = ""
    ) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(program, "-h", "127.0.0.1", "-p", str(port), "-V", version, *arguments),
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(DEADLINE):
                output, _ = await process.communicate(stdin or None)
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        assert (process.returncode != 0) == bool(refused), output
        assert refused in output.decode(), output
        return output

    async def close(self) -> None:
        for sub in self._subs:
            await sub.stop(signal.SIGKILL)
