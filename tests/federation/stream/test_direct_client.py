"""The client's end of a direct stream: what it says, when it asks whether the server lives, and what ends it."""

from __future__ import annotations

import random

import pytest

from broker.message import NEVER
from federation.stream.counters import DropReason
from federation.stream.direct_client import PING_SECONDS, PONG_SECONDS_MAX, DirectClient, DirectProbe, PingTimer
from federation.stream.direct_wire import (
    ACK_PONG,
    PING,
    STATUS_INVALID,
    STATUS_NOT_A_MEMBER,
    STATUS_OK,
    Reply,
    encode_ack,
    encode_end,
    encode_hello,
    encode_reply,
)
from federation.stream.sender import HELLO_SECONDS_MAX, PeerSender
from federation.stream.state import State
from federation.stream.stream_choice import StreamKind
from senders import make_sender

OK = encode_reply(Reply(STATUS_OK, True, 0, ""))


def begin(now: float = 0.0) -> tuple[PeerSender, DirectClient]:
    """A client whose Hello was sent."""
    sender = make_sender()
    sender.connect("host:1", now)
    client = DirectClient("this", sender, now)
    client.connected(now)
    assert client.data_to_send(now) == encode_hello("this", sender.session_id, sender.store_id)
    return sender, client


def streaming(now: float = 0.0) -> tuple[PeerSender, DirectClient]:
    """A client whose empty state was acknowledged."""
    sender, client = begin(now)
    client.receive_data(OK, now)
    assert client.is_streaming()
    assert len(client.data_to_send(now)) > 0
    client.receive_data(encode_ack(1), now)
    return sender, client


# --- pings


@pytest.mark.parametrize("seed", range(5))
def test_an_idle_stream_with_late_timers_and_answers_lives_for_a_day(seed: int) -> None:
    rng = random.Random(seed)
    now = 0.0
    timer = PingTimer(now)
    pings = 0
    while now < 86_400.0:
        now = timer.next_timeout() + rng.choice((0.0, 0.0001, 0.001, 0.004, 0.1))  # a timer is late
        assert not timer.is_silent(now)
        if timer.take_ping(now):
            pings += 1
            now += rng.choice((0.0002, 0.001, 0.0015, 0.02, 0.9))  # and so is the answer
            timer.received(now)
    assert pings == pytest.approx(86_400 / PING_SECONDS, rel=0.1)


@pytest.mark.parametrize("late", [0.0, 0.001, 5.0, PONG_SECONDS_MAX - 0.001])
def test_a_ping_counts_from_the_last_byte_and_only_an_unanswered_one_ends_the_stream(late: float) -> None:
    sender, client = streaming()
    client.receive_data(encode_ack(ACK_PONG), 3.0)
    assert client.next_timeout() == 3.0 + PING_SECONDS
    client.handle_timeout(3.0 + PING_SECONDS - 0.001)
    assert client.data_to_send(12.9) == b"", "early"
    client.handle_timeout(3.0 + PING_SECONDS)
    assert client.data_to_send(13.0) == PING
    client.handle_timeout(13.0 + late)
    assert client.data_to_send(13.0 + late) == b"", "one question at a time"
    client.receive_data(encode_ack(ACK_PONG), 13.0 + late)
    assert client.next_timeout() == pytest.approx(13.0 + late + PING_SECONDS)
    client.handle_timeout(client.next_timeout())
    assert client.data_to_send(50.0) == PING
    assert client.is_streaming()
    client.handle_timeout(client.next_timeout())
    assert client.is_over
    assert (sender.state, sender.reason) == (State.BACKOFF, "no answer to a ping for 10 s")
    assert client.next_timeout() == NEVER


def test_a_process_that_stood_still_asks_before_it_gives_the_stream_up() -> None:
    sender, client = streaming()
    client.handle_timeout(600.0)
    assert client.data_to_send(600.0) == PING
    assert sender.state is State.STREAMING


# --- what the server says


@pytest.mark.parametrize(
    ("data", "reason", "kind"),
    [
        (encode_reply(Reply(STATUS_NOT_A_MEMBER, False, 0, "not yet")), "not yet", StreamKind.DIRECT),
        (encode_reply(Reply(STATUS_INVALID, False, 0, "wrong")), "wrong", StreamKind.DIRECT),
        (encode_reply(Reply(STATUS_OK, False, 9, "")), "it asks for event 9, which is not kept", StreamKind.DIRECT),
        (bytes(9), "the answer to Hello is none of a direct stream", StreamKind.GO),
        (None, "closed before it answered Hello", StreamKind.GO),
    ],
)
def test_the_first_answer_decides_the_kind_of_the_next_stream(
    data: bytes | None, reason: str, kind: StreamKind
) -> None:
    sender, client = begin()
    if data is None:
        client.connection_lost("", 1.0)
    else:
        client.receive_data(data, 1.0)
    assert client.is_over
    assert (sender.state, sender.reason) == (State.BACKOFF, reason)
    sender.handle_timeout(10.0)
    assert (sender.state, sender.choice.kind) == (State.HELLO, kind)


def test_a_hello_that_stays_unanswered_is_the_senders_to_end() -> None:
    sender, client = begin()
    assert client.next_timeout() == NEVER
    sender.handle_timeout(HELLO_SECONDS_MAX)
    assert sender.reason == "no answer to Hello for 5 s"
    sender.handle_timeout(20.0)
    assert sender.choice.kind is StreamKind.GO
    client.receive_data(OK, 21.0)
    assert client.is_over, "its attempt is not the present one"
    assert sender.state is State.HELLO


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (encode_end(False, "because"), "because"),
        (encode_ack(77), "it acknowledged event 77, which was not sent"),
        (b"\xff" * 8 + b"\x07\0\0", "the end of the stream is none"),
    ],
)
def test_a_wrong_answer_ends_the_stream_with_its_reason(data: bytes, reason: str) -> None:
    sender, client = streaming()
    client.receive_data(data, 1.0)
    assert client.is_over
    assert (sender.state, sender.reason) == (State.BACKOFF, reason)


def test_a_stream_that_was_ended_as_malformed_gives_up_its_first_batch() -> None:
    sender, client = streaming()
    sender.forward_run(b"\x30\x05\x00\x01tab", 1, 4, 0, 1.0)
    client.data_to_send(1.0)
    client.receive_data(encode_end(True, "bad"), 1.0)
    sender.handle_timeout(5.0)
    assert not sender.hello_reply(2, False, 2, 5.0)
    assert sender.counters.dropped[DropReason.REFUSED] == 1


def test_the_newest_acknowledgement_frees_the_outbox() -> None:
    sender, client = streaming()
    for _ in range(3):
        sender.forward_run(b"\x30\x05\x00\x01tab", 1, 4, 0, 1.0)
        assert client.data_to_send(1.0)
    client.receive_data(encode_ack(2) + encode_ack(ACK_PONG) + encode_ack(4), 1.0)
    assert sender.outbox.size == 0


# --- the probe


@pytest.mark.parametrize(
    ("data", "is_over", "state"),
    [
        (encode_reply(Reply(STATUS_INVALID, False, 0, "no name")), True, State.HELLO),
        (encode_reply(Reply(STATUS_INVALID, False, 0, "no name"))[:5], False, State.STREAMING),
        (bytes(9), True, State.STREAMING),
    ],
)
def test_a_probe_that_is_answered_moves_the_session_to_a_direct_stream(
    data: bytes, is_over: bool, state: State
) -> None:
    sender, _ = streaming()
    probe = DirectProbe(sender, 1.0)
    assert probe.data_to_send() == encode_hello("", "", "")
    probe.receive_data(data, 1.0)
    assert (probe.is_over, sender.state) == (is_over, state)


def test_a_probe_ends_without_an_answer() -> None:
    sender, _ = streaming()
    probe = DirectProbe(sender, 1.0)
    assert probe.next_timeout() == 1.0 + HELLO_SECONDS_MAX
    probe.handle_timeout(1.0)
    assert probe.next_timeout() == 1.0 + HELLO_SECONDS_MAX
    probe.handle_timeout(probe.next_timeout())
    assert probe.is_over
    assert probe.next_timeout() == NEVER
