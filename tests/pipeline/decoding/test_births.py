"""Sparkplug: what births say of later messages, and that it does not matter where the state is saved."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.decoding.births import HEARD_NS, SILENT_NS, EdgeNode, EdgeNodes, Heard, Place, heard_of, read_topic
from pipeline.decoding.metrics import decode_metrics
from pipeline.decoding.paths import Undecodable
from sparkplug_messages import DOUBLE, INT8, STRING, metric, payload

SPEED = payload(metric(alias=1, double_value=2.0))
NBIRTH = payload(metric("speed", 1, DOUBLE, double_value=1.0), metric("mode", 2, STRING, string_value="a"))
DBIRTH = payload(metric("level", 7, INT8, int_value=3))


def node(kind: str, device: str = "") -> Place:
    return Place("g/n", kind, device)


def values(edge: EdgeNode, place: Place, data: bytes) -> object:
    try:
        return decode_metrics(edge.resolve(place, data))["metrics"]
    except Undecodable as reason:
        return str(reason)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("spBv1.0/g/NBIRTH/n", Place("g/n", "NBIRTH", "")),
        ("spBv1.0/g/DDATA/n/d", Place("g/n", "DDATA", "d")),
        ("spBv1.0/g/NDATA/n/d", None),
        ("spBv1.0/g/DDATA/n", None),
        ("spBv1.0/STATE/host", None),
        ("spAv1.0/g/NDATA/n", None),
        ("", None),
    ],
)
def test_topics(topic: str, expected: Place | None) -> None:
    if expected is None:
        with pytest.raises(Undecodable, match=r"spBv1\.0/GROUP"):
            read_topic(topic)
    else:
        assert read_topic(topic) == expected


def test_an_alias_has_the_name_and_type_of_the_birth() -> None:
    edge = EdgeNode()
    assert values(edge, node("NBIRTH"), NBIRTH) == {"speed": 1.0, "mode": "a"}
    assert values(edge, node("DBIRTH", "d"), DBIRTH) == {"level": 3}
    assert values(edge, node("NDATA"), payload(metric(alias=1, double_value=2.0))) == {"speed": 2.0}
    assert values(edge, node("DDATA", "d"), payload(metric(alias=7, int_value=0xFF))) == {"level": -1}
    assert values(edge, node("DDATA", "d"), payload(metric("level", int_value=5))) == {"level": 5}
    # Commands have aliases, too; a death has names and types of its own.
    assert values(edge, node("DCMD", "d"), payload(metric(alias=7, int_value=1))) == {"level": 1}
    assert values(edge, node("NDEATH"), payload(metric("bdSeq", datatype=INT8, int_value=1))) == {"bdSeq": 1}
    assert values(edge, node("NDATA"), payload(metric(alias=2, string_value="b"))) == {"mode": "b"}


def test_without_a_birth_messages_go_aside() -> None:
    edge = EdgeNode()
    data = payload(metric(alias=1, double_value=2.0))
    assert values(edge, node("NDATA"), data) == "alias 1: no birth of the edge node comes before in this log"
    edge.resolve(node("NBIRTH"), NBIRTH)
    assert "no birth of device d" in str(values(edge, node("DDATA", "d"), data))
    assert values(edge, node("NDATA"), payload(metric(alias=9, double_value=2.0))) == "alias 9 is not in the birth"
    assert "'other' is not in the birth" in str(values(edge, node("NDATA"), payload(metric("other", int_value=1))))
    assert values(edge, node("NDATA"), payload(metric("new", datatype=INT8, int_value=1))) == {"new": 1}


def test_a_rebirth_gives_aliases_other_meanings() -> None:
    edge = EdgeNode()
    edge.resolve(node("NBIRTH"), NBIRTH)
    edge.resolve(node("DBIRTH", "d"), DBIRTH)
    edge.resolve(node("NBIRTH"), payload(metric("mode", 1, STRING, string_value="b")))
    assert values(edge, node("NDATA"), payload(metric(alias=1, string_value="c"))) == {"mode": "c"}
    assert "is not in the birth" in str(values(edge, node("NDATA"), payload(metric(alias=2, string_value="c"))))
    # The devices are born again, too (chapter 5).
    assert "no birth of device d" in str(values(edge, node("DDATA", "d"), payload(metric(alias=7, int_value=1))))


@pytest.mark.parametrize(
    ("birth", "reason"),
    [
        (b"\xff", "no payload"),
        (payload(metric("abc", 1, INT8)).replace(b"abc", b"\xff\xfea"), "not UTF-8"),
        (payload(metric("a", 1)), "has no datatype"),
        (payload(metric(None, 1, INT8)), "has no name"),
        (payload(metric("a", 1, INT8, int_value=1), metric("b", 1, INT8, int_value=1)), "alias twice"),
        (payload(metric("a", 1, INT8, int_value=1), metric("a", 2, INT8, int_value=1)), "name or an alias twice"),
    ],
)
def test_a_birth_that_is_wrong_ends_the_one_before(birth: bytes, reason: str) -> None:
    """Its aliases may have other meanings: wrong values are worse than rows that go aside."""
    edge = EdgeNode()
    edge.resolve(node("NBIRTH"), NBIRTH)
    assert reason in str(values(edge, node("NBIRTH"), birth))
    assert "no birth of the edge node" in str(values(edge, node("NDATA"), payload(metric(alias=1, double_value=2.0))))


def test_a_metric_needs_a_name_or_an_alias() -> None:
    edge = EdgeNode()
    edge.resolve(node("NBIRTH"), payload(metric("speed", 0, DOUBLE, double_value=1.0)))
    assert "neither a name nor an alias" in str(values(edge, node("NDATA"), payload(metric(double_value=2.0))))
    data = payload(metric("abc", datatype=INT8, int_value=1)).replace(b"abc", b"\xff\xfea")
    assert "not UTF-8" in str(values(edge, node("NDATA"), data))


@pytest.mark.interpreted
def test_the_metrics_of_an_edge_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.decoding.births.METRICS_MAX", 2)
    edge = EdgeNode()
    edge.resolve(node("NBIRTH"), NBIRTH)
    assert "more than 2 metrics" in str(values(edge, node("DBIRTH", "d"), DBIRTH))
    edge.resolve(node("NBIRTH"), payload())
    edge.resolve(node("DBIRTH", "d"), payload())
    edge = EdgeNode.from_bytes(edge.to_bytes())
    edge.resolve(node("DBIRTH", "d"), DBIRTH)
    assert "more than 2 metrics" in str(values(edge, node("DBIRTH", "e"), payload()))
    edge.resolve(node("NBIRTH"), NBIRTH)


def kept(state: dict[str, bytes], edges: EdgeNodes) -> dict[str, bytes]:
    """The state after a batch."""
    changed = {name: edge.to_bytes() for name, edge in edges.changed.items() if edge.births}
    return {name: data for name, data in state.items() if name not in edges.changed} | changed


class Part:
    """A part of a node's log, each of whose messages is a batch of its own."""

    def __init__(self) -> None:
        self.state: dict[str, bytes] = {}
        self.heard: dict[str, Heard] = {}

    def take(self, edge: str, kind: str, data: bytes, time_ns: int, device: str = "") -> object:
        edges = EdgeNodes(self.heard, self.state.get)
        try:
            found = decode_metrics(edges.resolve(Place(edge, kind, device), data, time_ns))["metrics"]
        except Undecodable as reason:
            found = str(reason)
        self.state = kept(self.state, edges)
        self.heard = edges.heard if edges.is_changed else self.heard
        assert self.state.keys() == self.heard.keys() == edges.heard.keys()
        assert {name: EdgeNode.from_bytes(data).size for name, data in self.state.items()} == {
            name: heard.size for name, heard in self.heard.items()
        }
        return found


@pytest.mark.interpreted
def test_edge_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The births of a further one go aside, until the oldest births are a day old and make room."""
    monkeypatch.setattr("pipeline.decoding.births.EDGES_MAX", 2)
    part = Part()
    take = part.take
    for time_ns, edge in enumerate("ab"):
        take(edge, "NBIRTH", NBIRTH, time_ns)
    assert "births of 2 other edge nodes" in str(take("c", "NBIRTH", NBIRTH, SILENT_NS - 1))
    assert "no birth of the edge node" in str(take("c", "NDATA", SPEED, SILENT_NS - 1))
    assert take("a", "NDATA", SPEED, SILENT_NS - 1) == {"speed": 2.0}
    take("a", "NBIRTH", NBIRTH, SILENT_NS)  # now that of b is the oldest
    take("c", "NBIRTH", NBIRTH, SILENT_NS + 1)
    assert [take(edge, "NDATA", SPEED, SILENT_NS + 2) for edge in "ac"] == [{"speed": 2.0}] * 2
    assert "no birth of the edge node" in str(take("b", "NDATA", SPEED, SILENT_NS + 2))
    # A birth that cannot be read gives its place back.
    assert "no payload" in str(take("a", "NBIRTH", b"\xff", SILENT_NS + 3))
    take("d", "NBIRTH", NBIRTH, SILENT_NS + 4)
    assert part.state.keys() == {"c", "d"}
    # Nor does it make the others of its edge node younger.
    take("c", "NBIRTH", NBIRTH, SILENT_NS + 5)
    assert "no payload" in str(take("d", "DBIRTH", b"\xff", 2 * SILENT_NS + 4))
    take("e", "NBIRTH", NBIRTH, 2 * SILENT_NS + 4)
    assert part.state.keys() == {"c", "e"}
    # A birth with a time in the future, by a wrong clock, makes room like an old one.
    take("c", "NBIRTH", NBIRTH, 9 * SILENT_NS)
    take("e", "NBIRTH", NBIRTH, 2 * SILENT_NS + 5)
    take("f", "NBIRTH", NBIRTH, 2 * SILENT_NS + 6)
    assert part.state.keys() == {"e", "f"}
    assert "births of 2 other edge nodes" in str(take("c", "NBIRTH", NBIRTH, 2 * SILENT_NS + 7))


@pytest.mark.interpreted
def test_the_metrics_of_a_part_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit goes aside, until those that were silent longest make room."""
    monkeypatch.setattr("pipeline.decoding.births.PART_METRICS_MAX", 5)
    part = Part()
    part.take("a", "NBIRTH", NBIRTH, 0)
    part.take("b", "NBIRTH", NBIRTH, 1)
    assert "room for 1 metrics" in str(part.take("c", "NBIRTH", NBIRTH, 2))
    part.take("b", "DBIRTH", DBIRTH, 3, "d")
    assert "room for 3 metrics" in str(part.take("b", "DBIRTH", DBIRTH, 4, "e"))
    assert part.take("a", "NDATA", SPEED, 5) == {"speed": 2.0}
    part.take("c", "NBIRTH", NBIRTH, SILENT_NS)
    assert part.state.keys() == {"b", "c"}


@pytest.mark.interpreted
def test_an_edge_node_that_is_heard_gives_way_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.decoding.births.EDGES_MAX", 2)
    part = Part()
    part.take("lives", "NBIRTH", NBIRTH, 0)
    part.take("silent", "NBIRTH", NBIRTH, 1)
    for time_ns in range(0, 2 * SILENT_NS, HEARD_NS // 2):
        assert part.take("lives", "NDATA", SPEED, time_ns) == {"speed": 2.0}
        assert part.take("silent", "NCMD", SPEED, time_ns) == {"speed": 2.0}  # a host does not know that it is dead
    part.take("new", "NBIRTH", NBIRTH, 2 * SILENT_NS)
    assert part.state.keys() == {"lives", "new"}


@pytest.mark.interpreted
def test_births_of_a_state_without_times_hold_until_they_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an edge node that sends stay."""
    monkeypatch.setattr("pipeline.decoding.births.EDGES_MAX", 2)
    part = Part()
    for edge in "ab":
        part.take(edge, "NBIRTH", NBIRTH, SILENT_NS)
    part.heard = heard_of(part.state.items())
    assert part.take("a", "NDATA", SPEED, SILENT_NS + 1) == {"speed": 2.0}
    assert part.take("b", "NCMD", SPEED, SILENT_NS + 1) == {"speed": 2.0}
    part.take("c", "NBIRTH", NBIRTH, SILENT_NS + 2)
    assert part.state.keys() == {"a", "c"}


EDGE_MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from([("NBIRTH", ""), ("DBIRTH", "d"), ("NDATA", ""), ("DDATA", "d"), ("NCMD", "")]),
        st.sampled_from([NBIRTH, NBIRTH, SPEED, b"\xff"]),
        st.sampled_from([0, 1, 1, SILENT_NS, 2 * SILENT_NS]),
    ),
    max_size=30,
)


@pytest.mark.interpreted
@given(EDGE_MESSAGES, st.sets(st.integers(0, 30)))
@example(  # a birth that cannot be read did not make its edge node younger in a batch of its own
    [
        ("a", ("NBIRTH", ""), NBIRTH, 0),
        ("b", ("NBIRTH", ""), NBIRTH, 1),
        ("a", ("DBIRTH", "d"), b"\xff", SILENT_NS),
        ("c", ("NBIRTH", ""), NBIRTH, 2 * SILENT_NS),
        ("a", ("NDATA", ""), SPEED, 2 * SILENT_NS),
        ("b", ("NDATA", ""), SPEED, 2 * SILENT_NS),
    ],
    set(range(6)),
)
def test_where_batches_end_makes_no_difference(
    messages: list[tuple[str, tuple[str, str], bytes, int]], cuts: set[int]
) -> None:
    """Nor for which edge nodes make room for others."""

    def rows(cuts: set[int]) -> list[object]:
        heard: dict[str, Heard] = {}
        state: dict[str, bytes] = {}
        edges = EdgeNodes(heard, state.get)
        found: list[object] = []
        for at, (edge, (kind, device), data, time_ns) in enumerate(messages):
            if at in cuts:
                heard = edges.heard if edges.is_changed else heard
                state = kept(state, edges)
                edges = EdgeNodes(heard, state.get)
            try:
                found.append(edges.resolve(Place(edge, kind, device), data, time_ns))
            except Undecodable as reason:
                found.append(str(reason))
            assert len(edges.heard) <= 2
            assert sum(heard.size for heard in edges.heard.values()) <= 5
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pipeline.decoding.births.EDGES_MAX", 2)
        patched.setattr("pipeline.decoding.births.PART_METRICS_MAX", 5)
        assert rows(cuts) == rows(set())


KINDS = st.sampled_from(["NBIRTH", "DBIRTH", "NDATA", "DDATA", "NDEATH"])
METRICS = st.lists(
    st.builds(
        lambda name, alias, has_name, has_type: metric(
            name if has_name else None, alias, INT8 if has_type else None, int_value=alias
        ),
        st.sampled_from("abc"),
        st.integers(0, 3),
        st.booleans(),
        st.booleans(),
    ),
    max_size=3,
)
MESSAGES = st.lists(st.tuples(KINDS, METRICS.map(lambda each: payload(*each))), max_size=20)


@given(MESSAGES, st.sets(st.integers(0, 20)))
def test_the_state_may_be_saved_anywhere(messages: list[tuple[str, bytes]], cuts: set[int]) -> None:
    """A job reads batches, is killed and repeats one: the results are those of one pass."""
    places = [node(kind, "d" if kind.startswith("D") else "") for kind, _ in messages]
    whole = EdgeNode()
    expected = [values(whole, place, data) for place, (_, data) in zip(places, messages, strict=True)]
    state = EdgeNode().to_bytes()
    found: list[object] = []
    edge = EdgeNode.from_bytes(state)
    for at, (place, (_, data)) in enumerate(zip(places, messages, strict=True)):
        if at in cuts:
            if edge.is_changed:
                state = edge.to_bytes()
            edge = EdgeNode.from_bytes(state)
        found.append(values(edge, place, data))
    assert found == expected
