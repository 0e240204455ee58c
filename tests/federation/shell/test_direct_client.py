"""A node's direct streams to a server that the test plays: what it says, keeps back and loses."""

from __future__ import annotations

from typing import Final

import pytest

from direct_peers import Raw, Script, read_batches
from federation.stream import direct_client
from federation.stream.direct_wire import (
    ACK_PONG,
    STATUS_NOT_A_MEMBER,
    STATUS_OK,
    Reply,
    ServerReader,
    encode_ack,
    encode_batch,
    encode_end,
    encode_reply,
)
from stations import StartStation, interest, lone, only_connection

OK: Final = encode_reply(Reply(STATUS_OK, True, 0, ""))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (OK + encode_end(False, "because"), "because"),
        (OK, "closed by the other node"),
        (encode_reply(Reply(STATUS_NOT_A_MEMBER, False, 0, "not yet")), "not yet"),
    ],
)
async def test_the_reason_of_the_server_is_logged_and_the_client_tries_again(
    start_station: StartStation, answer: bytes, reason: str
) -> None:
    async def serve(peer: Raw, reader: ServerReader) -> None:
        if answer.startswith(OK):
            peer.writer.write(OK)
            await peer.reader.read(65_536)  # the full state
            peer.writer.write(answer[len(OK) :])
        else:
            peer.writer.write(answer)
        if len(answer) > len(OK):
            await peer.reader.read(-1)

    script = await Script(serve).start()
    n1 = await start_station("n1")
    n1.meet("n2", script.addr)
    await n1.until(lambda: len(script.hellos) >= 3, "tries")
    assert n1.reasons()[0] == reason
    assert set(n1.kinds()) <= {"direct"}
    await n1.stop()
    script.server.close()


@pytest.mark.interpreted
async def test_a_server_without_a_sign_of_life(start_station: StartStation, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked, and given up when it does not answer; one that answers is not."""
    monkeypatch.setattr(direct_client, "PING_SECONDS", 0.05)
    monkeypatch.setattr(direct_client, "PONG_SECONDS_MAX", 0.1)
    pings: list[int] = []

    async def serve(peer: Raw, reader: ServerReader) -> None:
        is_alive = len(script.hellos) == 1
        answered = 0
        peer.writer.write(OK)
        while data := await peer.reader.read(65_536):
            for first_id, count, _ in read_batches(reader, data):
                if count:
                    peer.writer.write(encode_ack(first_id + count - 1))
                elif is_alive and answered < 6:
                    answered += 1
                    peer.writer.write(encode_ack(ACK_PONG))
        pings.append(answered)

    script = await Script(serve).start()
    n1 = await start_station("n1")
    n1.meet("n2", script.addr)
    await n1.until(lambda: len(script.hellos) >= 3, "tries")
    assert pings[:2] == [6, 0]
    assert n1.reasons()[0] == "no answer to a ping for 0.1 s"
    await n1.stop()
    script.server.close()


async def test_a_stream_that_begins_while_receivers_are_full_waits(start_station: StartStation) -> None:
    n1 = await lone(start_station)
    publisher = n1.node.receivers.get("peer").publisher
    n1.broker.hold(publisher)
    n1.changed()
    peer = await Raw.connect(n1.port)
    await peer.hello()
    transport = only_connection(n1)
    assert not transport.is_reading()
    peer.writer.write(encode_batch(0, 1, interest(b"a")))
    n1.broker.release(publisher)
    n1.changed()
    await peer.until(lambda found: found.ack == 0)
    peer.writer.transport.abort()
