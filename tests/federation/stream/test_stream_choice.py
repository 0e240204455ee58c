"""Which stream the next attempt takes, and when a probe is due."""

from __future__ import annotations

from broker.message import NEVER
from federation.stream.stream_choice import PROBE_SECONDS, StreamChoice, StreamKind


def test_a_go_broker_is_reached_over_grpc_and_never_probed() -> None:
    choice = StreamChoice()
    choice.begin(False, "a:1")
    assert choice.kind is StreamKind.GO
    choice.stream_began(False, 0.0)
    assert choice.next_timeout() == NEVER


def test_only_an_address_that_took_a_hello_and_did_not_answer_is_tried_over_grpc() -> None:
    choice = StreamChoice()
    kinds = []
    for is_sent, is_answered in ((False, False), (True, True), (True, False), (False, False), (True, False)):
        choice.begin(True, "a:1")
        kinds.append(choice.kind)
        if choice.kind is StreamKind.DIRECT:
            if is_sent:
                choice.hello_sent()
            if is_answered:
                choice.hello_answered()
        choice.attempt_ended()
    direct, go = StreamKind.DIRECT, StreamKind.GO
    assert kinds == [direct, direct, direct, go, direct], "each attempt over gRPC uses the cause up"
    choice.begin(True, "b:1")
    assert choice.kind is direct, "another address"


def test_a_probe_every_30_s_while_the_stream_is_one_of_grpc() -> None:
    choice = StreamChoice()
    choice.begin(True, "a:1")
    choice.hello_sent()
    choice.attempt_ended()
    choice.begin(True, "a:1")
    choice.stream_began(True, 100.0)
    assert choice.next_timeout() == 100.0 + PROBE_SECONDS
    choice.handle_timeout(100.0 + PROBE_SECONDS - 1)
    assert choice.probe == 0
    for number in (1, 2, 3):
        choice.handle_timeout(choice.next_timeout())
        assert choice.probe == number
    choice.attempt_ended()
    assert choice.next_timeout() == NEVER


def test_a_direct_stream_is_not_probed() -> None:
    choice = StreamChoice()
    choice.begin(True, "a:1")
    choice.stream_began(True, 0.0)
    assert choice.next_timeout() == NEVER


def test_another_worker_of_the_node_is_never_reached_over_grpc() -> None:
    choice = StreamChoice()
    for _ in range(3):
        choice.begin(True, "unix:///run/1.stream")
        assert choice.kind is StreamKind.DIRECT
        choice.hello_sent()
        choice.attempt_ended()
