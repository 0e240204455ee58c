"""`gmqttd trace`: its lines, and what it says when it cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from broker.api.trace_command import TraceApi, follow, line_text
from broker.server.cli import main
from broker.server.command_fault import CommandFault
from node_process import free_port


def line(number: int, **values: Any) -> dict[str, Any]:
    return {
        "number": str(number),
        "time": "2026-11-22T18:58:00.968226560Z",
        "direction": "sent",
        "packet": "PINGRESP",
        "client_id": "a",
        "remote_addr": "10.0.0.1:1",
        "fields": [],
        **values,
    }


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "2026-11-22T18:58:00.968Z sent     a PINGRESP"),
        ({"time": "2026-11-22T18:58:00Z"}, "2026-11-22T18:58:00.000Z sent     a PINGRESP"),
        ({"client_id": ""}, "2026-11-22T18:58:00.968Z sent     10.0.0.1:1 PINGRESP"),
        (
            {
                "direction": "received",
                "fields": [{"name": "topic", "value": "a b"}, {"name": "payload", "value": "x\n"}],
            },
            '2026-11-22T18:58:00.968Z received a PINGRESP topic="a b" payload=x\\n',
        ),
    ],
)
def test_a_packet_is_one_line(values: dict[str, Any], text: str) -> None:
    assert line_text(line(1, **values)) == text


class Pages(TraceApi):
    """Answers of a node, and the calls that it got."""

    def __init__(self, pages: list[dict[str, Any]]) -> None:
        self.pages = pages
        self.calls: list[tuple[str, str]] = []

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        self.calls.append((method, path))
        if method == "GET":
            return self.pages.pop(0)
        return {"id": "7"} if method == "POST" else {}


def test_gaps_are_told_and_the_trace_is_deleted() -> None:
    api = Pages(
        [
            {"lines": [line(1), line(4)], "ended": False, "packets": "4"},
            {"lines": [line(5)], "ended": True, "packets": "8"},
        ]
    )
    packet = line_text(line(1))
    found = list(follow(api, {"client_id": "a"}, 60))
    assert found == [packet, "… 2 packets left out", packet, packet, "… 3 packets left out"]
    assert api.calls == [
        ("POST", "/v1/traces"),
        ("GET", "/v1/traces/7/lines?after=0&wait_seconds=5"),
        ("GET", "/v1/traces/7/lines?after=4&wait_seconds=5"),
        ("DELETE", "/v1/traces/7"),
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "one of --client, --topic and --addr is needed"),
        (["--client", "a", "--topic", "b"], 2, "one of --client, --topic and --addr is needed"),
        (["--client", "a", "--seconds", "0"], 2, "--seconds"),
        (["--client", "a", "--api", "127.0.0.1:8083"], 1, "must be a URL such as http://127.0.0.1:8083"),
        (["--client", "a", "--cacert", "/nowhere.pem"], 1, "/nowhere.pem cannot be used: No such file or directory"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[str], status: int, words: str) -> None:
    result = CliRunner().invoke(main, ["trace", *arguments])
    assert result.exit_code == status
    assert words in result.stderr


def test_a_node_that_is_not_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(CommandFault, match=f"^{url} cannot be reached: .*Connection refused"):
        next(follow(TraceApi(url, ""), {"client_id": "a"}, 1))


def test_a_file_without_certificates(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(CommandFault, match="cannot be used"):
        TraceApi("https://127.0.0.1:8083", "", str(file))
