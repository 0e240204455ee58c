"""The logs that a run of `scripts/chaos jobs` reads: fixed by a seed, so that two runs have the same batches.

Devices send JSON with a number; some payloads do not parse, some numbers leave their usual range. The second node falls
behind in the middle third: its messages there are late.
"""

from __future__ import annotations

import json
from random import Random
from typing import Final, NamedTuple

from sparkplug_messages import DOUBLE, metric, payload

DEVICES: Final = 40
NODES: Final = 2
BEGIN_NS: Final = 1_795_341_600_000_000_000  # 2026-11-22 10:00:00 UTC
SECONDS: Final = 600  # from the first message to the last one
BEHIND_SPEED: Final = 0.5  # of the second node's clock in the middle third
BROKEN: Final = 0.02  # part of payloads that are no JSON
SPIKE: Final = 0.001
SPIKE_VALUES: Final = 6


class JobMessage(NamedTuple):
    topic: str
    payload: bytes
    client_id: str
    time_ns: int


def time_of(number: int, count: int, node: int) -> int:
    """When a node takes a message, in whole microseconds as a block keeps it. Times of a node never step back."""
    third = count // 3
    position = float(number)
    if node and third <= number < 2 * third:
        position = third + (number - third) * BEHIND_SPEED
    return BEGIN_NS + round(position / count * SECONDS * 1e6) * 1000


def job_logs(seed: int, count: int, devices: int = DEVICES, spike: float = SPIKE) -> list[list[JobMessage]]:
    """The messages of each node in order; a device is at one node. `spike`: part of messages that begin one."""
    random = Random(seed)
    logs: list[list[JobMessage]] = [[] for _ in range(NODES)]
    spikes = [0] * devices  # values that are left of a spike
    for number in range(count):
        device = random.randrange(devices)
        node = device % NODES
        if not spikes[device] and random.random() < spike:
            spikes[device] = SPIKE_VALUES
        value = round(20.0 + random.random() + (50.0 if spikes[device] else 0.0), 3)
        spikes[device] = max(0, spikes[device] - 1)
        payload = json.dumps({"t": value, "n": number}).encode()
        if random.random() < BROKEN:
            payload = payload[:-1]
        topic = f"plant/hall{device % 4}/device{device}"
        logs[node].append(JobMessage(topic, payload, f"device{device}", time_of(number, count, node)))
    return logs


LINES: Final = 6  # edge nodes of Sparkplug
LINE_PART: Final = 0.3  # of the messages
REBIRTH: Final = 0.05  # part of an edge node's messages
LINE_METRICS: Final = {"speed": 0.0, "count": 0.5}  # name -> the value, less the number of the message in its log


def decode_logs(seed: int, count: int) -> list[list[JobMessage]]:
    """As `job_logs`, with messages of edge nodes between them: each birth gives the metrics other aliases, data have the alias
    alone. The value is the number of the message in its log, and what LINE_METRICS adds."""
    random = Random(f"{seed} lines")
    logs: list[list[JobMessage]] = []
    for node, messages in enumerate(job_logs(seed, count)):
        aliases: dict[int, dict[str, int]] = {}  # of the edge nodes at this node
        log: list[JobMessage] = []
        for message in messages:
            line = random.randrange(LINES // NODES) * NODES + node
            if random.random() >= LINE_PART:
                log.append(message)
                continue
            if line not in aliases or random.random() < REBIRTH:
                aliases[line] = dict(zip(LINE_METRICS, random.sample(range(100), len(LINE_METRICS)), strict=True))
                metrics = [
                    metric(name, alias, DOUBLE, double_value=len(log) + LINE_METRICS[name])
                    for name, alias in aliases[line].items()
                ]
                kind = "NBIRTH"
            else:
                name = random.choice(list(LINE_METRICS))
                metrics = [metric(alias=aliases[line][name], double_value=len(log) + LINE_METRICS[name])]
                kind = "NDATA"
            topic = f"spBv1.0/plant/{kind}/line{line}"
            log.append(message._replace(topic=topic, payload=payload(*metrics), client_id=f"line{line}"))
        logs.append(log)
    return logs
