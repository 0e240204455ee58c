"""The requests of consumer groups: FindCoordinator, the members of groups, committed offsets."""

# not a core: keeps a timer and requests that wait
from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count, product
from random import Random
from typing import Final

from broker.kafka import error_codes as errors
from broker.kafka.asked_partitions import Asked, answer_each, in_turns
from broker.kafka.committed import METADATA_BYTES_MAX, Committed
from broker.kafka.fields import Values
from broker.kafka.group import refused_join, sync_answer
from broker.kafka.groups import Groups
from broker.kafka.node import KafkaNode
from broker.kafka.partitions import NOBODY, coordinator_of
from broker.kafka.producing import READ_ONLY

DESCRIBED_BYTES_MAX: Final = 2**20
"""Of metadata and assignments in one answer of DescribeGroups. Policy: members that find no room come without them."""
KEY_OF_GROUP: Final = 0  # in FindCoordinator
NOT_COMMITTED: Final = -1


class Grouping:
    """Answers the requests about groups that this node coordinates."""

    def __init__(self, node: KafkaNode, rng: Random) -> None:
        self.node = node
        self.groups = Groups(rng)
        self._tokens = count(1)
        self._waiting: dict[int, asyncio.Future[Values]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- coordinators ---

    async def find_coordinator(self, asked: Asked) -> Values:
        request = asked.values
        if request.get("key_type", KEY_OF_GROUP) != KEY_OF_GROUP:  # no error that producers ask again after
            return _no_coordinator(errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, READ_ONLY)
        found = coordinator_of(self.node.partitions(), request["key"])
        if found is None:
            return _no_coordinator(errors.COORDINATOR_NOT_AVAILABLE, "the node has not heard of the others yet")
        return {
            "error_code": errors.NONE,
            "error_message": None,
            "node_id": found.number,
            "host": found.host,
            "port": found.port,
        }

    def _coordinates(self, group_id: str) -> bool:
        return self.node.coordinates(group_id, self.groups.has_members(group_id))

    # --- members ---

    async def join(self, asked: Asked) -> Values:
        values = asked.values
        if not self._coordinates(values["group_id"]):
            return refused_join(errors.NOT_COORDINATOR, values["member_id"])
        token = next(self._tokens)
        now = self.node.now()
        answer = self.groups.join(token, values, asked.version, asked.client_id, asked.addr, now)
        return await self._settle(token, answer)

    async def sync(self, asked: Asked) -> Values:
        values = asked.values
        if not self._coordinates(values["group_id"]):
            return sync_answer(errors.NOT_COORDINATOR)
        token = next(self._tokens)
        return await self._settle(token, self.groups.sync(token, values, self.node.now()))

    async def heartbeat(self, asked: Asked) -> Values:
        values = asked.values
        if not self._coordinates(values["group_id"]):
            return {"error_code": errors.NOT_COORDINATOR}
        return await self._settle(0, self.groups.heartbeat(values, self.node.now()))

    async def leave(self, asked: Asked) -> Values:
        values = asked.values
        if not self._coordinates(values["group_id"]):
            return {"error_code": errors.NOT_COORDINATOR, "members": []}
        return await self._settle(0, self.groups.leave(values, self.node.now()))

    async def _settle(self, token: int, answer: Values | None) -> Values:
        """Answer the requests that have waited for this one, and wait for its own answer where it has none yet."""
        waiting: asyncio.Future[Values] | None = None
        if answer is None:
            waiting = self._waiting[token] = asyncio.get_running_loop().create_future()
        self._take_answers()
        if waiting is None:
            assert answer is not None
            return answer
        try:
            return await waiting
        finally:
            self._waiting.pop(token, None)

    def _take_answers(self) -> None:
        for token, answer in self.groups.take_answers():
            waiting = self._waiting.pop(token, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_timeout = self.groups.next_timeout()
        if next_timeout is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(next_timeout - self.node.now(), 0.0), self._handle_timeout)

    def _handle_timeout(self) -> None:
        self.groups.handle_timeout(self.node.now())
        self._take_answers()

    async def listed(self, asked: Asked) -> Values:
        return {"error_code": errors.NONE, "groups": self.groups.listed(asked.values.get("states_filter", ()))}

    async def described(self, asked: Asked) -> Values:
        """Each group once, and a turn for others after each."""
        groups = []
        room = DESCRIBED_BYTES_MAX
        for group_id in dict.fromkeys(asked.values["groups"]):
            described, size = self.groups.described(group_id, room)
            room -= size
            if not self._coordinates(group_id):
                described["error_code"] = errors.NOT_COORDINATOR
            groups.append(described)
            await asyncio.sleep(0)
        return {"groups": groups}

    # --- committed offsets ---

    async def commit(self, asked: Asked) -> Values:
        request = asked.values
        group_id = request["group_id"]
        error = errors.NONE if self._coordinates(group_id) else errors.NOT_COORDINATOR
        error = error or self.groups.may_commit(request)
        topics = request["topics"]
        topic_errors = dict.fromkeys((topic["name"] for topic in topics), error)
        if not error:
            topic_errors = self.node.topic_errors(topic_errors, asked.identity)
        count_of_partitions = len(self.node.partitions())
        offsets: dict[tuple[str, int], Committed] = {}

        async def answer(name: str, each: Values) -> Values:
            index, metadata = each["partition_index"], each["committed_metadata"] or ""
            found = topic_errors[name]
            if not found and not 0 <= index < count_of_partitions:
                found = errors.UNKNOWN_TOPIC_OR_PARTITION
            elif not found and len(metadata.encode()) > METADATA_BYTES_MAX:
                found = errors.OFFSET_METADATA_TOO_LARGE
            if not found:
                offsets[name, index] = Committed(
                    each["committed_offset"], each.get("committed_leader_epoch", -1), metadata
                )
            return {"error_code": found}

        answers = await answer_each(topics, ("name", "partition_index"), answer)
        if offsets and not await self.node.offsets.commit(group_id, offsets, self.groups.has_members):
            for topic in answers:
                for each in topic["partitions"]:
                    each["error_code"] = each["error_code"] or errors.COORDINATOR_NOT_AVAILABLE
        return {"topics": answers}

    async def committed(self, asked: Asked) -> Values:
        request = asked.values
        group_id = request["group_id"]
        error = errors.NONE if self.node.coordinates(group_id) else errors.NOT_COORDINATOR
        is_all = request["topics"] is None
        wanted: Iterable[tuple[str, int]]
        if is_all:
            wanted = () if error else product(self.node.topics, range(len(self.node.partitions())))
        else:
            topics = request["topics"]
            wanted = dict.fromkeys((topic["name"], index) for topic in topics for index in topic["partition_indexes"])
        found: dict[str, list[Values]] = {}
        async for name, partition in in_turns(wanted):
            committed = None if error else self.node.offsets.committed(group_id, name, partition)
            if committed is not None or not is_all:
                found.setdefault(name, []).append(_committed_values(partition, committed, error))
        return {
            "error_code": error,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in found.items()],
        }


def _no_coordinator(error: int, text: str) -> Values:
    return {"error_code": error, "error_message": text, "node_id": NOBODY, "host": "", "port": NOBODY}


def _committed_values(partition: int, committed: Committed | None, error: int) -> Values:
    """The error stands beside each partition, too: before version 2 there is no other, and a client takes one that is not
    there for one without an offset."""
    found = Committed(NOT_COMMITTED, -1, "") if committed is None else committed
    return {
        "partition_index": partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.epoch,
        "metadata": found.metadata,
        "error_code": error,
    }
