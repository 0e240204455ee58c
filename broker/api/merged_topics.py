"""The receivers and the traffic of topics, of all workers of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from broker.api.merging import Merged
from broker.api.pb.admin_pb2 import ExplainTopicRequest, ExplainTopicResponse, TrafficRequest, TrafficResponse

RECEIVERS_MAX: Final = 1000  # of one answer
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000  # topics, and clients, in one answer


async def explain(merged: Merged, request: ExplainTopicRequest, context: object) -> ExplainTopicResponse:
    """Other workers are no other nodes. What a client may do says the worker that has its session."""
    first, *others = await merged.all(request, context)
    found: ExplainTopicResponse = first
    workers = {answer.node_name for answer in (first, *others)}
    nodes = [node for node in found.nodes if node.node_name not in workers]
    groups = {group.group: group for group in found.groups}
    for other in others:
        found.receivers.extend(other.receivers[: RECEIVERS_MAX - len(found.receivers)])
        found.receivers_count += other.receivers_count
        for group in other.groups:
            if group.group not in groups:
                groups[group.group] = found.groups.add(group=group.group)
            groups[group.group].nodes.extend(set(group.nodes) - set(groups[group.group].nodes))
        if other.has_session:
            found.publish.CopyFrom(other.publish)
            found.read.CopyFrom(other.read)
    del found.nodes[:]
    found.nodes.extend(nodes)
    for group in found.groups:
        remaining = [name for name in group.nodes if name not in workers]
        del group.nodes[:]
        group.nodes.extend(remaining)
    return found


async def traffic(merged: Merged, request: TrafficRequest, context: object) -> TrafficResponse:
    """The busiest of all workers together. Each tells as many as it can, so that what is little at each of them counts, too."""
    limit = min(request.limit or LIMIT_DEFAULT, LIMIT_MAX)
    asked = TrafficRequest()
    asked.CopyFrom(request)
    asked.limit = LIMIT_MAX
    answers: list[TrafficResponse] = await merged.all(asked, context)
    topics = added([(one.topic_name, one) for answer in answers for one in answer.topics])
    clients = added([(one.client_id, one) for answer in answers for one in answer.clients])
    not_shown = sum(answer.topics_count - len(answer.topics) for answer in answers)
    found = TrafficResponse(
        seconds=max(answer.seconds for answer in answers),
        messages=sum(answer.messages for answer in answers),
        bytes=sum(answer.bytes for answer in answers),
        topics_count=len(topics) + not_shown,
        not_told=sum(answer.not_told for answer in answers),
    )
    for name, (messages, size) in topics[:limit]:
        found.topics.add(topic_name=name, messages=messages, bytes=size)
    for name, (messages, size) in clients[:limit]:
        found.clients.add(client_id=name, messages=messages, bytes=size)
    return found


def added(counted: Sequence[tuple[str, Any]]) -> list[tuple[str, tuple[int, int]]]:
    """Return (name, (messages, bytes)) with the sums, the most messages first."""
    sums: dict[str, tuple[int, int]] = {}
    for name, one in counted:
        messages, size = sums.get(name, (0, 0))
        sums[name] = (messages + one.messages, size + one.bytes)
    return sorted(sums.items(), key=lambda item: (item[1], item[0]), reverse=True)
