"""The faults of the federation as one node sees it: members, event streams, copies of its sessions."""

from __future__ import annotations

from typing import Final

from broker.alarm import ERROR, WARN, Alarm
from broker.message import NEVER
from federation.node import Node
from federation.serf.events import MemberStatus
from federation.serf.serf import Serf
from federation.stream.state import State

BEHIND_SECONDS: Final = 1.0  # that the oldest message waits for a node, before it is called away or slow
TROUBLED: Final = (MemberStatus.FAILED, MemberStatus.LEAVING)


def node_alarms(node: Node, serf: Serf, now: float) -> list[Alarm]:
    """No stream goes to a member that is gone, which is no second fault."""
    found = []
    gone = set()
    for member in serf.members():
        if serf.is_suspected(member.name):
            found.append(Alarm(WARN, f"member {member.name} is suspected"))
        elif member.status in TROUBLED:
            level = ERROR if member.status is MemberStatus.FAILED else WARN
            found.append(Alarm(level, f"member {member.name} is {member.status.name.lower()}"))
        if member.status is not MemberStatus.ALIVE:
            gone.add(member.name)
    for name, sender in node.senders.items():
        if name not in gone and sender.state is not State.STREAMING:
            found.append(Alarm(ERROR, f"no event stream to {name}: {sender.reason or sender.state.value}"))
        oldest_at = sender.outbox.oldest_at()
        if sender.is_behind and oldest_at + BEHIND_SECONDS < now:  # NEVER is later
            waits = f"the oldest message for {now - oldest_at:.0f} s"
            found.append(Alarm(WARN, f"{name} is away or slow: what waits for it is kept here, {waits}"))
        if sender.congested:
            found.append(Alarm(WARN, f"publishers here wait for {name}: its outbox is past its half"))
        if sender.counters.retained_unmended > 0:  # one comparison also differs by what is on its way
            text = f"{name} has other retained messages, and a comparison did not mend them"
            found.append(Alarm(WARN, text))
    if node.copies is not None:
        replication = node.copies.replication
        whole, since = replication.whole(), replication.short_since()
        if whole < replication.wanted:
            seconds = 0.0 if since == NEVER else max(0.0, now - since)
            text = f"{whole} of {replication.wanted} copies of the sessions here are whole, for {seconds:.0f} s"
            found.append(Alarm(WARN, text))
    return found
