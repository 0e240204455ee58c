"""An MQTT client with a session that takes the logs by a subscription to `$stream/`, and goes from node to node.

  replay_reader.py --ports PORT,… --dir FOLDER

It acknowledges messages when they are on disk. The offset that each message comes with tells it those that it has already:
records of a log come in their order. The file REPEATED has lines of `Repeated`.

The file CONNECTIONS has a line for each CONNECT and CONNACK (`replay_sessions.Entry`). Where its session is not there, because
the node that has it is away, it begins a new one, and soon goes to that node.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from batch_files import BatchFiles
from broker.codec import properties as props
from broker.codec.packets import Properties, PubAck, Publish, SubAck, Subscribe, SubscribeFilter
from messages import TOPIC_PREFIX
from mqtt_client import MqttClient
from replay_sessions import Entry, Kind, Sessions

CLIENT_ID: Final = "replay"
RECEIVE_MAXIMUM: Final = 100
"""Messages that are on their way at the same time, as many as `mqtt.max_inflight` allows: no more may come again with a
connection."""
SESSION: Final[Properties] = {props.SESSION_EXPIRY_INTERVAL: 3600, props.RECEIVE_MAXIMUM: RECEIVE_MAXIMUM}
REPEATED: Final = "repeated"
CONNECTIONS: Final = "connections"
BATCH: Final = RECEIVE_MAXIMUM // 2  # the next half comes while one is written
BATCH_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 20.0
STAY_SECONDS: Final = 6.0  # at one node
FORMER_SECONDS: Final = 3.0  # until the reader goes to the node that has its former session
PAUSE_SECONDS: Final = 0.2


class Repeated(NamedTuple):
    """What came again in a batch of a connection.

    connection  the time of its CONNACK
    again       messages that the reader had before
    beyond      those of them that are before the position, or while a former session may come before the start; or that came in
                this connection
    limit       of `beyond` in the connection: the windows of the session and of former ones
    """

    connection: float
    again: int
    beyond: int
    limit: int


class Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batches = BatchFiles(folder)
        self.sessions = Sessions()
        for entry in entries_of(folder):
            self.sessions.note(entry)

    def _note(self, entry: Entry) -> None:
        self.sessions.note(entry)
        append(self._folder / CONNECTIONS, entry)

    async def read(self, port: int) -> None:
        """Until the connection ends, or has lasted for its seconds."""
        sessions, position = self.sessions, self._batches.position()
        async with asyncio.timeout(ANSWER_SECONDS):
            self._note(Entry(Kind.CONNECT, port, time.monotonic()))
            client = await MqttClient.connect(
                port, CLIENT_ID, clean_start=False, properties=SESSION, acknowledges=False, keep_alive=10
            )
            assert client.connack is not None
            is_there, start = client.connack.session_present, sessions.start
            if not is_there:
                start = sessions.start_without_session(json.dumps(position) if position else "earliest")
            begin = time.monotonic()
            self._note(Entry(Kind.PRESENT if is_there else Kind.ANEW, port, begin, start))
            filters = [SubscribeFilter(f"$stream/{TOPIC_PREFIX}#".encode(), 1)]
            client.send(Subscribe(1, filters, {props.USER_PROPERTY: [("from", start)]}))
            assert (await client.answer(SubAck)).reason_codes == [1]
        until = begin + (FORMER_SECONDS if sessions.lost else STAY_SECONDS)
        limit = RECEIVE_MAXIMUM * (1 + len(sessions.lost))
        came = offsets_of(start) if sessions.lost else dict(position)
        try:
            while time.monotonic() < until and not client.closed.is_set():
                messages = await next_messages(client)
                if messages:
                    beyond = repeated(messages, came)
                    again = keep(messages, position, self._batches)
                    if again:
                        append(self._folder / REPEATED, Repeated(begin, again, beyond, limit))
                    client.send(*(PubAck(message.packet_id) for message in messages))
                elif not client.closed.is_set():
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await client.ping()
            if not client.closed.is_set():
                self._note(Entry(Kind.SERVED, port, time.monotonic()))
        finally:
            await client.close()


def append(file: Path, line: Entry | Repeated) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def lines_of(file: Path) -> list[list[Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def entries_of(folder: Path) -> list[Entry]:
    return [Entry(Kind(kind), *rest) for kind, *rest in lines_of(folder / CONNECTIONS)]


def repeated_of(folder: Path) -> list[Repeated]:
    return [Repeated(*line) for line in lines_of(folder / REPEATED)]


async def next_messages(client: MqttClient) -> list[Publish]:
    found: list[Publish] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BATCH_SECONDS):
            while len(found) < BATCH:
                found.append(await client.messages.get())
    return found


def offsets_of(start: str) -> dict[str, int]:
    """By node, of a start that names them."""
    found: dict[str, int] = json.loads(start) if start.startswith("{") else {}
    return found


def place_of(message: Publish) -> tuple[str, int]:
    """The node and the offset of the record."""
    user = dict(props.get_user_properties(props.publish_properties_to_dict(message.properties)))
    return user["node"], int(user["offset"])


def repeated(messages: list[Publish], came: dict[str, int]) -> int:
    """How many are not behind `came`, the next offset of each node, which goes on behind them."""
    count = 0
    for node, offset in map(place_of, messages):
        if offset < came.get(node, 0):
            count += 1
        else:
            came[node] = offset + 1
    return count


def keep(messages: list[Publish], position: dict[str, int], batches: BatchFiles) -> int:
    """Write those that are new. Returns how many others there are."""
    rows = []
    for message in messages:
        node, offset = place_of(message)
        if offset >= position.get(node, 0):
            rows.append({"node": node, "offset": offset, "topic": message.topic.decode(), "payload": message.payload})
            position[node] = offset + 1
    if rows:
        pq.write_table(pa.Table.from_pylist(rows), batches.place())
        batches.commit(position)
    return len(messages) - len(rows)


async def run(ports: list[int], folder: Path) -> None:
    reader = Reader(folder)
    connections = sum(entry.kind == Kind.CONNECT for entry in entries_of(folder))
    turns = itertools.count(connections)  # a reader that was killed comes to another node, too
    while True:
        port = next(iter(reader.sessions.lost), None) or ports[next(turns) % len(ports)]
        try:
            await reader.read(port)
        except (OSError, TimeoutError, AssertionError) as error:  # a node is away, or ends
            print(f"{port}: {type(error).__name__} {error}", file=sys.stderr, flush=True)
        await asyncio.sleep(PAUSE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(run([int(port) for port in options.ports.split(",")], options.dir))


if __name__ == "__main__":
    main()
