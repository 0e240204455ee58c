"""The processes of a measured broker, one or several, on free loopback ports; they are ended by their ids."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from mqtt_load import address, one_publish, open_client, read_packet, subscribe

ROOT: Final = Path(__file__).resolve().parent.parent
LOOPBACK: Final = "127.0.0.1"
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 5.0
LOG_TAIL_LINES: Final = 10
CERT: Final = "cert.pem"


class BenchFailed(Exception):
    """A measurement is not possible. The text gives the reason."""


def find_program(name: str) -> str | None:
    """The path of a program, or None. Debian installs brokers in /usr/sbin, which is not in every PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


class Ports:
    """Free ports for TCP and UDP, each returned once."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        for _ in range(1000):
            with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                tcp.bind((LOOPBACK, 0))
                port = int(tcp.getsockname()[1])
                try:
                    udp.bind((LOOPBACK, port))
                except OSError:
                    continue
            if port not in self._taken:
                self._taken.add(port)
                return port
        raise BenchFailed("no free port on loopback")


@dataclass(frozen=True)
class Server:
    """One process: its command and its ports. Those but mqtt are 0 for a broker without them.

    subscribers  where these connect, 0 for mqtt
    is_relay     it speaks no MQTT, and is ready when its port is open
    """

    name: str
    command: list[str]
    mqtt: int
    http: int = 0
    gossip: int = 0
    layered: int = 0
    metrics: int = 0
    subscribers: int = 0
    is_relay: bool = False


class Cluster:
    """The running processes of a broker. Publishers connect to the first node, subscribers to the last.

    helper  command of a process that runs meanwhile and is not measured
    later   a node that the generator starts and stops itself
    starts_together  no server is ready before the others run
    """

    def __init__(
        self,
        servers: list[Server],
        folder: Path,
        joins_late: bool = False,
        helper: Sequence[str] = (),
        later: Server | None = None,
        starts_together: bool = False,
    ) -> None:
        self.first = f"{LOOPBACK}:{servers[0].mqtt}"
        self.last = f"{LOOPBACK}:{servers[-1].subscribers or servers[-1].mqtt}"
        self.http = f"{LOOPBACK}:{servers[-1].http}"  # the last node's
        self.gossip = f"{LOOPBACK}:{servers[0].gossip}"  # the first node's
        self.layered = f"{LOOPBACK}:{servers[0].layered}"  # the first node's listener with the row's transport
        self.metrics = f"{LOOPBACK}:{servers[0].metrics}"
        self.cacert = str(folder / CERT)
        self.later = "" if later is None else f"--at {LOOPBACK}:{later.mqtt} -- {shlex.join(later.command)}"
        self._helper_command = helper
        self._helper: subprocess.Popen[bytes] | None = None
        self._servers = servers
        self._folder = folder
        self._starts_together = starts_together
        self._is_joined = len(servers) > 1 and not joins_late
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def __enter__(self) -> Cluster:
        try:
            if self._helper_command:
                self._helper = subprocess.Popen(
                    self._helper_command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                )
            for server in self._servers:
                with self._log(server).open("wb") as log:
                    # A session of its own: Ctrl-C ends the bench, and the bench ends its brokers.
                    process = subprocess.Popen(
                        server.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                    )
                self._processes.append(process)
                if not self._starts_together:
                    self._wait_until_ready(server)
            for server in self._servers if self._starts_together else ():
                self._wait_until_ready(server)
            if self._is_joined:
                self._wait_until_joined()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)  # RabbitMQ runs below a shell
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()
        if self._helper is not None:
            self._helper.terminate()
            self._helper.wait()
            self._helper = None

    def check_alive(self) -> None:
        for server, process in zip(self._servers, self._processes, strict=False):
            if process.poll() is not None:
                raise BenchFailed(f"{server.name} ended with {process.returncode}\n{self._log_tail(server)}")

    def _names(self) -> str:
        return " and ".join(server.name for server in self._servers)

    def _log(self, server: Server) -> Path:
        return self._folder / f"{server.name}.log"

    def _log_tail(self, server: Server) -> str:
        return "\n".join(self._log(server).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def _wait_until_ready(self, server: Server) -> None:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            self.check_alive()
            try:
                if server.is_relay:
                    socket.create_connection((LOOPBACK, server.mqtt)).close()
                else:
                    open_client((LOOPBACK, server.mqtt), f"ready-{server.mqtt}").close()
            except (SystemExit, OSError):
                time.sleep(0.05)
            else:
                return
        raise BenchFailed(f"{server.name} is not ready after {READY_SECONDS:.0f} s\n{self._log_tail(server)}")

    def _wait_until_joined(self) -> None:
        """Wait until each node with a REST API lists both as ALIVE and a message has passed."""
        until = time.monotonic() + READY_SECONDS
        while not all(count_alive(server.http) == len(self._servers) for server in self._servers if server.http):
            self.check_alive()
            if time.monotonic() > until:
                raise BenchFailed(f"{self._names()} do not list each other after {READY_SECONDS:.0f} s")
            time.sleep(0.1)
        if not message_comes_through(self.first, self.last, until):
            raise BenchFailed(f"no message passes between {self._names()} after {READY_SECONDS:.0f} s")


def count_alive(http: int) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{http}/v1/federation/members", timeout=5) as answer:
            members = json.load(answer).get("members", [])
    except (OSError, ValueError):
        return 0
    return sum(member.get("status") == "STATUS_ALIVE" for member in members)


def message_comes_through(publish_at: str, subscribe_at: str, until: float) -> bool:
    topic = "bench/ready"
    encoded, _ = one_publish(topic, 0, struct.pack("!d", until))
    subscriber = open_client(address(subscribe_at), "ready-subscriber")
    publisher = open_client(address(publish_at), "ready-publisher")
    with subscriber, publisher:
        subscribe(subscriber, topic, 0)
        subscriber.settimeout(0.2)
        while time.monotonic() < until:
            publisher.sendall(encoded)
            try:
                read_packet(subscriber)
            except TimeoutError:
                continue
            return True
    return False
