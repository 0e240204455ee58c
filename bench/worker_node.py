"""A node with workers, and the worker that has accepted a connection."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from mqtt_load import log_in, open_socket

DEADLINE: Final = 60.0
CONFIG: Final = """\
workers: {workers}
listeners: [{{address: "127.0.0.1:{port}"}}]
log: {{level: info, format: text, clients: false}}
"""


class Node:
    """One node, without a store unless `data_dir` names its folder. `processes` are those that serve clients."""

    def __init__(self, gmqttd: Path, folder: Path, workers: int, data_dir: str = "") -> None:
        self.workers = workers
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        config, log = folder / f"{workers}.yml", folder / f"{workers}.log"
        store = f"data_dir: {data_dir}\n" if data_dir else ""
        config.write_text(CONFIG.format(workers=workers, port=self.port) + store)
        with log.open("wb") as output:
            command = [str(gmqttd), "start", "-c", str(config)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        until = time.monotonic() + DEADLINE
        streams = workers * (workers - 1)
        while "serving" not in log.read_text() or log.read_text().count("event stream to a node") < streams:
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the node with {workers} workers does not start:\n{log.read_text()}")
            time.sleep(0.05)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.processes = [int(child) for child in children] if workers > 1 else [self.process.pid]

    def worker_of(self, sock: socket.socket, wait: bool = False) -> int:
        """The index in `processes` of the one that has accepted the connection. wait: none has yet, perhaps."""
        until = time.monotonic() + (DEADLINE if wait else 0.0)
        while (found := self._worker_with(sock)) < 0:
            if time.monotonic() >= until:
                raise SystemExit("no worker has the connection")
        return found

    def _worker_with(self, sock: socket.socket) -> int:
        """-1 for none."""
        ours = f"0100007F:{sock.getsockname()[1]:04X}"
        server = f"0100007F:{self.port:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines():
            fields = line.split()
            if fields[1:3] == [server, ours]:
                wanted = f"socket:[{fields[9]}]"
                for index, process in enumerate(self.processes):
                    for file in os.scandir(f"/proc/{process}/fd"):
                        with contextlib.suppress(OSError):
                            if os.readlink(file.path) == wanted:
                                return index
        return -1

    def client(self, name: str, worker: int) -> socket.socket:
        """A client at the worker with this index."""
        while True:
            sock = open_socket(("127.0.0.1", self.port), name)
            log_in(sock, name)
            if self.worker_of(sock) == worker:
                return sock
            sock.close()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
