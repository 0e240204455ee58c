"""Network namespaces with a wire between them that loses and delays packets, and nodes in them. Needs root.

The wire is this process: it reads IP packets from the TUN device in one namespace and writes them to that of their destination.
So the kernel needs no netem.
"""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import os
import random
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any, Final

from node_process import Node
from waiting import DEADLINE

IP: Final = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
TUN: Final = Path("/dev/net/tun")
TUNSETIFF: Final = 0x400454CA  # linux/if_tun.h
IFF_TUN_NO_PI: Final = 0x1001  # IP packets without a header of the device
PACKET_BYTES_MAX: Final = 65_536
DESTINATION_END: Final = 19  # last byte of an IPv4 header's destination
ADDRESSES: Final = tuple(f"10.213.0.{number}" for number in range(1, 10))
NAMESPACES_MISSING: Final = "network namespaces need root, ip (Debian package iproute2) and /dev/net/tun"


def namespaces_missing() -> bool:
    return os.geteuid() != 0 or IP is None or not TUN.exists()


def _ip(*arguments: str) -> None:
    assert IP is not None
    done = subprocess.run([IP, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


class LossyNetwork:
    """namespaces  their names; the address of each is in ADDRESSES
    passed, lost  number of packets
    """

    def __init__(self, loss: float, delay: float, count: int = 2) -> None:
        """`count` namespaces. `loss` of the packets are lost, the others come after `delay` seconds, in each direction."""
        self.namespaces = [f"gmqttd-{os.getpid()}-{number}" for number in range(count)]
        self.passed = 0
        self.lost = 0
        self._cut: set[tuple[int, int]] = set()  # (from, to)
        self._loss = loss
        self._delay = delay
        self._random = random.Random(1)
        self._made: list[str] = []
        self._devices: list[int] = []

    def start(self) -> None:
        for number, namespace in enumerate(self.namespaces):
            _ip("netns", "add", namespace)
            self._made.append(namespace)
            name = f"gmq{os.getpid()}n{number}"
            device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
            self._devices.append(device)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN_NO_PI))
            _ip("link", "set", name, "netns", namespace)
            _ip("-n", namespace, "address", "add", f"{ADDRESSES[number]}/24", "dev", name)
            _ip("-n", namespace, "link", "set", name, "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
        loop = asyncio.get_running_loop()
        for number, device in enumerate(self._devices):
            loop.add_reader(device, self._carry, number, device, loop)

    def cut(self, sources: list[int], targets: list[int]) -> None:
        """From now on nothing from these namespaces reaches those; the way back is open."""
        self._cut.update((source, target) for source in sources for target in targets)

    def split(self, *sides: list[int]) -> None:
        """From now on namespaces of different sides do not reach each other."""
        for side in sides:
            self.cut(side, [number for other in sides if other is not side for number in other])

    def heal(self) -> None:
        self._cut.clear()

    def _carry(self, source: int, device: int, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                packet = os.read(device, PACKET_BYTES_MAX)
            except OSError:  # no more, or the device is gone
                return
            target = packet[DESTINATION_END] - 1  # of 10.213.0.N; what the kernel sends to groups goes nowhere
            if packet[0] >> 4 != 4 or target >= len(self._devices):
                continue
            if (source, target) in self._cut or self._random.random() < self._loss:
                self.lost += 1
            else:
                loop.call_later(self._delay, self._arrive, self._devices[target], packet)

    def _arrive(self, there: int, packet: bytes) -> None:
        try:
            if there in self._devices:
                os.write(there, packet)
                self.passed += 1
        except OSError:  # its queue is full
            self.lost += 1

    def stop(self) -> None:
        loop = asyncio.get_running_loop()
        devices, self._devices = self._devices, []
        for device in devices:
            loop.remove_reader(device)
            os.close(device)
        for namespace in self._made:
            _ip("netns", "delete", namespace)


class NamespaceNode(Node):
    """A node in a network namespace. Clients and REST reach it over Unix sockets, which have no namespace."""

    namespace = ""

    def __init__(self, directory: Path, name: str, overrides: dict[str, Any]) -> None:
        super().__init__(directory, name, overrides)
        self._socket = directory / f"{name}.sock"
        self._api = directory / f"{name}.api"
        self.config["listeners"].append({"address": f"unix://{self._socket}"})
        grpc = f"unix://{directory}/{name}.grpc"
        self.config["api"] = {
            "grpc": [{"address": grpc}],
            "http": [{"address": f"unix://{self._api}", "map": grpc}],
        }

    @property
    def entry(self) -> Path:
        return self._socket

    def program(self) -> list[str]:
        assert IP is not None
        return [IP, "netns", "exec", self.namespace, *super().program()]

    def serves(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended:\n{self.log()}"
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self._socket)) == 0

    async def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return await asyncio.to_thread(self._request, method, path, body)

    def _request(self, method: str, path: str, body: object) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("localhost", timeout=DEADLINE)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.settimeout(DEADLINE)
            connection.sock.connect(str(self._api))
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or "null")
        finally:
            connection.close()


def node_in(of: str) -> type[NamespaceNode]:
    """The kind of a node in this namespace."""

    class _Node(NamespaceNode):
        namespace = of

    return _Node
