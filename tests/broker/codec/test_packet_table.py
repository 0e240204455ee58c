"""Every row of tests/data/packets.json: bytes and the packet or the reason code that they must give."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from broker.codec.packets import Connect
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.errors import MqttError

PACKET_BYTES_MAX = 1_000_000

ROWS = json.loads((Path(__file__).parents[2] / "data" / "packets.json").read_text())
CASES = [pytest.param(row, version, id=f"{row['name']} v{version}") for row in ROWS for version in row["versions"]]


@pytest.mark.parametrize(("row", "version"), CASES)
def test_packet(row: dict[str, Any], version: int) -> None:
    data = bytes.fromhex(row["bytes"])
    reader = PacketReader(version, PACKET_BYTES_MAX)
    if "error" in row:
        with pytest.raises(MqttError) as caught:
            reader.receive_data(data)
        assert caught.value.reason_code == row["error"], caught.value.text
        assert caught.value.text
        return
    packets = reader.receive_data(data)
    assert [repr(packet) for packet in packets] == [row["packet"]]
    if row.get("exact", True):
        assert encode_packet(packets[0], version) == data
    else:
        again = PacketReader(version).receive_data(encode_packet(packets[0], version))
        assert again == packets


def test_every_packet_is_in_the_table_and_refused_when_cut() -> None:
    """Cut a good packet short and correct its length: it is another packet or an error, never a crash."""
    kinds = set()
    for row in ROWS:
        if "error" in row:
            continue
        data = bytes.fromhex(row["bytes"])
        kinds.add(data[0] >> 4)
        for version in row["versions"]:
            for size in range(len(data) - 2):
                with contextlib.suppress(MqttError):
                    PacketReader(version).receive_data(bytes((data[0], size)) + data[2 : 2 + size])
    assert kinds == set(range(1, 16))


def test_password_is_read_and_never_shown() -> None:
    row = next(row for row in ROWS if row["name"] == "connect 3.1.1 will, user, password")
    [packet] = PacketReader().receive_data(bytes.fromhex(row["bytes"]))
    assert isinstance(packet, Connect)
    assert packet.password == b"p"
    packet.password = b"secret"
    assert "secret" not in repr(packet)
