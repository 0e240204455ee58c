"""Fetch sessions: what is asked and told is what a consumer that always names everything would ask and be told."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.error_codes import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, NONE
from broker.kafka.fetch_sessions import IDLE_SECONDS, PARTITIONS_MAX, SESSIONS_MAX, FetchSessions, Wanted


def request(session: int, epoch: int, wanted: dict[int, int], forgotten: tuple[int, ...] = ()) -> dict[str, Any]:
    """`wanted`: offsets by partition of the topic `t`."""
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 10, "current_leader_epoch": -1}
        for index, offset in wanted.items()
    ]
    return {
        "session_id": session,
        "session_epoch": epoch,
        "topics": [{"topic": "t", "partitions": partitions}],
        "forgotten_topics_data": [{"topic": "t", "partitions": list(forgotten)}],
    }


def as_wanted(offsets: dict[int, int]) -> dict[tuple[str, int], Wanted]:
    return {("t", index): Wanted(offset, 10, -1) for index, offset in offsets.items()}


offsets = st.dictionaries(st.integers(0, 4), st.integers(0, 9), max_size=4)


@given(offsets.filter(bool), st.lists(st.tuples(offsets, st.sets(st.integers(0, 4))), max_size=8))
def test_a_session_asks_for_the_sum_of_its_changes(
    first: dict[int, int], changes: list[tuple[dict[int, int], set[int]]]
) -> None:
    sessions = FetchSessions(Random(1), {"t"})
    asked = sessions.asked(request(0, 0, first), 0.0)
    assert asked.session is not None
    assert (asked.error, asked.wanted, asked.is_full) == (NONE, as_wanted(first), True)
    model = dict(first)
    for epoch, (changed, forgotten) in enumerate(changes, 1):
        asked = sessions.asked(request(asked.session.number, epoch, changed, tuple(forgotten)), 0.0)
        model.update(changed)
        for index in forgotten:
            model.pop(index, None)
        assert (asked.error, asked.wanted, asked.is_full) == (NONE, as_wanted(model), False)
        assert asked.session is not None


def test_unknown_sessions_and_wrong_epochs() -> None:
    sessions = FetchSessions(Random(1), {"t"})
    assert sessions.asked(request(5, 1, {}), 0.0).error == FETCH_SESSION_ID_NOT_FOUND
    opened = sessions.asked(request(0, 0, {0: 0}), 0.0).session
    assert opened is not None
    assert sessions.asked(request(opened.number, 2, {}), 0.0).error == INVALID_FETCH_SESSION_EPOCH
    assert sessions.asked(request(opened.number, 1, {}), 0.0).error == NONE
    closed = sessions.asked(request(opened.number, -1, {0: 3}), 0.0)
    assert (closed.session, closed.wanted) == (None, as_wanted({0: 3}))
    assert sessions.asked(request(opened.number, 2, {}), 0.0).error == FETCH_SESSION_ID_NOT_FOUND


def test_older_versions_have_no_sessions() -> None:
    values = request(0, 0, {0: 0})
    for name in ("session_id", "session_epoch", "forgotten_topics_data"):
        del values[name]
    del values["topics"][0]["partitions"][0]["current_leader_epoch"]
    asked = FetchSessions(Random(1), {"t"}).asked(values, 0.0)
    assert (asked.session, asked.wanted, asked.is_full) == (None, as_wanted({0: 0}), True)


def test_an_answer_tells_what_has_changed() -> None:
    session = FetchSessions(Random(1), {"t"}).asked(request(0, 0, {0: 0}), 0.0).session
    assert session is not None
    told = [
        session.must_tell(("t", 0), error, watermark, start, has_records)
        for error, watermark, start, has_records in (
            (0, 5, 0, False),
            (0, 5, 0, False),
            (0, 5, 0, True),
            (0, 6, 0, False),
            (0, 6, 1, False),
            (1, 6, 1, False),
            (0, 6, 1, False),
        )
    ]
    assert told == [True, False, True, True, True, True, False]


def test_the_number_of_sessions_is_bounded() -> None:
    """Beyond it consumers fetch without one, until the session that was unused for longest is old enough."""
    sessions = FetchSessions(Random(1), {"t"})
    numbers = []
    for _ in range(SESSIONS_MAX):
        session = sessions.asked(request(0, 0, {0: 0}), 0.0).session
        assert session is not None
        numbers.append(session.number)
    assert len(set(numbers)) == SESSIONS_MAX
    assert sessions.asked(request(0, 0, {0: 0}), 1.0).session is None
    assert sessions.asked(request(numbers[0], 1, {}), IDLE_SECONDS).error == NONE  # is used
    assert sessions.asked(request(0, 0, {0: 0}), IDLE_SECONDS).session is not None
    assert sessions.asked(request(numbers[1], 1, {}), IDLE_SECONDS).error == FETCH_SESSION_ID_NOT_FOUND
    assert sessions.asked(request(numbers[0], 2, {}), IDLE_SECONDS).error == NONE
    assert (len(sessions), sessions.evicted, sessions.refused) == (SESSIONS_MAX, 1, 1)


def test_the_partitions_of_a_session_are_bounded() -> None:
    sessions = FetchSessions(Random(1), {"t"})
    many = dict.fromkeys(range(PARTITIONS_MAX), 0)
    assert sessions.asked(request(0, 0, many | {PARTITIONS_MAX: 0}), 0.0).session is None
    session = sessions.asked(request(0, 0, many), 0.0).session
    assert session is not None
    asked = sessions.asked(request(session.number, 1, {PARTITIONS_MAX: 0, 5: 7}), 0.0)
    assert len(asked.wanted) == PARTITIONS_MAX
    assert asked.wanted["t", 5].offset == 7


def test_a_session_keeps_no_topic_that_the_node_does_not_have() -> None:
    """Its name may have any length. The answer to the request that names it says that it is unknown."""
    sessions = FetchSessions(Random(1), {"t"})
    unknown = "x" * 100_000, 0

    def with_unknown(session: int, epoch: int) -> dict[str, Any]:
        asked = request(session, epoch, {0: 5})
        asked["topics"].append({"topic": unknown[0], "partitions": request(0, 0, {0: 5})["topics"][0]["partitions"]})
        return asked

    opened = sessions.asked(with_unknown(0, 0), 0.0)
    assert opened.session is not None
    number = opened.session.number
    for asked in (opened, sessions.asked(with_unknown(number, 1), 0.0)):
        assert set(asked.wanted) == {("t", 0), unknown}
    asked = sessions.asked(request(number, 2, {}), 0.0)
    assert asked.wanted == as_wanted({0: 5})
