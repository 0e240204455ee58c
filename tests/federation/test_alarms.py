"""What `gmqttctl status` calls wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from federation.alarms import alarms
from wording import check_named

WELL: dict[str, Any] = {
    "node": {"not_ready": []},
    "members": {
        "members": [
            {"name": "n1", "status": "STATUS_ALIVE", "suspected": False},
            {"name": "n2", "status": "STATUS_ALIVE", "suspected": False},
        ]
    },
    "peers": {
        "peers": [
            {
                "node_name": "n2",
                "state": "streaming",
                "reason": "",
                "behind": False,
                "congested": False,
                "retained_equal": True,
            }
        ]
    },
    "copies": {"wanted": 1, "whole": 1, "short_seconds": 0.0},
    "links": {
        "unanswered": [],
        "links": [{"id": "0a", "upstream": "north", "status": "running", "error": "", "next_step": "waits"}],
    },
}


def test_a_node_that_is_well_and_one_without_plugins() -> None:
    assert alarms(WELL) == []
    assert alarms({"node": {"not_ready": []}}) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found["node"]["not_ready"].append("the node is stopping"), ["stopping"]),
        (lambda found: found["members"]["members"][1].update(status="STATUS_FAILED"), ["n2", "failed"]),
        (lambda found: found["members"]["members"][1].update(suspected=True), ["n2", "suspected"]),
        (lambda found: found["peers"]["peers"][0].update(state="backoff", reason="refused"), ["n2", "refused"]),
        (lambda found: found["peers"]["peers"][0].update(behind=True), ["n2", "kept here"]),
        (lambda found: found["peers"]["peers"][0].update(congested=True), ["n2", "outbox"]),
        (lambda found: found["peers"]["peers"][0].update(retained_equal=False), ["n2", "retained"]),
        (lambda found: found["copies"].update(whole=0, short_seconds=12.4), ["0 of 1", "12 s"]),
        (lambda found: found["links"]["unanswered"].append("n3"), ["n3"]),
        (lambda found: found["links"]["links"][0].update(status="error", error="TLS"), ["0a", "north", "error", "TLS"]),
    ],
)
def test_each_fault_is_one_line(change: Callable[[dict[str, Any]], object], words: list[str]) -> None:
    found = copy.deepcopy(WELL)
    change(found)
    (line,) = alarms(found)
    check_named(line, words)


def test_the_stream_to_a_member_that_is_gone_is_no_second_fault() -> None:
    found = copy.deepcopy(WELL)
    found["members"]["members"][1]["status"] = "STATUS_FAILED"
    found["peers"]["peers"][0]["state"] = "backoff"
    assert len(alarms(found)) == 1
