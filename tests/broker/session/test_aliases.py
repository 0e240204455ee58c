"""Topic aliases of a client [MQTT5 3.3.2.3.4]."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.reason_codes import TOPIC_ALIAS_INVALID
from broker.errors import MqttError
from broker.session.aliases import resolve_alias


def test_topic_alias(world: Any) -> None:
    """An alias is of this connection and direction only; receivers get the topic [MQTT-3.3.2-7..10]."""
    receiver = world.connect("c", 4)
    receiver.subscribe(b"#")
    publisher = world.connect("p", expiry=100)
    for topic, alias in ((b"a", 1), (b"", 1), (b"b", 1), (b"", 1), (b"c", 10), (b"", 1), (b"", 10)):
        publisher.publish(topic, b"x", topic_alias=alias)
    assert [p.topic for p in receiver.take_publishes()] == [b"a", b"a", b"b", b"b", b"c", b"b", b"c"]
    publisher.cut()
    again = world.connect("p", clean_start=False)
    again.publish(b"", b"x", topic_alias=1)
    assert [p.reason_code for p in again.packets] == [0x94]


@pytest.mark.parametrize(("alias", "topic"), [(11, b"a"), (11, b""), (3, b"")])
def test_an_alias_that_is_too_large_or_unknown(alias: int, topic: bytes) -> None:
    """[MQTT-3.3.2-9]; nothing is kept of it."""
    aliases = {1: b"one"}
    with pytest.raises(MqttError) as error:
        resolve_alias(aliases, alias, topic, 10)
    assert error.value.reason_code == TOPIC_ALIAS_INVALID
    assert aliases == {1: b"one"}
