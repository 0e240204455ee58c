#!/usr/bin/env python3
"""Closed-loop load of device gateways: from message to message another topic and another length.

Each of --clients publishers sends for DEVICES devices of one site, JSON of 40 to 250 bytes to `site/N/device/D/telemetry`. One
subscriber for each site takes `site/N/#`, one more takes `site/#`: each message is delivered twice. With --mqtt5 each message
has a user property. Arguments and result are those of mqtt_load.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import time
from typing import Final

from mqtt_load import (
    MQTT5,
    MQTT311,
    Publisher,
    Subscriber,
    address,
    finish,
    open_layered_client,
    packet,
    parse_arguments,
    subscribe,
    throughput,
    utf8,
    varint,
)
from mqtt_transports import Stream

DEVICES: Final = 100
CYCLE: Final = 14  # messages of each device before they repeat; a cycle is 1,400 messages
JSON_BYTES: Final = (40, 250)
USER_PROPERTY: Final = b"\x26" + utf8("unit") + utf8("celsius")
PROPERTIES: Final = {MQTT311: b"", MQTT5: varint(len(USER_PROPERTY)) + USER_PROPERTY}


def telemetry(draw: random.Random, device: int) -> bytes:
    size = draw.randint(*JSON_BYTES)
    text = b'{"device":%d,"celsius":%.2f,"note":"' % (device, draw.uniform(-20.0, 80.0))
    return text + b"x" * max(0, size - len(text) - 2) + b'"}'


class FleetPublisher(Publisher):
    """`Publisher` with a cycle of encoded messages; of each block the packets and the places of their identifiers."""

    def __init__(self, sock: Stream, topic: str, qos: int, block: int, version: int, seed: int) -> None:
        super().__init__(sock, topic, qos, b"", block, version)
        draw = random.Random(seed)
        devices = [device for _ in range(CYCLE) for device in draw.sample(range(DEVICES), DEVICES)]
        self._blocks: list[tuple[bytes, list[int]]] = []
        self._at = 0
        for first in range(0, len(devices), block):
            encoded, places = b"", []
            for device in devices[first : first + block]:
                name = utf8(f"{topic}/device/{device}/telemetry")
                places.append(0)
                body = name + (b"\0\0" if qos else b"") + PROPERTIES[version] + telemetry(draw, device)
                head = len(packet(0x30, body)) - len(body)
                places[-1] = len(encoded) + head + len(name)
                encoded += packet(0x30 | qos << 1, body)
            self._blocks.append((encoded, places))

    def blocks(self, n: int) -> bytes:
        """The next block; `n` is its size. A last block that is smaller is cut."""
        encoded, places = self._blocks[self._at]
        self._at = (self._at + 1) % len(self._blocks)
        if n < len(places):
            encoded = encoded[: self._start_of(encoded, n)]
        if not self.qos:
            return encoded
        out = bytearray(encoded)
        for at in places[:n]:
            struct.pack_into("!H", out, at, self.next_id)
            self.next_id = self.next_id % 65535 + 1
        return bytes(out)

    @staticmethod
    def _start_of(encoded: bytes, number: int) -> int:
        at = 0
        for _ in range(number):
            length, body = remaining(encoded, at)
            at = body + length
        return at


def remaining(data: bytes, at: int) -> tuple[int, int]:
    """(Remaining Length, position behind it) of a packet below 16 kB. -1 where its first bytes are not all there."""
    if at + 3 > len(data):
        return -1, at
    low = data[at + 1]
    if low < 128:
        return low, at + 2
    return low & 127 | data[at + 2] << 7, at + 3


class FleetSubscriber(Subscriber):
    """`Subscriber` that walks over packets of any length."""

    def take(self, data: bytes) -> int:
        data = self.rest + data
        size = len(data)
        acks = bytearray()
        at = count = 0
        while True:
            length, body = remaining(data, at)
            if length < 0 or body + length > size:
                break
            if self.qos:
                id_at = body + 2 + (data[body] << 8 | data[body + 1])
                acks += b"\x40\x02" + data[id_at : id_at + 2]
            at = body + length
            count += 1
        self.rest = data[at:]
        self.received += count
        if acks:
            self.out += acks
            self.flush()
        return count


def set_up(args: argparse.Namespace) -> tuple[list[Publisher], list[Subscriber]]:
    tag = str(os.getpid())
    sites = [f"{tag}/site/{number}" for number in range(args.clients)]
    pubs: list[Publisher] = []
    subs: list[Subscriber] = []
    for number, topic_filter in enumerate([*(f"{site}/#" for site in sites), f"{tag}/site/#"]):
        sock = open_layered_client(args, address(args.sub), f"sub-{tag}-{number}", not args.durable)
        subscribe(sock, topic_filter, args.qos, args.version)
        subs.append(FleetSubscriber(sock, 1, args.qos, 0))
    time.sleep(args.settle)
    for number, site in enumerate(sites):
        sock = open_layered_client(args, address(args.pub), f"pub-{tag}-{number}")
        pubs.append(FleetPublisher(sock, site, args.qos, args.block, args.version, number))
    for client in pubs + subs:
        client.sock.setblocking(False)
    return pubs, subs


def main() -> int:
    args = parse_arguments(__doc__)
    args.topology = "fleet"
    pubs, subs = set_up(args)
    result = throughput(args, pubs, subs)
    return finish(json.dumps(result), pubs, subs, result["lost"])


if __name__ == "__main__":
    raise SystemExit(main())
