"""The client of one node: reading ahead, patience, and errors that name the node."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from broker.api.grpc_server import CONNECTIONS_MAX
from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.records import records
from event_log_node import EventLogNode, event_log_nodes
from gmqttctl.channel import away_reason
from gmqttctl.connection import Connection
from pipeline.client import STAGE_BYTES, NodeClient, stage_requests
from pipeline.errors import NodeAway, NodeError, NoEventLog, OptionError, OutOfRange, WrongLog
from row_blocks import a_row, block_of

CONNECTION = Connection(("x:1",))


@pytest.fixture
def node() -> Iterator[EventLogNode]:
    with event_log_nodes("n1") as (only,):
        yield only


def read_all(client: NodeClient, node: EventLogNode, start: int, end: int, max_bytes: int) -> list[int]:
    found = []
    at = start
    for asked, following, blocks in client.read(node.log_id, start, end, max_bytes=max_bytes):
        assert asked == at
        at = following
        found += [record.offset for record in records(blocks)]
    assert at == end
    return found


def test_a_range_is_read_in_several_answers(node: EventLogNode) -> None:
    node.append_numbers(100)
    with NodeClient(node.address, CONNECTION) as client:
        assert read_all(client, node, 20, 70, max_bytes=1) == list(range(20, 70))
        assert len(node.reads) == 5
        assert read_all(client, node, 0, 100, max_bytes=1 << 20) == list(range(100))
        assert read_all(client, node, 5, 5, max_bytes=1) == []


def test_an_answer_is_asked_for_while_the_one_before_is_used(node: EventLogNode) -> None:
    node.append_numbers(30)
    with NodeClient(node.address, CONNECTION) as client:
        answers = client.read(node.log_id, 0, 30, max_bytes=1)
        next(answers)
        assert node.second_read.wait(20)
        assert [(read.start_offset, read.end_offset) for read in node.reads] == [(0, 30), (10, 30)]


def test_errors_name_the_node(node: EventLogNode) -> None:
    node.append_numbers(10)
    with NodeClient(node.address, CONNECTION, "n1") as client:
        with pytest.raises(WrongLog, match=r"node n1: .*this log is"):
            list(client.read("other", 0, 5))
        with pytest.raises(OutOfRange, match="node n1: this log has 0 to 10"):
            list(client.read(node.log_id, 5, 11))
        node.fail = [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT]
        with pytest.raises(NoEventLog, match="node n1: has no event log"):
            client.describe()
        with pytest.raises(NodeError, match="as the test wants it"):
            client.describe()


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED]
)
def test_a_call_is_tried_again_while_patience_lasts(node: EventLogNode, code: grpc.StatusCode) -> None:
    node.append_numbers(30)
    with NodeClient(node.address, CONNECTION, "n1", patience=20.0) as client:
        node.fail = [code, code]
        assert read_all(client, node, 0, 30, max_bytes=1) == list(range(30))


def test_a_node_that_is_restarted_is_waited_for(node: EventLogNode) -> None:
    node.append_numbers(30)
    with NodeClient(node.address, CONNECTION, "n1", patience=30.0) as client:
        answers = client.read(node.log_id, 0, 30, max_bytes=1)
        offsets = [record.offset for record in records(next(answers)[2])]
        node.stop()
        node.start()
        offsets += [record.offset for _, _, blocks in answers for record in records(blocks)]
    assert offsets == list(range(30))


def test_a_node_that_is_away_is_an_error_for_a_client_without_patience(node: EventLogNode) -> None:
    node.stop()
    with (
        NodeClient(node.address, CONNECTION, "n1") as client,
        pytest.raises(NodeAway, match="node n1: does not answer"),
    ):
        client.describe()


class StuckNode(EventLogNode):
    def Read(self, request: pb.ReadLogRequest, context: object) -> pb.ReadLogResponse:
        return pb.ReadLogResponse(next_offset=request.start_offset)


def test_a_node_that_does_not_move_on_is_an_error() -> None:
    node = StuckNode("n1")
    try:
        with NodeClient(node.address, CONNECTION, "n1") as client, pytest.raises(NodeError, match="gave offset 0"):
            list(client.read(node.log_id, 0, 5))
    finally:
        node.stop()


def test_holds_and_the_token(node: EventLogNode) -> None:
    with NodeClient(node.address, Connection(("x:1",), token="secret")) as client:
        client.hold("g", "q", node.log_id, 5)
        assert node.held == {("g", "q"): 5}
        assert client.release("g") == 1
    assert node.held == {}
    assert {call["authorization"] for call in node.metadata} == {"Bearer secret"}


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
def test_a_token_that_is_refused_names_its_option(node: EventLogNode, code: grpc.StatusCode) -> None:
    node.fail = [code]
    with (
        NodeClient(node.address, Connection(("x:1",), token="secret"), "n1", patience=20.0) as client,
        pytest.raises(NodeError, match=f"node n1: refuses what option token gives: .*{code.name}") as raised,
    ):
        client.describe()
    assert "secret" not in str(raised.value)


def test_files_of_tls_that_are_not_there_are_named() -> None:
    with pytest.raises(OptionError, match=r'option tlsCaFile: "/no/ca.pem" cannot be read'):
        NodeClient("127.0.0.1:1", Connection(("x:1",), tls=True, ca_file="/no/ca.pem"))


def test_requests_of_rows_have_whole_blocks_or_parts_of_a_large_one() -> None:
    third = bytes(STAGE_BYTES * 2 // 5)
    large = bytes(2 * STAGE_BYTES + 1)
    sizes = [len(data) for data in stage_requests([third, third, third, b"x", large, b"y"])]
    assert sizes == [2 * len(third), len(third) + 1, STAGE_BYTES, STAGE_BYTES, 1, 1]
    assert list(stage_requests([])) == []


def test_rows_are_staged_in_order_over_several_requests(node: EventLogNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.client.STAGE_BYTES", 100)
    blocks = [block_of([a_row("t", b"%d" % number)]) for number in range(5)]
    node.fail = [grpc.StatusCode.UNAVAILABLE]
    with NodeClient(node.address, CONNECTION, "n1", patience=20.0) as client:
        client.stage("q", 1, 2, 7, blocks)
    assert node.staged == {("q", 1): {(2, 7): b"".join(blocks)}}


FAILED = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        (
            f"{FAILED}UNKNOWN: ipv4:127.0.0.1:9: Failed to connect to remote host: Connection refused",
            "Connection refused",
        ),
        (
            f"{FAILED}UNKNOWN: ipv6:%5B::1%5D:9: Failed to connect to remote host: Connection refused",
            "Connection refused",
        ),
        (f"{FAILED}UNAVAILABLE: ipv4:127.0.0.1:1883: Socket closed", "that is no gRPC API"),
        (
            f"{FAILED}UNAVAILABLE: ipv4:127.0.0.1:8084: Socket closed",
            f"as many connections as it takes ({CONNECTIONS_MAX})",
        ),
        (f"{FAILED}INTERNAL: ipv4:127.0.0.1:8083: Failed parsing HTTP/2 (… http1.x server …)", "one of HTTP"),
        (f"{FAILED}UNKNOWN: ipv4:127.0.0.1:8084: Tls handshake failed: … CERTIFICATE_VERIFY_FAILED …", "certificate"),
        ("errors resolving nowhere:1: [field:hostname lookup error:…]", "the host name is not known"),
        ("Deadline Exceeded", "Deadline Exceeded"),
    ],
)
def test_a_node_that_does_not_answer_has_a_plain_reason(details: str, reason: str) -> None:
    assert reason in away_reason(details)
    assert "last error" not in away_reason(details)
