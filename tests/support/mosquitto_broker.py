"""A mosquitto broker (Debian package mosquitto) as a process on 127.0.0.1. It is ended by its id."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from mqtt_client import MqttClient
from node_process import free_port
from waiting import DEADLINE, eventually

PROGRAM: Final = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


class MosquittoBroker:
    """`extra` are more lines of its configuration. With `persists` it keeps sessions over a restart."""

    def __init__(self, folder: Path, extra: str = "", persists: bool = False) -> None:
        self.port = free_port()
        self._config = folder / f"mosquitto-{self.port}.conf"
        self._log_path = folder / f"mosquitto-{self.port}.log"
        store = f"persistence true\npersistence_location {folder}/\n" if persists else "persistence false\n"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\nlog_type all\n{store}{extra}"
        )
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> MosquittoBroker:
        assert PROGRAM is not None
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                PROGRAM, "-c", str(self._config), stdout=log, stderr=log
            )
        await eventually(self._is_open, "mosquitto listens")
        return self

    async def _is_open(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self.log()
        try:
            (await MqttClient.open(self.port)).abort()
        except OSError:
            return False
        return True

    def log(self) -> str:
        return self._log_path.read_text("utf-8", "replace")

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.terminate()
            async with asyncio.timeout(DEADLINE):
                await process.wait()


StartMosquitto = Callable[..., Awaitable[MosquittoBroker]]  # with the arguments of MosquittoBroker behind the folder
