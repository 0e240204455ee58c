"""Where, in which version of MQTT, and when a link tries next; and a competing session that ends its connections."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from broker.codec.packets import MQTT_5, MQTT_311
from federation.definitions.uri import parse_uri
from federation.links.handshake import EXPIRY_NEVER, End
from federation.links.reconnecting import (
    CUT_SHORT_MAX,
    DELAY_SECONDS_MAX,
    FULL_SECONDS_MAX,
    REFUSED_SECONDS_MAX,
    STABLE_SECONDS,
    Addresses,
    Backoff,
    CompetingSession,
    Version,
)


def delays(backoff: Backoff, end: End, count: int) -> list[float]:
    return [backoff.delay(end, 0.0) for _ in range(count)]


def test_a_delay_doubles_up_to_its_cap_with_jitter() -> None:
    found = delays(Backoff(1.0, random.Random(1)), End.LOST, 12)
    for number, delay in enumerate(found):
        ceiling = min(DELAY_SECONDS_MAX, 2.0**number)
        assert ceiling / 2 <= delay <= ceiling
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("end", [End.REFUSED, End.VERSION, End.TAKEN, End.FAULT])
def test_a_refusal_waits_longer(end: End) -> None:
    assert delays(Backoff(5.0, random.Random(1)), end, 1)[0] >= 15.0
    assert max(delays(Backoff(5.0, random.Random(1)), end, 20)) <= REFUSED_SECONDS_MAX


def test_no_room_for_a_message_is_looked_at_again_soon() -> None:
    assert max(delays(Backoff(1.0, random.Random(1)), End.FULL, 20)) <= FULL_SECONDS_MAX
    assert max(delays(Backoff(60.0, random.Random(1)), End.FULL, 20)) <= 60.0


def test_a_stable_connection_begins_anew() -> None:
    backoff = Backoff(1.0, random.Random(1))
    delays(backoff, End.LOST, 10)
    assert backoff.delay(End.LOST, STABLE_SECONDS) <= 1.0
    delays(backoff, End.LOST, 10)
    backoff.reset()
    assert backoff.delay(End.LOST, 0.0) <= 1.0


def test_a_long_base_is_kept() -> None:
    assert delays(Backoff(600.0, random.Random(1)), End.LOST, 5)[-1] >= 300.0


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


URIS = tuple(parse_uri(f"mqtt://{name}.example.com") for name in ("a", "b", "c"))


def test_each_address_has_its_turn_without_a_session() -> None:
    addresses = Addresses(URIS, "seed")
    tried = []
    for _ in range(len(URIS)):
        tried.append(addresses.current)
        assert not addresses.next(0.0)
    assert set(tried) == set(URIS)
    assert addresses.current == tried[0]


def test_the_order_differs_between_links_and_not_between_processes() -> None:
    firsts = {Addresses(URIS, f"link {number}").current for number in range(50)}
    assert firsts == set(URIS)
    assert Addresses(URIS, "one").current == Addresses(URIS, "one").current


def test_a_link_goes_back_to_its_session_until_that_expires() -> None:
    addresses = Addresses(URIS, "seed")
    first = addresses.current
    addresses.accepted(False)
    addresses.lost(100, now=10.0)
    assert not addresses.next(109.0)
    assert addresses.current == first
    assert addresses.next(110.0)
    assert addresses.current != first
    assert addresses.sessions_lost == 1
    assert not addresses.has_session()


def test_other_keys_of_an_upstream_leave_a_link_where_its_session_is() -> None:
    before = Addresses(URIS, "seed")
    before.next(0.0)
    before.accepted(False)
    before.lost(100, now=10.0)
    addresses = Addresses(tuple(parse_uri(f"mqtt://u:p@{uri.host}?heartbeat=5") for uri in URIS), "seed")
    addresses.follow(before)
    assert (addresses.current.host, addresses.current.username) == (before.current.host, "u")
    assert addresses.has_session()
    assert not addresses.next(109.0)
    assert addresses.next(110.0)
    others = Addresses((parse_uri("mqtt://other.example.com"),), "seed")
    others.follow(before)
    assert not others.has_session()


def test_a_session_without_an_end_is_never_given_up() -> None:
    addresses = Addresses(URIS, "seed")
    first = addresses.current
    addresses.accepted(False)
    addresses.lost(EXPIRY_NEVER, now=10.0)
    assert not addresses.next(1e9)
    assert addresses.current == first


def test_a_session_that_the_upstream_has_no_more_is_lost() -> None:
    addresses = Addresses(URIS, "seed")
    addresses.accepted(False)
    assert addresses.sessions_lost == 0
    addresses.lost(100, now=0.0)
    addresses.accepted(True)
    assert addresses.sessions_lost == 0
    addresses.accepted(False)
    assert addresses.sessions_lost == 1
    addresses.forget_session()
    addresses.accepted(False)
    assert addresses.sessions_lost == 1


SHORT = (End.LOST, True, 1.0)
LONG = (End.LOST, True, STABLE_SECONDS)
NEW_SESSION = (End.LOST, False, 1.0)
REFUSED = (End.REFUSED, False, 0.0)
TAKEN = (End.TAKEN, True, 1.0)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([SHORT] * (CUT_SHORT_MAX - 1), False),
        ([SHORT] * CUT_SHORT_MAX, True),
        ([SHORT] * (CUT_SHORT_MAX + 1), True),
        ([SHORT, SHORT, TAKEN, SHORT], True),
        *(([*[SHORT] * (CUT_SHORT_MAX - 1), other, SHORT], False) for other in (LONG, NEW_SESSION, REFUSED)),
        ([*[SHORT] * CUT_SHORT_MAX, LONG], False),
    ],
)
def test_a_competing_is_seen_by_short_connections_in_a_row(
    ends: Sequence[tuple[End, bool, float]], expected: bool
) -> None:
    competing = CompetingSession()
    assert [competing.has_session(*end) for end in ends][-1] is expected
