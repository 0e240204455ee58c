"""Replays: topics, batches, pace, and a run that goes on after a crash at any point."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.pb import event_log_pb2 as pb
from event_log_node import EventLogNode, event_log_nodes
from gmqttctl.connection import Connection
from pipeline.client import NodeClient
from pipeline.errors import OptionError, PipelineError
from pipeline.replay import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    Key,
    Message,
    ReplayState,
    TopicMap,
    batches,
    due,
    read_state,
)
from pipeline.replay_run import publish

PARAMETERS: dict[str, Any] = {"from": 0, "to": 100, "source": "log", "topics": [], "topic-map": []}


def message(offset: int, time: int | None = None, payload: bytes = b"") -> Message:
    key = Key(offset if time is None else time, "n", offset)
    return Message(key, "t", payload or str(offset).encode(), 1, False, (("k", "v"),))


def test_the_first_rule_that_fits_names_the_topic() -> None:
    rules = TopicMap(["a=b", "house/kitchen/#=k/#", "house/#=replay/house/#"])
    topics = ("a", "a/b", "house", "house/kitchen/t", "house/hall/t", "housed")
    mapped = {topic: rules.map(topic) for topic in topics}
    assert mapped == {
        "a": "b",
        "a/b": "a/b",
        "house": "house",
        "house/kitchen/t": "k/t",
        "house/hall/t": "replay/house/hall/t",
        "housed": "housed",
    }
    assert TopicMap(["#=replay/#"]).map("house/t") == "replay/house/t"
    assert TopicMap(["replay/#=#"]).map("replay/t") == "t"


@pytest.mark.parametrize("text", ["a", "=b", "a=", "a/#=b", "a=b/#", "a/+/#=b/#", "a+=b", "a#=b"])
def test_wrong_rules_are_named(text: str) -> None:
    with pytest.raises(OptionError, match="option --topic-map: "):
        TopicMap([text])


def test_batches_are_of_one_slice_and_bounded() -> None:
    found = [message(0, 5), message(1, 9), message(2, 10), message(3, 31)]
    assert [[each.key.offset for each in batch] for batch in batches(found, 10)] == [[0, 1], [2], [3]]
    assert [len(batch) for batch in batches(found, 0)] == [4]
    many = [message(each, 1) for each in range(BATCH_ROWS_MAX + 1)]
    assert [len(batch) for batch in batches(many, 0)] == [BATCH_ROWS_MAX, 1]
    large = [message(each, 1, b"x" * (BATCH_BYTES_MAX // 2 + 1)) for each in range(3)]
    assert [len(batch) for batch in batches(large, 0)] == [1, 1, 1]


@given(st.lists(st.integers(0, 50)).map(sorted), st.integers(0, 10))
def test_batches_have_all_messages_in_order(times: list[int], slice_ns: int) -> None:
    found = [message(offset, time) for offset, time in enumerate(times)]
    assert [each for batch in batches(found, slice_ns) for each in batch] == found


def test_the_pace_follows_the_messages() -> None:
    assert due(1_000_000_000, 1_000_000_000, begin=50.0, speed=10.0) == 50.0
    assert due(21_000_000_000, 1_000_000_000, begin=50.0, speed=10.0) == 52.0
    assert due(10**12, 0, begin=50.0, speed=0.0) == 50.0


def test_a_state_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    assert read_state(path, PARAMETERS) is None
    state = ReplayState(PARAMETERS, "n1", 3, 10, Key(5, "n", 7), Key(6, "n", 8))
    state.write(path)
    assert read_state(path, PARAMETERS) == state
    with pytest.raises(OptionError, match='option --to: "90" is not 100, with which replay job began'):
        read_state(path, {**PARAMETERS, "to": 90})
    state.done = True
    state.write(path)
    with pytest.raises(OptionError, match='option --job: "job" is done, with 10 messages'):
        read_state(path, PARAMETERS)
    path.write_text("{")
    with pytest.raises(PipelineError, match=r"job\.json cannot be read"):
        read_state(path, PARAMETERS)


def test_a_state_of_an_earlier_build_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    former = {"parameters": PARAMETERS, "node": "n1", "batch": 3, "rows": 10, "done": False}
    path.write_text(json.dumps({**former, "last": [5, "n", "log", 7], "pending": [6, "n", "log", 8]}))
    assert read_state(path, PARAMETERS) == ReplayState(PARAMETERS, "n1", 3, 10, Key(5, "n", 7), Key(6, "n", 8))


def test_another_replay_of_the_same_name_publishes_its_own_messages(tmp_path: Path) -> None:
    """With a state file of its own: another folder, or another machine."""
    found = [message(offset) for offset in range(25)]
    with event_log_nodes("n1") as (node,), NodeClient(node.address, Connection((node.address,)), "n1") as client:
        for _ in range(2):
            state = ReplayState(PARAMETERS, "n1")
            publish(client, iter(found), state, tmp_path / "job.json", 0, threading.Event(), lambda *_: None)
        assert len(payloads(node)) == 50


@pytest.mark.parametrize("has_pending", [False, True])
def test_a_replay_of_an_earlier_build_repeats_its_pending_batch_alone(tmp_path: Path, has_pending: bool) -> None:
    """Of what the node has under the name of the job, only the pending batch is known to be of this replay."""
    path = tmp_path / "job.json"
    found = [message(offset) for offset in range(25)]
    with event_log_nodes("n1") as (node,), NodeClient(node.address, Connection((node.address,)), "n1") as client:
        for batch in range(3):
            node.published["replay-job", batch] = []
        pending = found[9].key if has_pending else None
        ReplayState(PARAMETERS, "n1", 1, 5, found[4].key, pending).write(path)
        state = read_state(path, PARAMETERS)
        assert state is not None
        publish(client, iter(found), state, path, 4e-8, threading.Event(), lambda *_: None)
        assert payloads(node) == [each.payload for each in found[10 if has_pending else 5 :]]
        assert (state.done, state.rows) == (True, 25)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_the_answer_of_a_commit_is_lost(tmp_path: Path, batch: int) -> None:
    """The client asks again by itself, and the node has the batch."""
    found = [message(offset) for offset in range(25)]
    with event_log_nodes("n1") as (node,), LossyClient(node.address, Connection((node.address,)), "n1") as client:
        assert isinstance(client, LossyClient)
        client.lost = batch
        state = ReplayState(PARAMETERS, "n1")
        publish(client, iter(found), state, tmp_path / "job.json", 4e-8, threading.Event(), lambda *_: None)
        assert payloads(node) == [each.payload for each in found]
        assert (state.done, state.rows) == (True, 25)


def test_a_state_and_its_name_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older state would divide the messages into other batches than those that were published."""
    synced: list[Path] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    ReplayState({}, "n1").write(tmp_path / "j.json")
    assert synced == [tmp_path / ".j.json", tmp_path]


def test_a_message_that_the_sink_does_not_take_is_named(tmp_path: Path) -> None:
    found = [message(0), message(1)._replace(topic="a/#")]
    with event_log_nodes("n1") as (node,), NodeClient(node.address, Connection((node.address,)), "n1") as client:
        state = ReplayState(PARAMETERS, "n1")
        with pytest.raises(PipelineError, match=r"row 1 of the replay: .* wildcard .*from offset 0 of node n, .* on"):
            publish(client, iter(found), state, tmp_path / "j", 0, threading.Event(), lambda *_: None)
        assert node.published == {}


class Crashed(Exception):
    pass


class CrashingClient(NodeClient):
    """Fails before or after the calls that `crashes` names, each once: (call, batch, whether the node got it)."""

    def __init__(self, address: str, connection: Connection, node: str, crashes: list[tuple[str, int, bool]]) -> None:
        super().__init__(address, connection, node)
        self._crashes = crashes

    def stage(self, query: str, batch: int, partition: int, attempt: int, blocks: Iterable[bytes]) -> None:
        self._crash("stage", batch, False)
        super().stage(query, batch, partition, attempt, blocks)
        self._crash("stage", batch, True)

    def commit(self, request: pb.CommitRequest) -> pb.CommitResponse:
        self._crash("commit", request.batch, False)
        answer = super().commit(request)
        self._crash("commit", request.batch, True)
        return answer

    def _crash(self, call: str, batch: int, is_after: bool) -> None:
        if (call, batch, is_after) in self._crashes:
            self._crashes.remove((call, batch, is_after))
            raise Crashed


class LossyClient(NodeClient):
    """`lost` is the batch the answer of whose commit does not come."""

    lost = 0

    def commit(self, request: pb.CommitRequest) -> pb.CommitResponse:
        if request.batch == self.lost:
            super().commit(request)
        return super().commit(request)


def payloads(node: EventLogNode) -> list[bytes]:
    return [payload for _, rows in sorted(node.published.items()) for _, payload, *_ in rows]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("call", ["stage", "commit"])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_replay_goes_on_after_a_crash(tmp_path: Path, call: str, batch: int, is_after: bool) -> None:
    path = tmp_path / "job.json"
    found = [message(offset) for offset in range(25)]
    shown: list[tuple[int, int]] = []
    with (
        event_log_nodes("n1") as (node,),
        CrashingClient(node.address, Connection((node.address,)), "n1", [(call, batch, is_after)]) as client,
    ):
        state = ReplayState(PARAMETERS, "n1")
        with pytest.raises(Crashed):
            publish(client, iter(found), state, path, 4e-8, threading.Event(), lambda *_: None)
        resumed = read_state(path, PARAMETERS)
        assert resumed is not None
        publish(client, iter(found), resumed, path, 4e-8, threading.Event(), lambda *each: shown.append(each))
        assert payloads(node) == [each.payload for each in found]
        assert sorted(number for _, number in node.published) == [0, 1, 2]
    assert (resumed.done, resumed.rows) == (True, 25)
    if batch < 2:
        assert shown[-1] == (24, 25)


def test_a_replay_stops_between_batches(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    stop = threading.Event()
    found = [message(offset) for offset in range(25)]
    with event_log_nodes("n1") as (node,), NodeClient(node.address, Connection((node.address,)), "n1") as client:
        state = ReplayState(PARAMETERS, "n1")
        publish(client, iter(found), state, path, 4e-8, stop, lambda *_: stop.set())
        assert (state.done, state.rows) == (False, 10)
        assert len(payloads(node)) == 10
