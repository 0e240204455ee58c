"""Where a subscription to `$stream/` begins: what the texts mean, and which are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.codec.reason_codes import TOPIC_FILTER_INVALID
from broker.errors import MqttError
from broker.event_log.stream.place import LogPlace, Place, decode_place, first_place, further_place
from broker.event_log.stream.start import OFFSET_MAX, Start, StartFault, parse_start, split_filter

NOW = 1_700_000_000_000_000_000  # 2023-11-14T22:13:20Z


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start()),
        ("latest", Start(NOW)),
        ("last", Start(is_last=True)),
        ("-15m", Start(NOW - 900 * 10**9)),
        ("-1h30m", Start(NOW - 5400 * 10**9)),
        ("-0.5s", Start(NOW - 500_000_000)),
        ("-90000h", Start(NOW - 90_000 * 3600 * 10**9)),
        ("-2000000h", Start(0)),
        ("2023-11-14T22:13:20Z", Start(NOW)),
        ("2023-11-14t22:13:20.25z", Start(NOW + 250_000_000)),
        ("2023-11-15T00:13:20.000001+02:00", Start(NOW + 1000)),
        ("2023-11-14T20:13:20.123456789-02:00", Start(NOW + 123_456_000)),
        ("1960-01-01T00:00:00Z", Start(0)),
        ('{"n1": 7, "n2": -2, "n3": -1}', Start(offsets={"n1": 7, "n2": -2, "n3": -1})),
    ],
)
def test_a_text_is_a_start(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "earliest"),
        ("15m", "-15m"),
        ("Earliest", "earliest"),
        ("-15", "unit"),
        ("-15x", "duration"),
        ("-", "duration"),
        ("2023-11-14", "2026-11-26T10:00:00Z"),
        ("2023-11-14T22:13:20", "2026-11-26T10:00:00Z"),
        ("2023-13-14T22:13:20Z", "month"),
        ("2023-11-14T22:13:20+25:00", "no time"),
        ("99999-11-14T22:13:20Z", "earliest"),
        ("{}", "node1"),
        ("{", "JSON"),
        ('{"n1": "1"}', "n1"),
        ('{"n1": true}', "n1"),
        ('{"n1": -3}', "n1"),
        ('{"n1": 9223372036854775808}', "n1"),
        ("[1]", "earliest"),
        ("{" * 4097, "4096"),
        ("[" * 4000, "earliest"),
        ('{"a":' * 800, "JSON"),
        (json.dumps({str(number): 1 for number in range(300)}) + " " * 2000, "4096"),
        ("\0", "earliest"),
        ('{"\\ud800": "x"}', "ud800"),
        ("2262-04-12T00:00:00Z", "2262"),
        ("9999-12-31T23:59:59Z", "2262"),
    ],
)
def test_any_other_text_is_refused_with_what_would_be_right(text: str, named: str) -> None:
    with pytest.raises(StartFault, match=named) as fault:
        parse_start(text, NOW)
    str(fault.value).encode()  # for the Reason String


TIMES = st.from_regex(
    r"\A[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
)
DURATIONS = st.from_regex(r"\A-([0-9.]{0,30}(h|m|s|ms|)){1,4}\Z")


@given(
    st.one_of(st.text(), TIMES, DURATIONS, st.text().map(lambda text: json.dumps({text: 1})), st.text('{}":,[]-1ae'))
)
@example("0001-01-01T00:00:00+23:59")
@example("9999-12-31T23:59:59-23:59")
@example("0000-01-01T00:00:00Z")
@example("2023-11-14T22:13:60Z")
@example('{"\\ud800": 1.5}')
def test_every_text_is_a_start_or_is_refused(text: str) -> None:
    try:
        start = parse_start(text, NOW)
    except StartFault as fault:
        str(fault).encode()
        return
    assert 0 <= start.since_ns <= OFFSET_MAX
    place = first_place(b"a", text, start, NOW)
    assert decode_place(place.encode()) == place


@pytest.mark.parametrize(
    ("full", "start", "found"),
    [
        (b"$stream/-15m/sensors/#", "", ("-15m", b"sensors/#")),
        (b"$stream/earliest/#", "", ("earliest", b"#")),
        (b"$stream/sensors/#", "-15m", ("-15m", b"sensors/#")),
        (b"$stream/-15m/a", "last", ("last", b"-15m/a")),
        (b"$stream//a", "", ("", b"a")),
        (b"$stream//a", "last", ("last", b"/a")),
        (b"$stream/last//", "", ("last", b"/")),
    ],
)
def test_the_start_stands_in_the_property_or_in_the_first_level(
    full: bytes, start: str, found: tuple[str, bytes]
) -> None:
    assert split_filter(full, start) == found


@pytest.mark.parametrize(
    ("full", "start"), [(b"$stream/", ""), (b"$stream/a", ""), (b"$stream/last/", ""), (b"$stream/", "last")]
)
def test_without_start_or_filter_there_is_nothing_to_read(full: bytes, start: str) -> None:
    with pytest.raises(MqttError) as fault:
        split_filter(full, start)
    assert fault.value.reason_code == TOPIC_FILTER_INVALID
    assert "$stream/" in fault.value.text


def test_a_place_comes_back_from_its_bytes() -> None:
    place = first_place("ä/#".encode(), "last", Start(5, True, {"n1": -2}), NOW)
    assert place.logs == {"n1": LogPlace("", -2)}
    place.logs["n2"] = LogPlace("id", 7, 9)
    assert decode_place(place.encode()) == place == Place("ä/#".encode(), "last", 5, True, place.logs, NOW)
    earlier = json.loads(place.encode())
    del earlier["begun"]
    assert decode_place(json.dumps(earlier).encode()) == replace(place, begun_ns=0), "of an earlier build"


@pytest.mark.parametrize("position", [b"", b"\xff", b"[]", b"{}", b'{"logs": 1}', b'{"logs": {"n": [1]}}'])
def test_other_bytes_are_no_place(position: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_place(position)


def test_a_place_that_is_behind_what_two_subscriptions_have_had() -> None:
    here = Place(
        b"a", "earliest", 0, False, {"n1": LogPlace("id1", 5), "n2": LogPlace("id2", 9), "n3": LogPlace("new", 1)}
    )
    former = Place(
        b"a", "earliest", 0, False, {"n1": LogPlace("id1", 7), "n2": LogPlace("id2", 8), "n3": LogPlace("old", 4)}
    )
    former.logs["n4"] = LogPlace("id4", 3)
    wanted = {**here.logs, "n1": LogPlace("id1", 7), "n4": LogPlace("id4", 3)}
    assert further_place(here, former) == Place(b"a", "earliest", 0, False, wanted)
    for other in (Place(b"a", "-1h", 0, False, former.logs), Place(b"b", "earliest", 0, False, former.logs)):
        assert further_place(here, other) is here


def test_of_two_starts_the_later_subscribe_holds() -> None:
    first = Place(b"a", "earliest", 0, False, {"n1": LogPlace("id", 5)}, NOW)
    later = Place(b"a", '{"n1": 5}', 0, False, {"n1": LogPlace("id", 9)}, NOW + 1)
    assert further_place(first, later) is later
    assert further_place(later, first) is later
    assert further_place(first, replace(first, begun_ns=NOW + 1)).begun_ns == NOW + 1
