"""Durations and sizes, from text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.durations import DurationError, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("+0", 0.0),
        ("-0", 0.0),
        ("0s", 0.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("500ms", 0.5),
        ("2h", 7200.0),
        ("1h1m1s1ms1us1ns", 3661.001001001),
        ("3µs", 0.000003),
        ("3μs", 0.000003),
        ("-1m", -60.0),
        ("1s1s", 2.0),
    ],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a duration"),
        ("5", '"5s"'),
        ("1.5", '"1.5s"'),
        ("s", "not a duration"),
        ("5 s", "not a duration"),
        ("5d", "not a duration"),
        ("--5s", "not a duration"),
        ("1h30", "not a duration"),
        ("٣s", "not a duration"),
        ("9999999h", "longer than"),
        ("1" * 200 + "s", "not a duration"),
    ],
)
def test_parse_duration_refuses(text: str, said: str) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0"), (7200.0, "2h"), (5400.0, "1h30m"), (0.2, "200ms"), (61.5, "1m1s500ms"), (-5.0, "-5s"), (1e-9, "1ns")],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 10**6 * 10**9))
def test_a_printed_duration_is_read_as_the_same_one(nanoseconds: int) -> None:
    seconds = nanoseconds / 10**9
    assert round(parse_duration(format_duration(seconds)) * 10**9) == round(seconds * 10**9)


@given(st.text(alphabet="0123456789.hmsunµ+- ", max_size=20))
def test_any_text_is_a_duration_or_a_duration_error(text: str) -> None:
    try:
        parse_duration(text)
    except DurationError:
        pass


@given(st.integers(0, 2**60))
def test_a_printed_size_is_read_as_the_same_one(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "KiB", "-1", "1.5MiB", "1kb", "1 000"])
def test_parse_size_refuses(text: str) -> None:
    with pytest.raises(DurationError, match="64KiB"):
        parse_size(text)
