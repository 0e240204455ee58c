"""A cluster with links: its configuration, and what its nodes say of the links."""

from __future__ import annotations

from typing import Any

from federation.links.ownership_table import (
    weight,
)
from node_process import FAILED_SECONDS, Node
from waiting import eventually

Row = dict[str, Any]


def cluster_config(port: int, count: int = 1) -> dict[str, Any]:
    """Upstreams that are one broker on this machine, and a policy for each: `s0/#`, `s1/#` and so on."""
    uri = f"mqtt://user:secret@127.0.0.1:{port}"
    return {
        "plugin_order": ["admin", "federation", "links"],
        "plugins": {
            "links": {
                "domain": "berlin",
                "upstreams": {
                    f"up{number}": {"uri": uri, "reconnect-delay": 0.3, "interest": "all"} for number in range(count)
                },
                "policies": {
                    f"p{number}": {"pattern": f"s{number}/#", "definition": {"federation-upstream": f"up{number}"}}
                    for number in range(count)
                },
            }
        },
    }


async def links_of(node: Node, query: str = "") -> list[Row]:
    status, answer = await node.rest("GET", f"/v1/federation-links{query}")
    assert status == 200, answer
    assert answer["unanswered"] == []
    rows: list[Row] = answer["links"]
    return rows


def falls_to(link_id: str, names: list[str]) -> str:
    return max(names, key=lambda name: (weight(link_id, name), name))


async def all_run(node: Node, count: int, names: list[str]) -> dict[str, Row]:
    """Wait until each link runs once, on that of the named nodes (all that live) to which it falls. The rows by id."""
    found: list[Row] = []

    async def is_so() -> bool:
        status, answer = await node.rest("GET", "/v1/federation-links")
        found[:] = answer["links"] if status == 200 else []
        return (
            len(found) == count
            and all(row["status"] == "running" and row["node"] == falls_to(row["id"], names) for row in found)
            and not answer["unanswered"]
        )

    await eventually(is_so, f"{count} links run on {names}: {found}", FAILED_SECONDS)
    return {row["id"]: row for row in found}
