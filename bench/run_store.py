"""scripts/bench store: how long a node with many stored sessions takes from its start until it serves.

The store has sessions with one subscription and some queued messages each, every message of its own. A node is started on it; a
client of the last session connects and gets its messages.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mqtt_load import connect_packet, cpu_seconds, read_packet

from broker.session.outgoing import QUEUED
from broker.store.kinds import MESSAGE, OUTGOING, SESSION, SUBSCRIPTION
from broker.store.records import NO_TIME
from broker.store.sqlite_store import FILE_NAME, SqliteStore
from broker.store.store import pack_record

ROOT: Final = Path(__file__).resolve().parent.parent
BATCH: Final = 100_000  # records of one commit
SECONDS_MAX: Final = 10.0
DEADLINE: Final = 120.0
PAYLOAD: Final = bytes(100)
CONFIG: Final = """\
listeners: [{{address: "127.0.0.1:{port}"}}]
mqtt: {{max_queued_messages: 100000, session_expiry: 24h, message_expiry: 24h}}
data_dir: {folder}
log: {{level: info, format: text, clients: false}}
"""


def records(sessions: int, messages: int) -> Iterator[tuple[int, bytes]]:
    now = time.time()
    number = 0
    for index in range(sessions):
        session = number = number + 1
        name = f"device-{index}"
        addresses = ("127.0.0.1:1", "127.0.0.1:2")
        yield session, pack_record((SESSION, name, "", None, 4, 60, *addresses, now, now, 86_400, now, None, NO_TIME))
        number += 1
        topic = f"devices/{index}".encode()
        yield number, pack_record((SUBSCRIPTION, session, topic, 1, False, False, 0, 0))
        for _ in range(messages):
            number += 1
            yield number, pack_record((MESSAGE, topic, PAYLOAD, 1, False, b"", NO_TIME, "publisher"))
            number += 1
            yield number, pack_record((OUTGOING, session, number - 1, 1, False, (), now + 86_400, 0, QUEUED))


def write_store(folder: Path, sessions: int, messages: int) -> int:
    """Returns the bytes of the file."""
    store = SqliteStore(folder)
    store.open()
    batch: list[tuple[int, bytes | None]] = []
    for record in records(sessions, messages):
        batch.append(record)
        if len(batch) == BATCH:
            store.commit(batch)
            batch = []
    store.commit(batch)
    store.close()
    return (folder / FILE_NAME).stat().st_size


def without_path() -> dict[str, str]:
    """The environment of a program that must not see the sources."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def first_messages(port: int, client_id: str, messages: int, until: float) -> None:
    """Return when the client has its messages. SystemExit after `until`."""
    while True:
        try:
            client = socket.create_connection(("127.0.0.1", port), 1.0)
            break
        except OSError:
            if time.perf_counter() > until:
                raise SystemExit("the node does not serve") from None
            time.sleep(0.02)
    client.settimeout(DEADLINE)
    client.sendall(connect_packet(client_id, is_clean=False))
    got = [read_packet(client)[0] >> 4 for _ in range(messages + 1)]
    assert got == [2] + [3] * messages, got
    client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench store", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=10, help="of each session (10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gmqttd-bench-") as name:
        folder = Path(name)
        size = write_store(folder / "data", options.sessions, options.messages)
        print(f"{options.sessions} sessions of {options.messages} messages: {size / 2**20:.0f} MiB", flush=True)
        port = free_port()
        (folder / "node.yml").write_text(CONFIG.format(port=port, folder=folder / "data"))
        program = ROOT / ".venv-fast/bin/gmqttd"
        begun = time.perf_counter()
        with (folder / "log").open("wb") as log:
            command = [str(program), "start", "-c", str(folder / "node.yml")]
            node = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stderr=log, env=without_path())
        try:
            first_messages(port, f"device-{options.sessions - 1}", options.messages, begun + DEADLINE)
            seconds = time.perf_counter() - begun
            cpu = cpu_seconds([node.pid])
            with open(f"/proc/{node.pid}/statm", encoding="ascii") as statm:
                resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        finally:
            node.terminate()
            node.wait()
    verdict = "ok" if seconds <= SECONDS_MAX else f"MISSED: {SECONDS_MAX:g} s"
    print(
        f"from the start to the first message of a session: {seconds:.1f} s ({verdict}), {cpu:.1f} s of CPU; "
        f"{resident / 2**20:.0f} MiB resident"
    )
    return 0 if seconds <= SECONDS_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
