"""The version of MQTT of the next CONNECT, by what an upstream has answered to the ones before."""

from __future__ import annotations

import pytest

from broker.codec.packets import MQTT_5, MQTT_311
from federation.links.version import Version


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], MQTT_5),
        (["refused"], MQTT_311),
        (["unanswered"], MQTT_311),
        (["unanswered", "unanswered"], MQTT_5),
        (["accepted", "ended", "unanswered"], MQTT_5),
        (["refused", "accepted", "ended"], MQTT_311),
        (["refused", "accepted", "ended", "unanswered"], MQTT_311),
        (["refused", "refused"], MQTT_5),
        (["unanswered", "accepted"], MQTT_5),
        (["unanswered", "accepted", "ended", "accepted"], MQTT_5),
        (["unanswered", "accepted", "ended", "unanswered"], MQTT_311),
        (["unanswered", "accepted", "ended", "unanswered", "accepted"], MQTT_311),
        (["unanswered", "accepted", "ended", "unanswered", "accepted", "ended"], MQTT_5),
        (["unanswered", "accepted", "ended", "refused", "accepted", "ended"], MQTT_311),
    ],
)
def test_an_upstream_is_asked_in_5_unless_it_has_no_5(calls: list[str], expected: int) -> None:
    version = Version()
    for call in calls:
        getattr(version, call)()
    assert version.current == expected


def test_a_link_that_needs_5_asks_for_nothing_else() -> None:
    version = Version(needs_5=True)
    version.unanswered()
    version.refused()
    assert version.current == MQTT_5
