"""The service FederationLinks over REST: links of all nodes, wanted states, restarts at the node that runs a link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from api_calls import Rest
from federation.links.ownership_table import (
    Owner,
)
from federation.links.status import LinkState, LinkStatus
from links_node import Nodes, a_plan, links_node

HERE = LinkStatus(a_plan("0000000a", "east"), LinkState.RUNNING, 1.0, 1.0, node="a", epoch=5)
THERE = replace(HERE, plan=a_plan("0000000b", "west"), state=LinkState.ERROR, last_error="refused", node="b")
QUEUES = replace(HERE, plan=a_plan("0000000a", "east", "queues"))


async def asked(nodes: Nodes, method: str, path: str) -> tuple[int, Any]:
    async with links_node(nodes) as api, aiohttp.ClientSession() as session:
        return await Rest(session, f"http://{api.http_addresses[0]}").call(method, path)


def seen(answer: Any) -> list[tuple[str, str, str]]:
    return [(link["id"], link["status"], link["node"]) for link in answer["links"]]


async def test_links_of_all_nodes_are_listed() -> None:
    status, answer = await asked(Nodes({"a": [HERE], "b": [THERE]}), "GET", "/v1/federation-links")
    assert status == 200
    assert seen(answer) == [("0000000a", "running", "a"), ("0000000b", "error", "b")]
    assert answer["unanswered"] == []
    assert answer["links"][1]["error"] == "refused"


async def test_a_node_that_does_not_answer_is_named() -> None:
    status, answer = await asked(Nodes({"a": [HERE], "b": None}), "GET", "/v1/federation-links")
    assert (status, seen(answer), answer["unanswered"]) == (200, [("0000000a", "running", "a")], ["b"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [("state=down", ["0000000b"]), ("state=running", ["0000000a"]), ("state=idle", []), ("here=true", ["0000000a"])],
)
async def test_only_wanted_links_are_listed(query: str, expected: list[str]) -> None:
    _, answer = await asked(Nodes({"a": [HERE], "b": [THERE]}), "GET", f"/v1/federation-links?{query}")
    assert [link["id"] for link in answer["links"]] == expected


async def test_an_unknown_state_is_refused_with_those_that_are() -> None:
    status, answer = await asked(Nodes({"a": []}), "GET", "/v1/federation-links?state=broken")
    assert status == 400
    assert answer["message"].startswith('state is "broken", may be down, starting, running')


@pytest.mark.parametrize(("link_id", "node"), [("0000000a", "a"), ("0000000b", "b")])
async def test_a_link_is_restarted_where_it_runs(link_id: str, node: str) -> None:
    nodes = Nodes({"a": [HERE], "b": [THERE]}, {"0000000b": Owner("b", 5)})
    assert await asked(nodes, "POST", f"/v1/federation-links/{link_id}/restart") == (200, {"nodes": [node]})
    assert nodes.restarted == [(node, link_id)]


@pytest.mark.parametrize(
    ("nodes", "expected", "words"),
    [
        (Nodes({"a": []}), 404, 'there is no link "0000000b"'),
        (Nodes({"a": [], "b": None}, {"0000000b": Owner("b", 5)}), 503, "its owner, node b: Connection refused"),
        (Nodes({"a": [], "b": []}, {"0000000b": Owner("b", 0)}), 503, "node b: it does not run the link"),
        (Nodes({"a": []}, {"0000000b": Owner("a", 5)}), 503, "this node is about to run the link 0000000b"),
    ],
)
async def test_a_restart_that_cannot_be_is_refused(nodes: Nodes, expected: int, words: str) -> None:
    status, answer = await asked(nodes, "POST", "/v1/federation-links/0000000b/restart")
    assert status == expected
    assert words in answer["message"]
    assert nodes.restarted == []


async def test_a_link_for_queues_is_restarted_on_every_node() -> None:
    nodes = Nodes({"a": [QUEUES], "c": [], "b": [replace(QUEUES, node="b")]})
    answer = await asked(nodes, "POST", "/v1/federation-links/0000000a/restart")
    assert answer == (200, {"nodes": ["a", "b"]})
    assert sorted(nodes.restarted) == [("a", "0000000a"), ("b", "0000000a")]


@pytest.mark.parametrize(("here", "where"), [([QUEUES], "a"), ([], "no node")])
async def test_a_restart_names_the_nodes_that_do_not_answer(here: list[LinkStatus], where: str) -> None:
    answer = await asked(Nodes({"a": here, "b": None}), "POST", "/v1/federation-links/0000000a/restart")
    text = f"the link 0000000a is restarted on {where}; no answer from node b: Connection refused"
    assert (answer[0], answer[1]["message"]) == (503, text)
