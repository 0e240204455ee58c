"""Checkpoints, options that name offsets, and each row of the table in docs/pipeline.md."""

from __future__ import annotations

import logging

import pytest

from broker.event_log.lineage import Parent
from pipeline.errors import DataLoss, OptionError, PipelineError
from pipeline.offsets import LogOffset, NodeState, Offsets, decode_offsets, encode_offsets, go_on, resolve
from pipeline.options import EARLIEST, LATEST, Position


def state(node: str, log_id: str, first: int, following: int, **parents: int) -> NodeState:
    former = tuple(Parent(parent, end) for parent, end in parents.items())
    return NodeState(node, f"{node}:1", log_id, first, following, parents=former)


NODES = {"n1": state("n1", "L1", 10, 100), "n2": state("n2", "L2", 0, 50)}


def test_a_checkpoint_is_written_and_read() -> None:
    offsets = {"n2": LogOffset("L2", 7), "n1": LogOffset("L1", 20)}
    written = encode_offsets(offsets)
    assert written == {"n1": {"log": "L1", "offset": 20}, "n2": {"log": "L2", "offset": 7}}
    assert decode_offsets(written) == offsets


@pytest.mark.parametrize(
    "found", [{"topic": {"0": 5}}, {"n1": 5}, {"n1": {"log": "x"}}, {"n1": {"log": "x", "offset": -1}}, [1], None]
)
def test_a_checkpoint_of_another_source_is_named(found: object) -> None:
    with pytest.raises(PipelineError, match="checkpoint is of another source"):
        decode_offsets(found)


@pytest.mark.parametrize(
    ("position", "found", "offsets"),
    [
        (Position(EARLIEST), {}, {"n1": 10, "n2": 0}),
        (Position(LATEST), {}, {"n1": 100, "n2": 50}),
        (Position(EARLIEST, {"n1": -2, "n2": -1}), {}, {"n1": 10, "n2": 50}),
        (Position(EARLIEST, {"n1": 100, "n2": 0}), {}, {"n1": 100, "n2": 0}),
        (Position(EARLIEST, None, 5), {"n1": 33, "n2": 44}, {"n1": 33, "n2": 44}),
    ],
)
def test_options_give_the_offset_of_each_node(
    position: Position, found: dict[str, int], offsets: dict[str, int]
) -> None:
    resolved = resolve("startingOffsets", position, NODES, found)
    assert {node: each.offset for node, each in resolved.items()} == offsets
    assert {node: each.log for node, each in resolved.items()} == {"n1": "L1", "n2": "L2"}


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ({"n1": 10}, '"n1" does not name node n2; all nodes are n1, n2'),
        ({"n1": 10, "n2": 1, "n9": 1}, "names node n9"),
        ({"n1": 9, "n2": 1}, r'option startingOffsets: "9" of node n1 is not in its log, which has 10 to 100'),
        ({"n1": 101, "n2": 1}, '"101" of node n1'),
    ],
)
def test_offsets_that_are_not_there_are_named(offsets: dict[str, int], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        resolve("startingOffsets", Position(EARLIEST, offsets), NODES, {})


KNOWN: Offsets = {"n1": LogOffset("L1", 20), "n2": LogOffset("L2", 7)}
NEW = state("n3", "L3", 5, 9)


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize(
    ("nodes", "away", "expected"),
    [
        pytest.param(NODES, (), KNOWN, id="nothing changed"),
        pytest.param({**NODES, "n3": NEW}, (), {**KNOWN, "n3": LogOffset("L3", 5)}, id="node added"),
        pytest.param({"n1": NODES["n1"]}, ("n2",), {"n1": KNOWN["n1"]}, id="node away"),
        pytest.param({"n1": NODES["n1"]}, (), {"n1": KNOWN["n1"]}, id="node left"),
        pytest.param({}, ("n1", "n2"), {}, id="all away"),
        pytest.param(
            {**NODES, "n1": state("n1", "L9", 10, 100, L1=20)}, (), {**KNOWN, "n1": LogOffset("L9", 20)}, id="new id"
        ),
        pytest.param(
            {**NODES, "n1": state("n1", "L9", 10, 100, L0=5, L1=40, L5=60)},
            (),
            {**KNOWN, "n1": LogOffset("L9", 20)},
            id="new id, not the first one",
        ),
        pytest.param({"n3": NEW}, ("n1",), {"n3": LogOffset("L3", 5)}, id="away, another added"),
    ],
)
def test_nodes_that_come_and_go_lose_nothing(
    nodes: dict[str, NodeState], away: tuple[str, ...], expected: Offsets, fail: bool
) -> None:
    assert go_on(KNOWN, nodes, away, fail) == expected


@pytest.mark.parametrize(
    ("nodes", "expected", "text"),
    [
        pytest.param(
            {**NODES, "n1": state("n1", "other", 3, 9)},
            {**KNOWN, "n1": LogOffset("other", 3)},
            "node n1 has log other, the query read log L1 up to offset 20",
            id="log id changed",
        ),
        pytest.param(
            {**NODES, "n1": state("n1", "other", 3, 90, L1=17, L5=17)},
            {**KNOWN, "n1": LogOffset("other", 17)},
            "node n1: the records of offsets 17 to 19 that the query read are lost",
            id="the end may be others",
        ),
        pytest.param(
            {**NODES, "n1": state("n1", "L1", 60, 100)},
            {**KNOWN, "n1": LogOffset("L1", 60)},
            "node n1 has records from offset 60 on, the query needs those from 20 on: the retention",
            id="below retention",
        ),
        pytest.param(
            {**NODES, "n1": state("n1", "L1", 0, 15)},
            {**KNOWN, "n1": LogOffset("L1", 15)},
            "node n1 has records up to offset 15 in log L1, the query read up to 20",
            id="log is shorter",
        ),
        pytest.param(
            {"n3": NEW},
            {"n3": LogOffset("L3", 5)},
            r"checkpoint is of other nodes \(n1, n2\) than those that answer \(n3\)",
            id="another cluster",
        ),
    ],
)
def test_lost_data_fails_or_is_a_warning(
    nodes: dict[str, NodeState], expected: Offsets, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLoss, match=f"(?s){text}.*failOnDataLoss"):
        go_on(KNOWN, nodes, (), fail=True)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert go_on(KNOWN, nodes, (), fail=False) == expected
    assert [record.levelname for record in caplog.records] == ["WARNING"]
