"""The progress of a subscription to `$stream/`, as the bytes that its session keeps."""

# not compiled: once for a subscription, and for a batch of the store
from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from broker.event_log.stream.start import Start


@dataclass(slots=True)
class LogPlace:
    """In the log of one node.

    log_id  of the log that the offset is of; "" for whatever log the node has
    offset  of the next record, OFFSET_EARLIEST or OFFSET_LATEST
    barrier of `last`: records before it come only where they are the last of their topic; 0 for none
    """

    log_id: str
    offset: int
    barrier: int = 0


@dataclass(slots=True)
class Place:
    """topic_filter  of the topics whose messages come
    text      of the start, as the client gave it
    since_ns  Unix time: logs without a place begin at the first record of this time; 0 for their first record
    is_last   of the start
    logs      by node
    begun_ns  Unix time of the SUBSCRIBE; 0 where an earlier build began it
    """

    topic_filter: bytes
    text: str
    since_ns: int
    is_last: bool
    logs: dict[str, LogPlace] = field(default_factory=dict)
    begun_ns: int = 0

    def encode(self) -> bytes:
        logs = {node: [place.log_id, place.offset, place.barrier] for node, place in self.logs.items()}
        content = {
            "filter": self.topic_filter.decode(),
            "from": self.text,
            "since": self.since_ns,
            "last": self.is_last,
            "logs": logs,
            "begun": self.begun_ns,
        }
        return json.dumps(content, separators=(",", ":")).encode()


def first_place(topic_filter: bytes, text: str, start: Start, now_ns: int) -> Place:
    """Return the place of a subscription that begins at this Unix time."""
    logs = {node: LogPlace("", offset) for node, offset in start.offsets.items()}
    return Place(topic_filter, text, start.since_ns, start.is_last, logs, now_ns)


def further_place(place: Place, former: Place) -> Place:
    """Return `place`, in each log behind what a subscription of the same start has had from `former`. In a log of another id it
    stays where it is. Of two starts the later SUBSCRIBE holds, as in one session."""
    if place.topic_filter != former.topic_filter:
        return place
    if place.text != former.text:
        return former if former.begun_ns > place.begun_ns else place
    logs = dict(place.logs)
    for node, there in former.logs.items():
        here = logs.get(node)
        if there.log_id and (
            here is None or not here.log_id or (here.log_id == there.log_id and here.offset < there.offset)
        ):
            logs[node] = there
    return replace(place, logs=logs, begun_ns=max(place.begun_ns, former.begun_ns))


def decode_place(position: bytes) -> Place:
    """The reverse of Place.encode. Raises ValueError for other bytes."""
    try:
        content = json.loads(position)
        logs = {
            node: LogPlace(str(log_id), int(offset), int(barrier))
            for node, (log_id, offset, barrier) in content["logs"].items()
        }
        topic_filter = str(content["filter"]).encode()
        begun_ns = int(content.get("begun", 0))
        return Place(topic_filter, str(content["from"]), int(content["since"]), bool(content["last"]), logs, begun_ns)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no position of a stream: {error}") from None
