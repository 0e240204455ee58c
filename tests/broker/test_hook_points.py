"""Without plugins each hook is None; a plugin that is added later is asked from then on."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.runs import Run
from broker.hooks import Tap
from broker.message import Message
from broker.publisher import Publisher

HOOKS = (
    "tap",
    "observer",
    "deliveries",
    "authorization",
    "accepting",
    "subscribing",
    "unsubscribing",
    "publishing",
    "run_publishing",
    "will_publishing",
)


def test_a_node_without_plugins_has_no_hooks(world: Any) -> None:
    assert [getattr(world.broker, hook) for hook in HOOKS] == [None] * len(HOOKS)
    assert world.broker.connect_deciders == ()


@pytest.mark.parametrize("hook", ["accept", "subscribe", "unsubscribe", "publish", "will"])
def test_wrapping_one_request_makes_one_hook(world: Any, hook: str) -> None:
    getattr(world.broker, f"wrap_{hook}")(lambda request, proceed: proceed(request))
    assert sum(getattr(world.broker, name) is not None for name in HOOKS) == 1


class Essential(Tap):
    def __init__(self) -> None:
        self.count = 0

    def is_essential(self) -> bool:
        return True

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        self.count += 1
        raise OSError("the message is not stored")

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        self.published(run.messages()[0], publisher, now)


@pytest.mark.parametrize("other_taps", [0, 1])
def test_the_fault_of_an_essential_tap_is_not_isolated(world: Any, other_taps: int) -> None:
    """The shell ends the connection, so that the message is not acknowledged."""
    essential = Essential()
    for _ in range(other_taps):
        world.broker.add_tap(Tap())
    world.broker.add_tap(essential)
    sender = world.connect("c")
    with pytest.raises(OSError, match="not stored"):
        sender.publish(b"a", b"", 1)
    with pytest.raises(OSError, match="not stored"):
        sender.send_bytes(b"\x30\x05\0\x01a\0x" * 3)
    assert essential.count == 2
    assert sender.take_packets() == []
