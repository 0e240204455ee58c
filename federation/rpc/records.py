"""The contents of responses and records of the RPC: members, events, figures (wire-gossip 11.3 and 11.4)."""

from __future__ import annotations

from collections.abc import Sequence

from federation.gossip.addresses import pack_ip
from federation.rpc.event_filter import MEMBER_EVENTS, QUERY, USER
from federation.rpc.requests import NO_COORDINATE, MembersFiltered
from federation.serf.events import Member, MemberEvent, QueryReceived, UserEventReceived
from federation.serf.expressions import anchored
from federation.serf.serf import Serf


def member_map(member: Member) -> dict[str, object]:
    versions = member.versions
    return {
        "Addr": pack_ip(member.ip),
        "DelegateCur": versions[5],
        "DelegateMax": versions[4],
        "DelegateMin": versions[3],
        "Name": member.name,
        "Port": member.port,
        "ProtocolCur": versions[2],
        "ProtocolMax": versions[1],
        "ProtocolMin": versions[0],
        "Status": member.status.name.lower(),
        "Tags": member.tags,
    }


def filtered_members(members: list[Member], wanted: MembersFiltered) -> list[Member]:
    """Members whose name, status and tags match. ValueError for what is no expression of Go."""
    name = anchored(wanted.name) if wanted.name else None
    status = anchored(wanted.status) if wanted.status else None
    tags = {tag: anchored(text) for tag, text in wanted.tags.items()}
    return [
        member
        for member in members
        if (name is None or name.matches(member.name))
        and (status is None or status.matches(member.status.name.lower()))
        and all(expression.matches(member.tags.get(tag, "")) for tag, expression in tags.items())
    ]


def member_events_record(events: Sequence[MemberEvent]) -> dict[str, object]:
    """Of events of one type."""
    return {"Event": MEMBER_EVENTS[type(events[0])], "Members": [member_map(event.member) for event in events]}


def user_event_record(event: UserEventReceived) -> dict[str, object]:
    return {
        "Coalesce": event.coalesce,
        "Event": USER,
        "LTime": event.lamport_time,
        "Name": event.name,
        "Payload": event.payload,
    }


def query_record(received: QueryReceived, query_id: int) -> dict[str, object]:
    query = received.query
    return {
        "Event": QUERY,
        "ID": query_id,
        "LTime": query.lamport_time,
        "Name": query.name,
        "Payload": query.payload,
    }


def response_record(origin: str, payload: bytes, is_ack: bool) -> dict[str, object]:
    return {"From": origin, "Payload": None if is_ack else payload, "Type": "ack" if is_ack else "response"}


DONE_RECORD = {"From": "", "Payload": None, "Type": "done"}


def coordinate_body(serf: Serf, name: str) -> dict[str, object]:
    found = serf.coordinates.get(name)
    return NO_COORDINATE if found is None else {"Coord": found.fields(), "Ok": True}


def stats_body(serf: Serf, runtime: dict[str, str]) -> dict[str, dict[str, str]]:
    """The groups that `serf info` prints."""
    statuses = [member.status.name for member in serf.members()]
    own = serf.local_member
    figures = {
        "coordinate_resets": serf.counters.coordinate_resets,
        "event_queue": len(serf.broadcasts.events),
        "event_time": serf.user_events.clock.time,
        "failed": statuses.count("FAILED"),
        "health_score": serf.gossip.membership.awareness.score,
        "intent_queue": len(serf.broadcasts.intents),
        "left": statuses.count("LEFT"),
        "member_time": serf.roster.clock.time,
        "members": len(statuses),
        "query_queue": len(serf.broadcasts.queries),
        "query_time": serf.asked_queries.clock.time,
    }
    return {
        "agent": {"name": own.name},
        "event_handlers": {},
        "runtime": runtime,
        "serf": {name: str(value) for name, value in figures.items()}
        | {"encrypted": "false" if serf.keyring is None else "true"},
        "tags": own.tags,
    }
