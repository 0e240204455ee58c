"""What the upstream grants less than asked, as notes."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import MQTT_5, MQTT_311
from federation.definitions.upstream import parse_upstream
from federation.links.bridging.headers import LinkWelcome
from federation.links.handshake import EXPIRY_NEVER, Accepted, Note, notes_on, span

GRANTED: dict[str, Any] = {"session_present": False, "session_expiry": EXPIRY_NEVER}
OUT: dict[str, Any] = {"direction": "out"}
WELCOME = LinkWelcome(b"paris", 1, "", 1, 1)


def noted(keys: dict[str, Any], granted: dict[str, Any], welcome: LinkWelcome | None = WELCOME) -> list[Note]:
    upstream = parse_upstream("u", {"uri": "mqtt://u"} | keys)
    return list(notes_on(upstream, MQTT_5, Accepted(**(GRANTED | granted)), welcome))


@pytest.mark.parametrize(
    ("keys", "granted", "words", "is_warning"),
    [
        ({}, {"session_expiry": 604_800}, "for at most 7 days; without `expires` the link has asked for ever", False),
        ({"expires": 7_200_000}, {"session_expiry": 90}, "for at most 90 s; `expires` asks for 2 hours", True),
        (OUT, {"receive_maximum": 20}, "takes 20 messages without acknowledgement at a time", False),
        ({}, {"maximum_qos": 0}, "QoS 0 only", True),
        ({}, {"retain_available": False}, "no retained messages", True),
        ({}, {"wildcard_available": False}, "no filters with wildcards", True),
    ],
)
def test_less_than_asked(keys: dict[str, Any], granted: dict[str, Any], words: str, is_warning: bool) -> None:
    (note,) = noted(keys, granted)
    assert words in note.text
    assert note.is_warning is is_warning


@pytest.mark.parametrize(
    ("keys", "granted"),
    [
        ({}, {}),
        ({"expires": 90_000}, {"session_expiry": 90}),
        ({"message-ttl": 1000}, {}),
        ({}, {"receive_maximum": 20}),
        ({**OUT, "message-ttl": 1000}, {"session_expiry": 0, "wildcard_available": False}),
        ({"ack-mode": "no-ack"}, {"maximum_qos": 0}),
    ],
)
def test_nothing_is_missing(keys: dict[str, Any], granted: dict[str, Any]) -> None:
    assert noted(keys, granted) == []


def test_brokers_of_another_kind_and_old_ones_have_notes_of_their_own() -> None:
    (note,) = noted({"message-ttl": 1000}, {}, None)
    assert note.text.startswith("message-ttl has no effect")
    (note,) = notes_on(parse_upstream("u", {"uri": "mqtt://u"}), MQTT_311, Accepted(False), None)
    assert "MQTT 3.1.1" in note.text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(90, "90 s"), (120, "2 minutes"), (3_600, "60 minutes"), (7_201, "7201 s"), (1_209_600, "14 days")],
)
def test_a_span_for_people(seconds: int, text: str) -> None:
    assert span(seconds) == text
