"""An MQTT client with a session that takes the logs by a subscription to `$stream/`, and goes from node to node.

  replay_reader.py --ports PORT,… --dir FOLDER

It acknowledges messages when they are on disk. The offset that each message comes with tells it those that it has already:
records of a log come in their order. The file REPEATED has lines of a connection and how many such messages it brought.

Where its session is not there, because the node that has it is away, it begins a new one with the offsets that it has. The file
START has the start that it asked for last: the same SUBSCRIBE again goes on where the session was.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import uuid
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from batch_files import BatchFiles
from broker.codec import properties as props
from broker.codec.packets import Properties, PubAck, Publish, SubAck, Subscribe, SubscribeFilter
from messages import TOPIC_PREFIX
from mqtt_client import MqttClient

CLIENT_ID: Final = "replay"
RECEIVE_MAXIMUM: Final = 100
"""Messages that are on their way at the same time, as many as `mqtt.max_inflight` allows: no more may come again with a
connection."""
SESSION: Final[Properties] = {props.SESSION_EXPIRY_INTERVAL: 3600, props.RECEIVE_MAXIMUM: RECEIVE_MAXIMUM}
REPEATED: Final = "repeated"
START: Final = "start"
BATCH: Final = RECEIVE_MAXIMUM // 2  # the next half comes while one is written
BATCH_SECONDS: Final = 0.5
ANSWER_SECONDS: Final = 20.0
STAY_SECONDS: Final = 20.0  # at one node
PAUSE_SECONDS: Final = 0.2


def start_of(folder: Path, position: dict[str, int], is_there: bool) -> str:
    """The User Property `from` of SUBSCRIBE. `is_there`: whether the session is."""
    file = folder / START
    if not (is_there and file.exists()):
        file.write_text(json.dumps(position) if position else "earliest")
    return file.read_text()


async def read(port: int, batches: BatchFiles, folder: Path) -> None:
    """Until the connection ends, or has lasted for STAY_SECONDS."""
    async with asyncio.timeout(ANSWER_SECONDS):
        client = await MqttClient.connect(
            port, CLIENT_ID, clean_start=False, properties=SESSION, acknowledges=False, keep_alive=10
        )
        assert client.connack is not None
        position = batches.position()
        start = start_of(folder, position, client.connack.session_present)
        filters = [SubscribeFilter(f"$stream/{TOPIC_PREFIX}#".encode(), 1)]
        client.send(Subscribe(1, filters, {props.USER_PROPERTY: [("from", start)]}))
        assert (await client.answer(SubAck)).reason_codes == [1]
    until = asyncio.get_running_loop().time() + STAY_SECONDS
    connection = uuid.uuid4().hex
    try:
        while asyncio.get_running_loop().time() < until and not client.closed.is_set():
            messages = await next_messages(client)
            if messages:
                again = keep(messages, position, batches)
                if again:
                    with (folder / REPEATED).open("a") as lines:
                        lines.write(f"{connection} {again}\n")
                client.send(*(PubAck(message.packet_id) for message in messages))
            elif not client.closed.is_set():
                async with asyncio.timeout(ANSWER_SECONDS):
                    await client.ping()
    finally:
        await client.close()


async def next_messages(client: MqttClient) -> list[Publish]:
    found: list[Publish] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BATCH_SECONDS):
            while len(found) < BATCH:
                found.append(await client.messages.get())
    return found


def keep(messages: list[Publish], position: dict[str, int], batches: BatchFiles) -> int:
    """Write those that are new. Returns how many others there are."""
    rows = []
    for message in messages:
        user = dict(props.get_user_properties(props.publish_properties_to_dict(message.properties)))
        node, offset = user["node"], int(user["offset"])
        if offset >= position.get(node, 0):
            rows.append({"node": node, "offset": offset, "topic": message.topic.decode(), "payload": message.payload})
            position[node] = offset + 1
    if rows:
        pq.write_table(pa.Table.from_pylist(rows), batches.place())
        batches.commit(position)
    return len(messages) - len(rows)


async def run(ports: list[int], folder: Path) -> None:
    batches = BatchFiles(folder)
    for port in itertools.cycle(ports):
        try:
            await read(port, batches, folder)
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
