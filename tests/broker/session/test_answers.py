"""Answers above the client's Maximum Packet Size [MQTT-3.1.2-24]."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import Disconnect, SubAck
from broker.codec.reason_codes import PACKET_TOO_LARGE
from broker.errors import MqttError
from broker.session.answers import check_answer, write_answer


@pytest.mark.parametrize(("count", "fits"), [(45, True), (46, False)])
def test_an_answer_that_is_too_large_is_an_error(world: Any, count: int, fits: bool) -> None:
    client = world.connect("c", properties={props.MAXIMUM_PACKET_SIZE: 50})
    answer = SubAck(1, [0] * count)
    if not fits:
        with pytest.raises(MqttError) as error:
            check_answer(client.connection, answer)
        assert error.value.reason_code == PACKET_TOO_LARGE
        return
    check_answer(client.connection, answer)
    write_answer(client.connection, answer)
    world.flush()
    assert client.packets == [answer]


def test_a_reason_string_is_left_out_before_an_answer_is_too_large(world: Any) -> None:
    """[MQTT-3.9.2-1]: then the rest fits."""
    client = world.connect("c", properties={props.MAXIMUM_PACKET_SIZE: 50})
    answer = SubAck(1, [0], {props.REASON_STRING: "x" * 50})
    check_answer(client.connection, answer)
    write_answer(client.connection, answer)
    world.flush()
    assert client.packets == [SubAck(1, [0])]


@pytest.mark.parametrize(
    ("reason_code", "sent"), [(0x88, 0x89), (0x86, 0x87), (0x8A, 0x87), (0x85, 0x80), (0x87, 0x87), (0x95, 0x95)]
)
def test_a_disconnect_has_a_reason_code_that_it_can_have(world: Any, reason_code: int, sent: int) -> None:
    """[MQTT-3.14.2-1]: deciders answer a re-authentication as they answer a CONNECT."""
    client = world.connect("c")
    world.broker.close_connection(client.connection, reason_code, "why", world.now)
    world.flush()
    assert client.packets == [Disconnect(sent, {props.REASON_STRING: "why"})]
