"""A query keeps its node: in the checkpoint folder, whatever its options say later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from event_log_node import EventLogNode, event_log_nodes
from pipeline.errors import NodeAway, OptionError, PipelineError
from pipeline.options import sink_options
from pipeline.sink import NODE_FILE, kept_node, read_node, write_node


def stream_node(checkpoint: str | Path, *servers: EventLogNode, node: str = "") -> str:
    options = {"servers": ",".join(each.address for each in servers), "checkpointLocation": str(checkpoint)}
    return kept_node(sink_options({**options, "node": node}, is_stream=True))[0]


def test_a_stream_keeps_the_node_that_was_chosen_first(tmp_path: Path) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        first = stream_node(tmp_path / "c", a)
        assert read_node(tmp_path / "c" / NODE_FILE) == first
        assert stream_node(tmp_path / "c", b) == first
        assert stream_node(f"file://{tmp_path}/c", b, a) == first
        assert stream_node(tmp_path / "d", a, node="n2") == "n2"
        assert stream_node(tmp_path / "d", a) == "n2"


def test_another_node_is_refused_while_the_checkpoint_names_one(tmp_path: Path) -> None:
    with event_log_nodes("n1", "n2") as (a, _):
        stream_node(tmp_path, a, node="n1")
        with pytest.raises(OptionError, match='option node: "n2" is not n1, which published the earlier batches'):
            stream_node(tmp_path, a, node="n2")


def test_a_node_that_is_away_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        stream_node(tmp_path, a, node="n2")
        b.stop()
        monkeypatch.setattr("pipeline.sink.NODE_PATIENCE_SECONDS", 0.0)
        with pytest.raises(NodeAway, match=r"node n2: is needed, and did not answer for 0 s: ALIVE, does not answer"):
            stream_node(tmp_path, a)
        with pytest.raises(NodeAway, match=r"node n2: .* leads to no event log"):
            stream_node(tmp_path, b)
        with pytest.raises(OptionError, match=r'option node: "n9" is no member; there are n1, n2'):
            stream_node(tmp_path / "other", a, node="n9")


def test_a_node_that_is_restarted_is_waited_for(tmp_path: Path) -> None:
    with event_log_nodes("n1") as (a,):
        stream_node(tmp_path, a)
        a.stop()
        with ThreadPoolExecutor() as pool:
            found = pool.submit(stream_node, tmp_path, a)
            a.start()
            assert found.result() == "n1"


def test_a_checkpoint_that_is_no_folder_here_needs_option_node(tmp_path: Path) -> None:
    with event_log_nodes("n1") as (a,):
        with pytest.raises(OptionError, match=r"option node: .* is no folder of this machine"):
            stream_node("hdfs://host/c", a)
        assert stream_node("hdfs://host/c", a, node="n1") == "n1"
        with pytest.raises(OptionError, match="option checkpointLocation"):
            stream_node("", a)


def test_a_batch_write_takes_the_node_of_its_options() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        options = {"servers": b.address, "jobId": "j"}
        assert kept_node(sink_options({**options, "node": "n1"}, is_stream=False)) == ("n1", a.address)


def test_a_batch_write_without_a_node_takes_the_first_server_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run of the same job must find the node that knows what the first one published."""
    monkeypatch.setattr("pipeline.sink.NODE_PATIENCE_SECONDS", 0.0)
    with event_log_nodes("n1", "n2", "n3", "n4", "n5", "n6") as nodes:
        for first in (nodes, nodes[::-1]):
            options = {"servers": ",".join(node.address for node in first), "jobId": "j"}
            assert kept_node(sink_options(options, is_stream=False))[0] == first[0].node
        nodes[-1].stop()
        with pytest.raises(NodeAway, match=f"node {nodes[-1].address}: does not answer"):
            kept_node(sink_options(options, is_stream=False))


def test_a_stream_without_a_node_takes_the_first_server_that_answers(tmp_path: Path) -> None:
    with event_log_nodes("n1", "n2", "n3", "n4", "n5", "n6") as nodes:
        nodes[5].stop()
        assert stream_node(tmp_path, *nodes[::-1]) == "n5"


@pytest.mark.parametrize("content", ["{", "[]", '{"node": 1}', '{"node": ""}'])
def test_a_damaged_file_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / NODE_FILE
    file.write_text(content)
    with pytest.raises(PipelineError, match=str(file)):
        read_node(file)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match=f"checkpoint folder {tmp_path}/file cannot be written"):
        write_node(tmp_path / "file" / NODE_FILE, "n1")
