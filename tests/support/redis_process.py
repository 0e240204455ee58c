"""A redis-server on loopback, with a folder of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from broker.config.addresses import Address
from broker.config.settings import RedisSettings
from node_process import free_port
from waiting import DEADLINE, POLL_SECONDS

REDIS_SERVER: Final = shutil.which("redis-server")
REDIS_MISSING: Final = "redis-server (Debian package redis-server) is missing"


class RedisServer:
    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> RedisSettings:
        return RedisSettings(Address("tcp", "127.0.0.1", self.port))

    def start(self) -> None:
        """Return when it answers."""
        assert REDIS_SERVER is not None
        command = [REDIS_SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--appendonly", "yes", "--appendfsync", "always", "--save", "", *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + DEADLINE
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "redis.log").read_text()
            assert time.monotonic() < until, "redis-server does not answer"
            time.sleep(POLL_SECONDS)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9; nothing when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
