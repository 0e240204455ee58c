"""The output of one connection: packets of a turn, limits of the client, the close."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker.config.settings import MqttSettings
from broker.context import Context
from broker.session.output import CLOSED, CONNECTED, WAITING_FOR_CONNECT, Output

HIGH = 1000


@pytest.fixture
def context() -> Context:
    return Context(replace(MqttSettings(), write_buffer_high=HIGH), random.Random(1), 0.0)


@pytest.fixture
def output(context: Context) -> Output:
    return Output(context, None, "client:1", "server:2", 0.0)


def test_a_connection_with_output_is_announced_once(context: Context, output: Output) -> None:
    output.write_packets(b"ab", 1)
    output.write_packets(b"cde", 2)
    output.call_again()
    assert context.dirty == [output]
    assert (output.out, output.out_size, output.packets_sent) == ([b"ab", b"cde"], 5, 3)


def test_a_connection_without_output_can_be_called_again(context: Context, output: Output) -> None:
    output.call_again()
    output.call_again()
    assert context.dirty == [output]
    assert output.out == []


def test_messages_are_written_while_there_is_room(output: Output) -> None:
    output.write_packets(bytes(HIGH - 1), 1)
    assert output.can_write()
    output.write_packets(b"x", 1)
    assert not output.can_write()


def test_no_messages_for_a_full_transport(output: Output) -> None:
    output.writable = False
    assert not output.can_write()


@pytest.mark.parametrize(
    ("maximum", "size", "taken"), [(0, 2**28, True), (100, 100, True), (100, 101, False), (1, 2, False)]
)
def test_maximum_packet_size_of_the_client(output: Output, maximum: int, size: int, taken: bool) -> None:
    """[MQTT-3.1.2-24]; 0 is no limit."""
    output.maximum_packet_size = maximum
    assert output.takes(size) is taken


def test_the_close(context: Context, output: Output) -> None:
    """The shell is told, so that it writes the rest and closes the socket."""
    output.close("why")
    assert output.phase is CLOSED
    assert output.closed
    assert output.close_text == "why"
    assert context.dirty == [output]


def test_the_phases_before_the_close(output: Output) -> None:
    assert output.phase is WAITING_FOR_CONNECT
    assert not output.closed
    output.phase = CONNECTED
    assert not output.closed
