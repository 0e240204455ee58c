"""The same acl_file, judged by a real mosquitto and by our rules: publishing and reading, for many clients and topics."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from broker.auth.acl_file import parse_acl_file
from broker.auth.acl_filters import PUBLISH, READ
from broker.authorization import ALLOW
from broker.codec.packets import ConnAck, Connect, PubAck, Publish
from mosquitto_broker import StartMosquitto
from mqtt_client import MqttClient

# A client that publishes everything: mosquitto has no way around its rules.
WRITER: Final = "user writer\ntopic write #\ntopic write $own/#\n"
# No name begins with $: there we are stricter (test_acl_rules.py).
USERS: Final = ("", "alice", "bob", "a/b", "%c", "al+ice")
CLIENT_IDS: Final = ("c1", "c2", "x/y", "c#", "%u")
NAMES: Final = ("a", "b", "alice", "c1", "$own", "x", "y", "")


def random_file(rng: random.Random) -> str:
    """Rules of a few users and patterns, in any order."""
    lines = []
    for _ in range(rng.randint(3, 12)):
        levels = rng.choices(["a", "b", "+", "%u", "%c", "x-%u", "alice", "$own", "x"], k=rng.randint(1, 3))
        if rng.random() < 0.3:
            levels.append("#")
        access = rng.choice(["read ", "write ", "readwrite ", "deny ", ""])
        kind = rng.choice(["topic", "topic", "pattern"])
        if kind == "topic":
            levels = [level for level in levels if "%" not in level] or ["a"]
        lines.append(f"{kind} {access}{'/'.join(levels)}")
        if rng.random() < 0.3:
            lines.append(f"user {rng.choice([user for user in USERS if user])}")
    return "\n".join([*lines, WRITER])


async def connected(port: int, client_id: str, username: str) -> MqttClient:
    client = await MqttClient.open(port)
    client.send(Connect(client_id, 5, username=username or None))
    client.connack = await client.answer(ConnAck)
    assert client.connack.reason_code == 0
    return client


async def what_mosquitto_allows(port: int, username: str, client_id: str, topics: list[str]) -> set[tuple[str, int]]:
    """(topic, READ or PUBLISH)."""
    allowed: set[tuple[str, int]] = set()
    client, writer = await connected(port, client_id, username), await connected(port, "the-writer", "writer")
    await client.subscribe("#", "$own/#")
    for topic in topics:
        writer.send(Publish(topic.encode(), b"of the writer", 1, packet_id=1))
        assert (await writer.answer(PubAck)).reason_code < 0x80
    await client.ping()
    while not client.messages.empty():
        allowed.add((client.messages.get_nowait().topic.decode(), READ))
    for topic in topics:
        client.send(Publish(topic.encode(), b"of the client", 1, packet_id=1))
        if (await client.answer(PubAck)).reason_code < 0x80:
            allowed.add((topic, PUBLISH))
    await client.close()
    await writer.close()
    return allowed


@pytest.mark.parametrize("seed", range(8))
async def test_mosquitto_judges_the_same_file_alike(tmp_path: Path, start_mosquitto: StartMosquitto, seed: int) -> None:
    rng = random.Random(seed)
    acl = random_file(rng)
    rules = parse_acl_file(acl.encode()).rules
    every_topic = [
        "/".join(names) for count in (1, 2, 3) for names in product(NAMES, repeat=count) if names[0] or count > 1
    ]
    (tmp_path / "acl").write_text(acl)
    mosquitto = await start_mosquitto(f"acl_file {tmp_path / 'acl'}\n")
    for username, client_id in rng.sample(list(product(USERS, CLIENT_IDS)), 8):
        topics = [topic for topic in rng.sample(every_topic, 60) if topic[:1] != "$" or topic.startswith("$own/")]
        found = await what_mosquitto_allows(mosquitto.port, username, client_id, topics)
        ours = {
            (topic, wanted)
            for topic in topics
            for wanted in (READ, PUBLISH)
            if rules.judge(topic.encode(), wanted, username, client_id) is ALLOW
        }
        assert ours == found, f"user {username!r}, client id {client_id!r}, file:\n{acl}"
