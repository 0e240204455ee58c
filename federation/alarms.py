"""The faults of a node, and of its cluster as it sees it: one list for `gmqttctl status`, from the answers of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from federation.links.status import DOWN, has_state

Answers = Mapping[str, Any]
"""As JSON: `node` (Node), `members` (ListMembersResponse), `peers` (ListPeersResponse), `links` (ListLinksResponse), `copies`
(Copies), `drain` (DrainStatus). Those of plugins that the node does not have are missing."""


def alarms(found: Answers) -> list[str]:
    """One line each, what an operator has to look at first. Empty: all is well."""
    lines = [str(reason) for reason in found["node"]["not_ready"]]
    gone = set()
    for member in found.get("members", {}).get("members", ()):
        status = member["status"].removeprefix("STATUS_").lower()
        if status in ("failed", "leaving") or member["suspected"]:
            lines.append(f"member {member['name']} is {'suspected' if member['suspected'] else status}")
        if status != "alive":
            gone.add(member["name"])
    for peer in found.get("peers", {}).get("peers", ()):
        name = peer["node_name"]
        if name not in gone and peer["state"] != "streaming":
            lines.append(f"no event stream to {name}: {peer['reason'] or peer['state']}")
        if peer["behind"]:
            lines.append(f"{name} is away or slow: what waits for it is kept here")
        if peer["congested"]:
            lines.append(f"publishers here wait for {name}: its outbox is past its half")
        if peer.get("retained_equal") is False:
            lines.append(f"{name} has other retained messages, until the next comparison mends them")
    copies = found.get("copies")
    if copies is not None and copies["whole"] < copies["wanted"]:
        short = f"{copies['whole']} of {copies['wanted']} copies of the sessions here are whole"
        lines.append(f"{short}, for {copies['short_seconds']:.0f} s")
    lines += [f"node {name} does not tell its links" for name in found.get("links", {}).get("unanswered", ())]
    lines += [
        f"link {link['id']} to {link['upstream']} is {link['status']}: {link['error'] or link['next_step']}"
        for link in found.get("links", {}).get("links", ())
        if has_state(link["status"], DOWN)
    ]
    return lines
