"""The oracle of promises to durable sessions.

P1  every message whose PUBACK or PUBREC left is delivered to each durable session whose SUBACK had left before the PUBLISH
    was sent; QoS 2 once. At nodes without stores until a process dies. A node keeps every session that it has confirmed.
P5  what comes from one publisher in one topic and QoS comes in its order, repetitions and groups aside.
P6  nothing is lost without a count, and in the end nothing waits anywhere: in no outbox, in no store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.counters import COPY_DROP_REASONS
from broker.message import NEVER
from broker.store.kinds import (
    HOME,
    INTEREST,
    KEEPERS,
    POSITION,
    REPLICA,
    RETAINED,
    RUN,
    SESSION,
    STORE,
    SUBSCRIPTION,
)
from federation.replication.replica import COPIED_KINDS
from federation.stream.counters import DropReason
from simulator.durable_client import DurableClient, Sent
from simulator.durable_station import GROUP_FILTER, DurableStation, matches
from simulator.promises import Promises, counted_drops

LASTING_KINDS: Final = frozenset(
    (HOME, SESSION, SUBSCRIPTION, RETAINED, STORE, POSITION, INTEREST, REPLICA, RUN, KEEPERS)
)
"""Records that do not wait for somebody."""
COMPARED_KINDS: Final = frozenset(COPIED_KINDS) - {POSITION}
"""What a copy has as the store. A position is written only with what its events have caused, and may be ahead in a copy."""


def difference(promises: Promises, allowed: frozenset[str]) -> str:
    """The first promise that is not kept (yet), "" for none. Messages that were counted for a reason of `allowed` may be
    missing."""
    drops = promises.drops.copy()
    for node in promises.nodes():
        drops += counted_drops(node)
    for reason, count in drops.items():
        if reason not in allowed:
            return f"P6: {count} messages were dropped: {reason}"
    dropped = sum(drops[reason] for reason in DropReason)
    found = _broken(promises) or _not_delivered(promises, dropped) or _waiting(promises) or _not_counted(promises)
    return found or _not_copied(promises)


def _sessions(promises: Promises) -> Iterator[tuple[DurableClient, DurableStation]]:
    """The subscribers that something was promised to."""
    for station in promises.stations.values():
        if promises.keeps(station):
            for client in station.subscribers:
                yield client, station


def _broken(promises: Promises) -> str:
    """Of sessions: what no passing of time mends."""
    by_payload = {sent.payload: sent for sent in promises.sent}
    durable = {station.name for station in promises.stations.values() if station.is_promised}
    for host, station in promises.stations.items():
        for client in station.clients:
            if client.faults and station.disk is not None:
                return f"{host.name}, {client.client_id}: {client.faults[0]}"
    for client, _ in _sessions(promises):
        (qos,) = client.filters.values()
        seen: set[bytes] = set()
        newest: dict[tuple[str, bytes, int, str], int] = {}
        for payload, _ in client.received:
            sent = by_payload.get(payload)
            if sent is None:  # QoS 0
                continue
            if payload in seen:
                if min(qos, sent.qos) == 2 and sent.node in durable and not client.has_begun_anew:
                    # Its publisher was on both sides, or the client itself.
                    if sent.has_moved and (client.may_begin_anew or promises.publishers_are_cut):
                        continue
                    if client.may_begin_anew and client.was_on_both_sides:
                        continue
                    return f"P1: {client.client_id} got {payload[:30]!r} twice with QoS 2"
                continue
            seen.add(payload)
            if client.may_begin_anew or client.has_two_homes:
                continue
            if GROUP_FILTER in client.filters:  # what another member did not take comes later
                continue
            if sent.has_moved and not promises.moves_are_ordered:
                continue
            at = "" if promises.moves_are_ordered else sent.first_broker
            key = (sent.publisher, sent.topic, sent.qos, at)
            if sent.serial < newest.get(key, -1):
                return f"P5: {client.client_id} got {payload[:30]!r} behind number {newest[key]}"
            newest[key] = sent.serial
    return ""


def _not_delivered(promises: Promises, dropped: int) -> str:
    """A message that was dropped on its way to a node is missing in all sessions there, and counted once."""
    missing: dict[tuple[bytes, str], str] = {}
    promised = [sent for sent in promises.sent if promises.is_promised(sent)]
    group: set[bytes] = set()
    group_since = NEVER
    for client, station in _sessions(promises):
        got = {payload for payload, _ in client.received}
        for topic_filter in client.filters:
            since = promises.promised_since(client, topic_filter)
            if topic_filter == GROUP_FILTER:
                group |= got
                group_since = min(group_since, since)
                continue
            for sent in promised:
                if sent.sent_at > since and matches(topic_filter, sent.topic) and sent.payload not in got:
                    missing.setdefault((sent.payload, station.name), _of(sent, client.client_id))
    without = {payload for payload, _ in missing}
    for sent in promised:
        if sent.sent_at > group_since and matches(GROUP_FILTER, sent.topic):
            if sent.payload not in group and sent.payload not in without:
                missing[(sent.payload, "")] = _of(sent, "the group")
    if len(missing) > dropped:
        first = next(iter(missing.values()))
        return f"P1: {len(missing)} messages are missing, {dropped} were dropped and counted: {first}"
    return ""


def _of(sent: Sent, receiver: str) -> str:
    at = f"sent at {sent.sent_at:.3f} s, acknowledged at {sent.acknowledged_at:.3f} s"
    return f"{receiver} lacks {sent.payload[:30]!r} of QoS {sent.qos}, {at}"


def _waiting(promises: Promises) -> str:
    for node in promises.nodes():
        for name, sender in node.node.senders.items():
            if sender.outbox.size:  # messages; interest is not counted
                return f"P6: {node.name} keeps {sender.outbox.size} bytes for {name}"
    for station in promises.stations.values():
        if station.disk is not None:
            kinds = Counter(record[0] for record in station.disk.records.values())
            left = {kind: count for kind, count in kinds.items() if kind not in LASTING_KINDS | promises.lasting_kinds}
            if left:
                return f"P6: {station.name} has records on its disk for nobody, by kind: {left}"
    return ""


def _not_copied(promises: Promises) -> str:
    """P2: each store that can have a keeper has one, whose copy is what the store has; nobody else keeps one."""
    promised = {station.name for station in promises.stations.values() if station.is_promised}  # not an older version
    copying = [node for node in promises.nodes() if node.node.copies is not None and node.name in promised]
    stores = {node.broker.identity.store_id: node for node in copying}
    for node in copying:
        copies = node.node.copies
        assert copies is not None
        replication = copies.replication
        if len(copying) > 1 and replication.whole() < replication.wanted:
            return f"P2: {node.name} has {replication.whole()} of {replication.wanted} whole copies"
        for store_id, replica in copies.replicas.by_store.items():
            home = stores.get(store_id)
            disk = None if home is None else promises.disk_of(home.name)
            if home is None or disk is None or home.node.copies is None:
                return f"P2: {node.name} keeps a copy of a store of {replica.node} that is there no more"
            if node.name not in home.node.copies.replication.keepers:
                return f"P2: {node.name} keeps a copy of {home.name} and is no keeper of it"
            there = {number: record for number, record in disk.records.items() if record[0] in COMPARED_KINDS}
            here = {number: record for number, record in replica.records().items() if record[0] in COMPARED_KINDS}
            if promises.clocks_jump:
                there = {number: _timeless(record) for number, record in there.items()}
                here = {number: _timeless(record) for number, record in here.items()}
            if here != there:
                number = next(number for number in {**here, **there} if here.get(number) != there.get(number))
                return f"P2: {node.name} has {here.get(number)} of {home.name} for {there.get(number)}"
    return ""


def _timeless(record: tuple[object, ...]) -> tuple[object, ...]:
    """The record without times: a base has those of the clock when it was made, and the store those of when it wrote them."""
    return tuple([None if isinstance(value, float) else value for value in record])


def _not_counted(promises: Promises) -> str:
    """Each copy of a message for a session has come to an end that is counted, or waits."""
    for node in promises.nodes():
        counters = node.broker.counters
        sessions = node.broker.sessions.values()
        waiting = sum(session.queue_length() + session.inflight_length() for session in sessions)
        dropped = sum(counters.messages_dropped[reason] for reason in COPY_DROP_REASONS)
        ended = counters.qos0_sent + counters.acknowledged + counters.redelivered
        if counters.copies != ended + dropped + waiting:
            return f"P6: {node.name} counts {counters.copies} copies, {ended} + {dropped} dropped + {waiting} waiting"
    return ""
