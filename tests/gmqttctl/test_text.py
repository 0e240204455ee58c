"""Tables, times and sizes as text."""

from __future__ import annotations

from gmqttctl.text import duration, instant, size

TIME = 1_700_000_000_123_456_789


def test_instants_sizes_and_durations() -> None:
    assert (instant(0), instant(TIME)) == ("-", "2023-11-14T22:13:20.123Z")
    assert [size(count) for count in (0, 1023, 1024, 5 << 30, 3 << 42)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 GiB",
        "12.0 TiB",
    ]
    assert [duration(seconds) for seconds in (-1.0, 0.2, 61.0, 3_600.0, 100_000.0)] == [
        "0s",
        "0s",
        "1m 1s",
        "1h",
        "1d 3h",
    ]
