"""Two nodes of one domain that both believe to run a link: the epochs in their CONNECTs decide."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import properties as props
from broker.origin import NAME
from broker_world import World
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import encode_connect
from link_clients import RoleDecider


def claim(epoch: int, domain: str = "paris") -> dict[str, Any]:
    value = encode_connect(domain.encode(), 1, False, epoch=epoch).decode()
    return {"properties": {props.USER_PROPERTY: [(NAME.decode(), value)]}}


@pytest.mark.parametrize(
    ("domain", "epoch", "takes_over"),
    [("paris", 6, False), ("paris", 7, True), ("paris", 8, True), ("paris", 0, True), ("rome", 6, True)],
)
def test_a_lower_epoch_does_not_take_over_the_session_of_a_connected_link(
    domain: str, epoch: int, takes_over: bool
) -> None:
    world = World()
    bridging_of(world.broker)
    present = world.connect("link", **claim(7), expiry=100)
    other = world.open()
    connack = other.connect("link", clean_start=False, **claim(epoch, domain), expiry=100)
    assert connack is not None
    assert (connack.reason_code == 0, present.closed, other.closed) == (takes_over, takes_over, not takes_over)
    if not takes_over:
        assert connack.properties[props.REASON_STRING] == "fenced: another node of paris holds the session with epoch 7"


def test_a_lower_epoch_resumes_the_session_of_a_link_that_is_away() -> None:
    world = World()
    bridging_of(world.broker)
    world.connect("link", **claim(7), expiry=100).disconnect()
    connack = world.open().connect("link", clean_start=False, **claim(6), expiry=100)
    assert connack is not None
    assert (connack.reason_code, connack.session_present) == (0, True)


def test_an_ordinary_client_of_a_higher_epoch_is_taken_over_as_any_client() -> None:
    world = World()
    bridging_of(world.broker)
    world.broker.add_connect_decider(RoleDecider())
    world.connect("link", **claim(7), username="someone")
    connack = world.open().connect("link", **claim(6), username="link")
    assert connack is not None
    assert connack.reason_code == 0
