"""What nodes say over REST of sessions and copies, and in their logs."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote

from node_process import Node
from waiting import eventually

WHOLE_SECONDS_MAX: Final = 180.0
NOT_WHOLE: Final = "the copy of the store on another node is not whole"
SAID: Final = re.compile(r"the copy of the store on another node is (not )?whole.*?( worker=\d+)?$", re.MULTILINE)


async def metrics(node: Node, *names: str) -> list[list[float]]:
    """The values of each: one for each worker of a gauge."""
    status, text = await node.rest_text("GET", "/metrics")
    assert status == 200, text
    return [
        [float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)] for name in names
    ]


async def all_whole(nodes: Sequence[Node], client_ids: Iterable[str]) -> None:
    """Wait until each store has its copies, and each session is shown as one that has."""
    waiting = set(client_ids)

    async def are_whole() -> bool:
        try:
            for node in nodes:
                wanted, whole = await metrics(node, "gmqtt_copies_wanted", "gmqtt_copies_whole")
                workers = int(node.config.get("workers", 1))
                if len(wanted) < workers or min(wanted) == 0 or any(map(operator.lt, whole, wanted)):
                    return False
            homes = {client_id: node for node in nodes for client_id, _ in await connections(node)}
            for client_id in waiting & homes.keys():
                _, place = await homes[client_id].rest("GET", f"/v1/federation/sessions/{quote(client_id)}")
                if place.get("state") != "here" or place.get("short"):
                    return False
        except OSError:
            return False
        return homes.keys() >= waiting

    await eventually(are_whole, "all stores have their copies", WHOLE_SECONDS_MAX)


async def keeps_nothing(node: Node) -> bool:
    """Whether the node waits for all others: its store keeps nothing for one that was away."""
    try:
        behind, stored = await metrics(node, "gmqtt_federation_behind", "gmqtt_federation_outbox_stored_bytes")
    except OSError:
        return False
    return not any(behind) and not any(stored)


def is_known_as_whole(log: str, behind: int) -> bool:
    """Whether the log of a node says that its copy is whole, or of each worker, and nothing else behind this place."""
    falls_short = {worker: not_whole for not_whole, worker in SAID.findall(log)}
    return bool(falls_short) and not any(falls_short.values()) and NOT_WHOLE not in log[behind:]


async def connections(node: Node) -> list[tuple[str, bool]]:
    """The client identifiers of the sessions of a node, of all its workers, and whether the client is connected."""
    status, answer = await node.rest("GET", "/v1/clients?page_size=1000")
    assert status == 200, answer
    return [(client["client_id"], client.get("disconnected_at") is None) for client in answer["clients"]]


class Owners:
    """Which of the clients have a session on two nodes, or a connection to two, or a session that is not as a whole on its
    node: others may send to a former one still."""

    def __init__(self, nodes: Sequence[Node], client_ids: Iterable[str]) -> None:
        self._nodes = nodes
        self._left = set(client_ids)
        self._last: dict[str, list[str]] = {}

    async def look(self) -> bool:
        """Whether each has been seen with one owner by now."""
        owners: dict[str, list[str]] = {}
        for node in self._nodes:
            try:
                found = await connections(node)
            except OSError:
                return False
            for client_id, is_connected in found:
                owners.setdefault(client_id, []).append(f"{node.name}{' (connected)' if is_connected else ''}")
        self._last = owners
        for client_id in sorted(self._left):
            homes = owners.get(client_id, [])
            if len(homes) == 1 and await self._is_whole(client_id, homes):
                self._left.discard(client_id)
        return not self._left

    async def _is_whole(self, client_id: str, homes: list[str]) -> bool:
        """Whether all of the session is at its home. Adds what that waits for to the text about the home."""
        (node,) = (node for node in self._nodes if node.name == homes[0].partition(" ")[0])
        try:
            _, place = await node.rest("GET", f"/v1/federation/sessions/{quote(client_id)}")
        except OSError:
            return False
        homes[0] += f" ({place.get('state')}, waits for {place.get('waits_for')})"
        return bool(place.get("state") == "here")

    def wrong(self) -> list[str]:
        return [f"{client_id} has a session on {self._last.get(client_id, [])}" for client_id in sorted(self._left)]


async def places(nodes: Sequence[Node], client_id: str) -> str:
    """What each node says of a session."""
    found: dict[str, Any] = {}
    for node in nodes:
        try:
            _, found[node.name] = await node.rest("GET", f"/v1/federation/sessions/{quote(client_id)}")
        except OSError as error:
            found[node.name] = str(error)
    return str(found)
