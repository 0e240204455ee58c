"""Sparkplug B: the names and data types that births give to the metrics of later messages.

The birth of an edge node (NBIRTH) or device (DBIRTH) names its metrics; later messages may have the alias alone. What a
message means depends on the births before it in the log of the same node, and on nothing else: an edge node that connects
elsewhere begins with its births again. So results do not depend on where batches end, and a replay has the same.

Source: Sparkplug 3.0, chapters 4 (topics) and 5 (births), 6.4 (tck-id-payloads-alias-uniqueness and those behind it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import dropwhile
from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]

from pipeline.decoding.metrics import read_payload
from pipeline.decoding.paths import Undecodable
from pipeline.decoding.pb.sparkplug_pb2 import Payload

NAMESPACE: Final = "spBv1.0"
OF_NODES: Final = ("NBIRTH", "NDEATH", "NDATA", "NCMD")
OF_DEVICES: Final = ("DBIRTH", "DDEATH", "DDATA", "DCMD")
METRICS_MAX: Final = 50_000
"""Of an edge node with its devices, of which each counts as one metric at least. A birth with more goes aside."""
PART_METRICS_MAX: Final = 200_000
"""Of all edge nodes of one part of a node's log, counted so; EDGES_MAX: how many these are. A task has those that it reads in
memory. Policy: a birth that does not fit takes the place of the edge nodes that were silent longest, where that is SILENT_NS or
they were heard later than now (a clock was wrong); else it goes aside, and is counted with all that is aside."""
EDGES_MAX: Final = 256
PARTS: Final = 256  # of a node's log, by the names of edge nodes
SILENT_NS: Final = 86_400 * 10**9
HEARD_NS: Final = 3_600 * 10**9  # a message notes the time anew when the noted one is so old, so that not each one does
BIRTHS: Final = ("NBIRTH", "DBIRTH")
COMMANDS: Final = ("NCMD", "DCMD")  # of host applications: no sign that the edge node lives
_NODE: Final = ""  # instead of a device
_NO_ALIAS: Final = -1


class Place(NamedTuple):
    """device  "" for the edge node itself"""

    edge: str
    kind: str
    device: str


def read_topic(topic: str) -> Place:
    """The parts of a topic; `edge` is GROUP/NODE. Raises Undecodable."""
    namespace, *parts = topic.split("/")
    if namespace == NAMESPACE:
        match parts:
            case [group, kind, node] if kind in OF_NODES:
                return Place(f"{group}/{node}", kind, _NODE)
            case [group, kind, node, device] if kind in OF_DEVICES:
                return Place(f"{group}/{node}", kind, device)
    raise Undecodable(f"the topic is not {NAMESPACE}/GROUP/TYPE/NODE or …/DEVICE with a type that has metrics")


class BornMetric(NamedTuple):
    """alias  -1 for none"""

    name: str
    alias: int
    datatype: int


class Birth:
    """The metrics of one edge node or device."""

    def __init__(self, metrics: Iterable[BornMetric]) -> None:
        self.metrics = tuple(metrics)
        self.by_name = {each.name: each for each in self.metrics}
        self.by_alias = {each.alias: each for each in self.metrics if each.alias != _NO_ALIAS}
        self.size = max(1, len(self.metrics))


class EdgeNode:
    """The births of an edge node and its devices, at one node's log.

    births      device -> its birth
    size        of all births
    is_changed  since the state was read
    """

    def __init__(self, births: Mapping[str, Birth] | None = None) -> None:
        self.births = dict(births or {})
        self.size = sum(each.size for each in self.births.values())
        self.is_changed = False

    @classmethod
    def from_bytes(cls, state: bytes) -> EdgeNode:
        found = msgpack.unpackb(state)
        return cls({device: Birth(BornMetric(*each) for each in metrics) for device, metrics in found.items()})

    def to_bytes(self) -> bytes:
        packed: bytes = msgpack.packb({device: birth.metrics for device, birth in self.births.items()})
        return packed

    def resolve(self, place: Place, payload: bytes, room: int = METRICS_MAX) -> bytes:
        """Take a message, in the order of the log. Returns the payload with the name and data type of each metric.
        `room`: what the other edge nodes leave to this one, in metrics. Raises Undecodable."""
        if place.kind == "NBIRTH":
            self._forget(self.births)
        elif place.kind == "DBIRTH":
            self._forget((place.device,))
        found = read_payload(payload)
        if place.kind in BIRTHS:
            self._bear(place, found, room)
            return payload
        return self._name(place, found) or payload

    def _forget(self, devices: Iterable[str]) -> None:
        """A birth that cannot be read ends the one before, too: its aliases may have other meanings."""
        for device in list(devices):
            birth = self.births.pop(device, None)
            if birth is not None:
                self.size -= birth.size
                self.is_changed = True

    def _bear(self, place: Place, payload: Payload, room: int) -> None:
        metrics = []
        for each in payload.metrics:
            if not each.HasField("name") or not each.HasField("datatype"):
                raise Undecodable(f"a metric of {place.kind} has no {'datatype' if each.HasField('name') else 'name'}")
            metrics.append(BornMetric(each.name, each.alias if each.HasField("alias") else _NO_ALIAS, each.datatype))
        birth = Birth(metrics)
        aliases = sum(each.alias != _NO_ALIAS for each in metrics)
        if len(birth.by_name) < len(metrics) or len(birth.by_alias) < aliases:
            raise Undecodable(f"{place.kind} has a name or an alias twice")
        if self.size + birth.size > METRICS_MAX:
            raise Undecodable(f"edge node {place.edge} has more than {METRICS_MAX} metrics and devices")
        if self.size + birth.size > room:
            raise Undecodable(
                f"births of other edge nodes leave room for {room} metrics and devices, none of which is silent for a day"
            )
        self.births[place.device] = birth
        self.size += birth.size
        self.is_changed = True

    def _name(self, place: Place, payload: Payload) -> bytes:
        """b"" where the payload has all names and data types."""
        is_changed = False
        birth = self.births.get(place.device)
        for each in payload.metrics:
            has_name = each.HasField("name")
            if has_name and each.HasField("datatype"):
                continue
            if not has_name and not each.HasField("alias"):
                raise Undecodable("a metric has neither a name nor an alias")
            what = f"metric {each.name!r}" if has_name else f"alias {each.alias}"
            if birth is None:
                whose = f"device {place.device}" if place.device else "the edge node"
                raise Undecodable(f"{what}: no birth of {whose} comes before in this log")
            born = birth.by_name.get(each.name) if has_name else birth.by_alias.get(each.alias)
            if born is None:
                raise Undecodable(f"{what} is not in the birth")
            each.name = born.name
            if not each.HasField("datatype"):
                each.datatype = born.datatype
            is_changed = True
        return payload.SerializeToString() if is_changed else b""


class Heard(NamedTuple):
    """What is noted of an edge node with births.

    time_ns  Unix time of a message that it sent, at most HEARD_NS before the last one
    size     of its births
    """

    time_ns: int
    size: int

    def gives_way(self, time_ns: int) -> bool:
        """Return whether its births make room at this time."""
        return not time_ns - SILENT_NS < self.time_ns <= time_ns

    def is_stale(self, time_ns: int) -> bool:
        return not time_ns - HEARD_NS < self.time_ns <= time_ns


def heard_of(births: Iterable[tuple[str, bytes]]) -> dict[str, Heard]:
    """What is noted of births by their edge nodes, as `to_bytes`, where that is not stored: they give way until heard."""
    return {name: Heard(0, EdgeNode.from_bytes(state).size) for name, state in births}


class EdgeNodes:
    """The edge nodes of one part of a node's log.

    heard       those with births, in the order of their times here. A birth that cannot be read changes no place
    changed     those whose births are to be stored, or are gone; by their names
    is_changed  `heard` is to be stored
    """

    def __init__(self, heard: Mapping[str, Heard], stored: Callable[[str], bytes | None]) -> None:
        """`stored` reads what `to_bytes` of an edge node gave; None for nothing."""
        self.heard = dict(heard)
        self.changed: dict[str, EdgeNode] = {}
        self.is_changed = False
        self._stored = stored
        self._read: dict[str, EdgeNode] = {}

    def resolve(self, place: Place, payload: bytes, time_ns: int) -> bytes:
        """As EdgeNode.resolve; `time_ns` is that of the record."""
        name = place.edge
        is_birth = place.kind in BIRTHS
        room = self._room_for(name, time_ns) if is_birth else 0
        edge = self._edge(name)
        try:
            resolved = edge.resolve(place, payload, room)
        finally:
            self._note_births(name, edge)
        is_sent = place.kind not in COMMANDS
        if edge.births and is_sent and (is_birth or self.heard[name].is_stale(time_ns)):
            self.heard.pop(name, None)
            self.heard[name] = Heard(time_ns, edge.size)
            self.is_changed = True
            self._make_room()
        return resolved

    def _room_for(self, name: str, time_ns: int) -> int:
        """How many metrics the others leave to this edge node. Raises Undecodable when they are too many."""
        others = [heard for other, heard in self.heard.items() if other != name]
        staying = list(dropwhile(lambda heard: heard.gives_way(time_ns), others))
        if len(staying) >= EDGES_MAX:
            raise Undecodable(f"births of {EDGES_MAX} other edge nodes are kept, none of which is silent for a day")
        return PART_METRICS_MAX - sum(heard.size for heard in staying)

    def _edge(self, name: str) -> EdgeNode:
        edge = self._read.get(name)
        if edge is None:
            state = self._stored(name) if name in self.heard else None
            edge = self._read[name] = EdgeNode() if state is None else EdgeNode.from_bytes(state)
        return edge

    def _note_births(self, name: str, edge: EdgeNode) -> None:
        if edge.is_changed:
            self.changed[name] = edge
            self.is_changed = True
        if not edge.births:
            self.heard.pop(name, None)
        elif name in self.heard:
            self.heard[name] = self.heard[name]._replace(size=edge.size)

    def _make_room(self) -> None:
        """The last one of those that were heard is new."""
        size = sum(heard.size for heard in self.heard.values())
        while len(self.heard) > EDGES_MAX or size > PART_METRICS_MAX:
            silent = next(iter(self.heard))
            size -= self.heard.pop(silent).size
            self.changed[silent] = self._read[silent] = EdgeNode()
