"""A cluster with links: its configuration, and what its nodes say of the links."""

from __future__ import annotations

from typing import Any

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


async def all_run(node: Node, count: int, names: list[str], spread: bool = False) -> dict[str, Row]:
    """Wait until each link runs once, on one of the named nodes; with `spread` each node has one. The rows by id."""
    found: list[Row] = []

    async def is_so() -> bool:
        status, answer = await node.rest("GET", "/v1/federation-links")
        found[:] = answer["links"] if status == 200 else []
        return (
            len(found) == count
            and all(row["status"] == "running" and row["node"] in names for row in found)
            and not answer["unanswered"]
            and (not spread or {row["node"] for row in found} == set(names))
        )

    await eventually(is_so, f"{count} links run on {names}: {found}", FAILED_SECONDS)
    return {row["id"]: row for row in found}
