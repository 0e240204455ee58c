"""The server's end of a direct stream: Hello, acknowledgements, signs of life, and the end."""

from __future__ import annotations

import pytest

from broker.message import NEVER
from broker.store.journal import Journal
from federation.stream.direct_server import (
    ACK_BATCHES,
    ACK_BYTES,
    ACK_SECONDS,
    HELLO_SECONDS_MAX,
    SILENCE_SECONDS_MAX,
    DirectServer,
)
from federation.stream.direct_wire import (
    ACK_PONG,
    BATCH_HEADER_SIZE,
    PING,
    STATUS_INVALID,
    STATUS_NOT_A_MEMBER,
    STATUS_OK,
    Answers,
    ClientReader,
    Reply,
    encode_ack,
    encode_batch,
    encode_hello,
    encode_reply,
)
from federation.stream.frames import SUBSCRIBE, encode_interest
from federation.stream.served_stream import HELD_SECONDS
from federation_world import World

BYTES_MAX = 100_000


def interest(name: bytes = b"a") -> bytes:
    return encode_interest(SUBSCRIBE, b"", name)


class Served:
    """n1 serves n2."""

    def __init__(self, hello: bool = True) -> None:
        self.world = World(2)
        self.now = self.world.now
        self.server = DirectServer(self.world.nodes["n1"].receivers, BYTES_MAX, self.now)
        self.next_id = 0
        if hello:
            self.server.receive_data(encode_hello("n2", "session", "store"), self.now)
            assert self.take() == encode_reply(Reply(STATUS_OK, True, 0, ""))

    def take(self) -> bytes:
        return self.server.data_to_send(self.now)

    def after(self, seconds: float) -> bytes:
        """Time passes; what the server says then."""
        self.now += seconds
        self.server.handle_timeout(self.now)
        return self.take()

    def batch(self, size: int = 0) -> bytes:
        """The next batch, with a filter of so many bytes; what the server says at once."""
        self.server.receive_data(encode_batch(self.next_id, 1, interest(b"a" * max(1, size))), self.now)
        self.next_id += 1
        return self.take()

    def end(self) -> Answers:
        return ClientReader().receive_answers(self.take())


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (encode_hello("stranger", "s", "store"), STATUS_NOT_A_MEMBER, "stranger has not yet joined"),
        (encode_hello("n1", "s", "store"), STATUS_NOT_A_MEMBER, "n1 has not yet joined"),
        (encode_hello("", "s", "store"), STATUS_INVALID, "node name of 0 bytes, 1 to 1024 are allowed"),
        (encode_hello("n2", "s" * 300, "store"), STATUS_INVALID, "session_id of 300 characters, 1 to 256"),
        (b"PRI * HTTP/2.0", STATUS_INVALID, "the connection does not begin with the preface of a direct stream"),
    ],
)
def test_a_refused_hello_is_answered_with_the_reason(data: bytes, status: int, text: str) -> None:
    served = Served(hello=False)
    served.server.receive_data(data, served.now)
    assert served.take() == encode_reply(Reply(status, False, 0, text))
    assert served.server.is_over
    assert served.server.refused == text
    assert served.server.next_timeout() == NEVER
    served.server.receive_data(encode_hello("n2", "s", "store"), served.now)
    assert served.take() == b""


def test_a_hello_has_its_time_from_the_begin_not_from_its_last_byte() -> None:
    served = Served(hello=False)
    hello = encode_hello("n2", "session", "store")
    for at in range(4):
        served.server.receive_data(hello[at : at + 1], served.now)
        assert served.after(1.0) == b""
    assert served.after(HELLO_SECONDS_MAX - 4.0) == encode_reply(Reply(STATUS_INVALID, False, 0, "no Hello within 5 s"))


def test_one_acknowledgement_for_several_small_batches() -> None:
    served = Served()
    for _ in range(ACK_BATCHES - 1):
        assert served.batch() == b""
    assert served.batch() == encode_ack(ACK_BATCHES - 1)
    assert served.batch() == b""
    assert served.server.next_timeout() == served.now + ACK_SECONDS
    assert served.after(ACK_SECONDS - 0.001) == b""
    assert served.after(0.001) == encode_ack(ACK_BATCHES)
    assert served.server.next_timeout() == served.now - ACK_SECONDS + SILENCE_SECONDS_MAX


def test_a_large_read_is_acknowledged_at_once() -> None:
    served = Served()
    assert served.batch(ACK_BYTES) == encode_ack(0)


def test_one_pong_for_the_pings_of_a_read() -> None:
    served = Served()
    served.server.receive_data(PING + encode_batch(0, 1, interest()) + PING, served.now)
    assert served.take() == encode_ack(ACK_PONG)
    assert served.after(ACK_SECONDS) == encode_ack(0)


def test_silence_ends_a_stream_after_its_due_acknowledgement() -> None:
    served = Served()
    served.batch()
    assert served.after(ACK_SECONDS) == encode_ack(0)
    served.now += SILENCE_SECONDS_MAX - 0.03
    served.server.handle_timeout(served.now)
    assert not served.server.is_over
    served.now += 0.03
    served.server.handle_timeout(served.now)
    answers = served.end()
    assert (answers.end_text, answers.end_malformed) == (f"nothing for {SILENCE_SECONDS_MAX:g} s", False)
    assert served.world.nodes["n1"].receivers.get("n2").stream is None


def test_batches_in_front_of_a_wrong_one_are_acknowledged_before_the_end() -> None:
    served = Served()
    data = encode_batch(0, 1, interest(b"a")) + encode_batch(1, 1, interest(b"b"))
    served.server.receive_data(data + (BYTES_MAX + 1).to_bytes(4, "big") + bytes(BATCH_HEADER_SIZE), served.now)
    answers = served.end()
    assert (answers.ack, answers.end_malformed) == (1, True)
    assert answers.end_text == f"batch of {BYTES_MAX + 1} bytes, {BATCH_HEADER_SIZE - 4} to {BYTES_MAX} are allowed"
    assert len(served.world.nodes["n1"].tree.interest_of("n2")) == 2


def test_full_receivers_stop_reading_and_the_client_hears_that_the_server_lives() -> None:
    served = Served()
    served.batch()
    assert served.after(ACK_SECONDS) == encode_ack(0)
    node = served.world.nodes["n1"]
    publisher = node.receivers.get("n2").publisher
    node.broker.hold(publisher)
    served.server.reading_changed(served.now)
    assert not served.server.wants_reading()
    for _ in range(20):  # longer than any silence
        assert served.after(HELD_SECONDS) == encode_ack(0)
    assert served.batch() == b"", "it came before the pause, and waits"
    node.broker.release(publisher)
    served.server.reading_changed(served.now)
    assert served.server.wants_reading()
    assert served.take() == encode_ack(1)
    assert served.after(HELD_SECONDS) == b""


def test_a_stream_that_begins_while_receivers_are_full_waits() -> None:
    served = Served(hello=False)
    node = served.world.nodes["n1"]
    node.broker.hold(node.receivers.get("n2").publisher)
    served.server.receive_data(encode_hello("n2", "session", "store"), served.now)
    served.take()
    assert not served.server.wants_reading()
    assert served.after(HELD_SECONDS) == encode_ack(ACK_PONG), "nothing is done that could be acknowledged"


def test_a_batch_that_takes_its_time_is_no_silence() -> None:
    served = Served()
    served.batch()
    data = encode_batch(1, 1, interest(b"x" * 60_000))
    said = b""
    for at in range(0, len(data) - 1, 1000):
        served.server.receive_data(data[at : at + 1000][: len(data) - 1 - at], served.now)
        said += served.take()
        said += served.after(1.0)
    assert said.count(encode_ack(0)) >= 60 // HELD_SECONDS - 1
    assert not served.server.is_over


def test_a_newer_stream_or_the_end_of_the_membership_ends_it() -> None:
    served = Served()
    second = DirectServer(served.world.nodes["n1"].receivers, BYTES_MAX, served.now)
    second.receive_data(encode_hello("n2", "session", "store"), served.now)
    assert served.end().end_text == "replaced by a newer stream of this node"
    assert second.data_to_send(served.now) == encode_reply(Reply(STATUS_OK, False, 0, ""))
    served.world.part("n1", "n2")
    assert ClientReader().receive_answers(second.data_to_send(served.now)).end_text == "n2 is not a member any more"


def test_acknowledgements_wait_for_the_store() -> None:
    """Also those of Hello, of a sign of life and of the end. What is done and not stored comes again on the next stream."""
    served = Served()
    broker = served.world.nodes["n1"].broker
    journal = Journal()
    broker.set_journal(journal)
    assert served.batch(ACK_BYTES) == encode_ack(0), "interest is not durable"
    journal.add("what the event changes")
    assert served.batch(ACK_BYTES) == encode_ack(0)
    assert served.after(ACK_SECONDS) == encode_ack(0)
    receiver = served.server.receiver
    assert receiver is not None
    assert receiver.next_event_id == 2
    assert receiver.hello("session") == (False, 1)
    served.server.end("enough")
    assert served.end().ack == 0
    commit = journal.commit
    journal.take()
    broker.commits.finish(commit)
    assert receiver.hello("session") == (False, 2)
