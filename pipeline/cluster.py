"""The nodes behind option `servers`: who they are, what their logs have, who does not answer, who keeps no log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from broker.event_log.lineage import Parent
from broker.event_log.pb import event_log_pb2 as pb
from gmqttctl.connection import Connection
from pipeline.client import NodeClient
from pipeline.errors import NoAnswer, NodeAway, NodeError, NoEventLog, NotTrusted, PipelineError
from pipeline.offsets import NodeState, Offsets, check_nodes, resolve
from pipeline.options import Position

DESCRIBE_SECONDS: Final = 10.0  # longer than a busy node takes
ASKED_AT_ONCE: Final = 32
# Spark asks for the latest offset 100 times a second while there is nothing new.
ASK_AGAIN_SECONDS: Final = 0.1
AWAY_AGAIN_SECONDS: Final = 2.0  # or AWAY_AGAIN_TIMES as long as the answer was waited for
AWAY_AGAIN_TIMES: Final = 3.0
ALIVE: Final = "ALIVE"  # status of a member
LEFT: Final = "LEFT"  # of one that was told to leave: nobody waits for it

Answers = Mapping[str, pb.LogDescription | NodeError]  # by address


@dataclass(slots=True)
class Members:
    """nodes        that answer, by name
    away         name -> reason, of members that keep a log and do not answer; of `servers` that no member knows the address
    without_log  names of members that keep none
    untrusted    names of those of `away` that live, and were not asked
    """

    nodes: dict[str, NodeState] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    without_log: set[str] = field(default_factory=set)
    untrusted: set[str] = field(default_factory=set)

    def check(self, allow_partial: bool, needs_all: bool) -> None:
        """Raise PipelineError for members whose records would be missing; with `needs_all` also for those that are away
        and may come back."""
        faults = [f"{name} keeps no event log" for name in sorted(self.without_log)]
        faults += [
            f"{name} is away ({reason})"
            for name, reason in sorted(self.away.items())
            if needs_all or name in self.untrusted
        ]
        if faults and not allow_partial:
            raise PipelineError(
                f"records would be missing: {'; '.join(faults)}. Turn the plugin event_log on there, wait for the node, "
                "or set allowPartial to true to go on without"
            )


def members_of(answers: Answers) -> Members:
    """The members that these answers tell of. Raises PipelineError."""
    found = Members()
    away: dict[str, NodeAway] = {}
    for address, answer in answers.items():
        match answer:
            case pb.LogDescription():
                other = found.nodes.setdefault(answer.node, state_of(address, answer))
                if other.log_id != answer.log_id:
                    raise PipelineError(
                        f"two nodes are named {answer.node}: {other.address} and {address}; give each a name of its own"
                    )
            case NodeAway():
                away[address] = answer
            case NoEventLog():
                found.without_log.add(address)
            case NodeError():
                raise answer
    for answer in answers.values():
        for member in answer.members if isinstance(answer, pb.LogDescription) else ():
            away.pop(member.api_addr, None)
            if member.node in found.nodes or member.status == LEFT:
                continue
            reason = answers.get(member.api_addr)
            if isinstance(reason, NodeAway):
                found.away[member.node] = f"{member.status}, {reason.text}"
                if isinstance(reason, NotTrusted) and member.status == ALIVE:
                    found.untrusted.add(member.node)
            else:
                found.without_log.discard(member.api_addr)
                found.without_log.add(member.node)
    # Nobody knows these: they may be nodes with records of their own.
    found.away.update((address, answer.text) for address, answer in away.items())
    return found


def state_of(address: str, found: pb.LogDescription) -> NodeState:
    """The node that gave this answer at this address."""
    records = found.next_offset - found.first_offset
    return NodeState(
        node=found.node,
        address=address,
        log_id=found.log_id,
        first_offset=found.first_offset,
        next_offset=found.next_offset,
        record_bytes=found.bytes / records if records else 0.0,
        parents=tuple(Parent(parent.log_id, parent.end_offset) for parent in found.parents),
    )


class Cluster:
    """Asks the nodes. Keeps its connections until `close`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clients: dict[str, NodeClient] = {}  # by address
        self._away: dict[str, tuple[float, NodeError]] = {}  # address -> when it is asked again
        self._known: dict[str, str] = {}  # nodes that answered once -> address
        self._members = Members()
        self._asked_at = -ASK_AGAIN_SECONDS

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def client(self, state: NodeState) -> NodeClient:
        client = self._client(state.address)
        client.node = state.node
        return client

    def ask(self) -> Members:
        """The members now; an answer of the last ASK_AGAIN_SECONDS counts. Raises PipelineError.

        Nodes that answered once are asked too, so the query goes on while all of `servers` are away.
        """
        if time.monotonic() - self._asked_at < ASK_AGAIN_SECONDS:
            return self._members
        answers: dict[str, pb.LogDescription | NodeError] = {}
        todo = dict.fromkeys((*self._connection.servers, *self._known.values()))  # in this order: the first one counts
        while todo:
            with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
                answers.update(zip(todo, pool.map(self._describe, todo), strict=True))
            named = (address for answer in answers.values() for address in _addresses(answer))
            todo = dict.fromkeys(address for address in named if address not in answers)
        members = members_of(answers)
        for node, address in self._known.items():  # a node by its name, though the others forgot it
            if node not in members.nodes and address in members.away:
                members.away[node] = members.away.pop(address)
                members.untrusted.discard(node)
        if not members.nodes:
            if not self._known:
                faults = "; ".join(str(answer) for answer in answers.values())
                raise NoAnswer("servers", ", ".join(self._connection.servers), f"leads to no event log: {faults}")
            members.away = {node: str(answers[address]) for node, address in self._known.items()}
        self._known.update((node, state.address) for node, state in members.nodes.items())
        self._members = members
        self._asked_at = time.monotonic()
        return members

    def wait_for(self, names: Set[str], seconds: float) -> Members:
        """The members, once these nodes answer. Raises NodeAway after `seconds`."""
        until = time.monotonic() + seconds
        while True:
            try:
                members = self.ask()
            except NoAnswer as error:
                missing, reason = min(names), str(error)
            else:
                if names <= members.nodes.keys():
                    return members
                missing = min(names - members.nodes.keys())
                reason = members.away.get(missing, f"members that answer are {', '.join(sorted(members.nodes))}")
            if time.monotonic() >= until:
                raise NodeAway(missing, f"is needed, and did not answer for {seconds:g} s: {reason}")
            time.sleep(ASK_AGAIN_SECONDS)

    def _is_trusted(self, address: str) -> bool:
        """Whoever writes gossip names addresses of members: the token is for those that the user has named, and for
        those with a certificate of the authority that the user has named."""
        connection = self._connection
        return not connection.token or bool(connection.ca_file) or address in connection.servers

    def _describe(self, address: str) -> pb.LogDescription | NodeError:
        if not self._is_trusted(address):
            return NotTrusted(
                address,
                f"not asked at {address}, because that would tell the token to an address that gossip gives: name it in "
                "servers (each worker of a node has a port of its own), or give tlsCaFile",
            )
        until, fault = self._away.get(address, (0.0, None))
        if fault is not None and time.monotonic() < until:
            return fault
        begin = time.monotonic()
        try:
            found = self._client(address).describe(DESCRIBE_SECONDS)
        except NodeAway as error:
            now = time.monotonic()
            self._away[address] = now + max(AWAY_AGAIN_SECONDS, AWAY_AGAIN_TIMES * (now - begin)), error
            return error
        except NodeError as error:
            return error
        self._away.pop(address, None)
        return found

    def _client(self, address: str) -> NodeClient:
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = NodeClient(address, self._connection)
        return client


def _addresses(answer: pb.LogDescription | NodeError) -> Iterable[str]:
    if isinstance(answer, pb.LogDescription):
        return (member.api_addr for member in answer.members if member.api_addr)
    return ()


def find_position(which: str, position: Position, cluster: Cluster, members: Members) -> Offsets:
    """Return what `startingOffsets`, `startingTimestamp` or the same of `ending` say of the nodes. Raises
    PipelineError."""
    times_ns = position.times_ns
    if times_ns is not None:
        check_nodes(f"{which}Timestamp", times_ns, members.nodes)
    elif position.time_ns is not None:
        times_ns = dict.fromkeys(members.nodes, position.time_ns)
    found = {}
    for node, time_ns in (times_ns or {}).items():
        state = members.nodes[node]
        # The log may have grown since; where nothing is so late, that is its end.
        found[node] = min(cluster.client(state).find(state.log_id, time_ns), state.next_offset)
    return resolve(f"{which}Offsets", position, members.nodes, found)
