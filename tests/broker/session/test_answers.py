"""Answers above the client's Maximum Packet Size [MQTT-3.1.2-24]."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import SubAck
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
