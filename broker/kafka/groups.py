"""All consumer groups that this node coordinates. Members live in its memory: a node that takes over knows none, and they join
again, as Kafka's clients do when the coordinator is another one."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Final

from broker.kafka import error_codes as errors
from broker.kafka.fields import Values
from broker.kafka.group import MEMBERS_MAX, Group, Joining, State, refused_join, sync_answer

GROUPS_MAX: Final = 1_000  # policy of this and the next bounds: a further member is refused, and counted
ALL_MEMBERS_MAX: Final = 2_000  # of all groups: each request looks at all deadlines
NAME_BYTES_MAX: Final = 256  # of a group, a member, an instance, a client, a protocol or its type
PROTOCOLS_MAX: Final = 16  # of a member
MEMBERS_BYTES_MAX: Final = 64 * 2**20  # of the members of all groups
WAITING_IDS_MAX: Final = 10_000  # member ids that were given out and not used yet; the oldest is forgotten
SESSION_SECONDS: Final = (1.0, 1_800.0)
REBALANCE_SECONDS_MAX: Final = 3_600.0
MEMBER_ID_VERSION: Final = 4  # of JoinGroup: a new member is told its id and asks again (KIP-394)


class Groups:
    """refused  members that found no room"""

    def __init__(self, rng: Random) -> None:
        self.refused = 0
        self._rng = rng
        self._groups: dict[str, Group] = {}
        self._waiting_ids: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def members(self) -> int:
        return sum(len(group.members) for group in self._groups.values())

    def has_members(self, group_id: str) -> bool:
        return group_id in self._groups

    # --- requests: each returns its answer, or None where the answer follows ---

    def join(
        self, token: int, request: Values, version: int, client_id: str, client_host: str, now: float
    ) -> Values | None:
        group_id, member_id = request["group_id"], request["member_id"]
        session = request["session_timeout_ms"] / 1000
        rebalance = max(request.get("rebalance_timeout_ms", -1) / 1000, 0.0) or session
        joining = Joining(
            request.get("group_instance_id"),
            client_id,
            client_host,
            session,
            min(rebalance, REBALANCE_SECONDS_MAX),
            tuple((each["name"], each["metadata"]) for each in request["protocols"]),
        )
        if not is_name(group_id):
            return refused_join(errors.INVALID_GROUP_ID, member_id)
        names = [member_id, joining.instance_id or "", client_id, request["protocol_type"]]
        names += [name for name, _ in joining.protocols[: PROTOCOLS_MAX + 1]]
        if len(joining.protocols) > PROTOCOLS_MAX or not all(map(_is_short, names)):
            return refused_join(errors.INVALID_REQUEST, "")
        if not SESSION_SECONDS[0] <= session <= SESSION_SECONDS[1]:
            return refused_join(errors.INVALID_SESSION_TIMEOUT, member_id)
        group = self._groups.get(group_id)
        if group is None:
            group = Group(group_id)  # is kept when it has a member
        former = None if joining.instance_id is None else group.of_instance(joining.instance_id)
        if not member_id:
            member_id = f"{client_id}-{self._rng.getrandbits(128):032x}"
            if version >= MEMBER_ID_VERSION and joining.instance_id is None:
                return refused_join(errors.MEMBER_ID_REQUIRED, self._give_out(member_id))
        elif member_id not in group.members:
            if former is not None:
                return refused_join(errors.FENCED_INSTANCE_ID, member_id)
            if member_id not in self._waiting_ids:
                return refused_join(errors.UNKNOWN_MEMBER_ID, member_id)
        replaces = "" if former is None else former.member_id
        if not group.takes(request["protocol_type"], joining, replaces or member_id):
            return refused_join(errors.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if not self._has_room(group, member_id, replaces, joining):
            self.refused += 1
            return refused_join(errors.GROUP_MAX_SIZE_REACHED, member_id)
        self._waiting_ids.pop(member_id, None)
        self._groups[group_id] = group
        if former is not None and replaces != member_id:
            if group.take_place(token, replaces, member_id, joining, now):
                return None
            group.remove(replaces, errors.FENCED_INSTANCE_ID, now)
        group.join(token, member_id, request["protocol_type"], joining, now)
        return None

    def _give_out(self, member_id: str) -> str:
        if len(self._waiting_ids) >= WAITING_IDS_MAX:
            del self._waiting_ids[next(iter(self._waiting_ids))]
        self._waiting_ids[member_id] = None
        return member_id

    def _has_room(self, group: Group, member_id: str, replaces: str, joining: Joining) -> bool:
        is_new = member_id not in group.members and not replaces
        if is_new and (len(group.members) >= MEMBERS_MAX or (not group.members and len(self._groups) >= GROUPS_MAX)):
            return False
        if is_new and self.members >= ALL_MEMBERS_MAX:
            return False
        return self._bytes() + joining.size <= MEMBERS_BYTES_MAX

    def _bytes(self) -> int:
        return sum(group.size for group in self._groups.values())

    def sync(self, token: int, request: Values, now: float) -> Values | None:
        group, error = self._checked(request)
        if group is None:
            return sync_answer(error)
        for name, known in (("protocol_type", group.protocol_type), ("protocol_name", group.protocol)):
            if request.get(name) not in (None, known):
                return sync_answer(errors.INCONSISTENT_GROUP_PROTOCOL)
        assignments = {each["member_id"]: each["assignment"] for each in request["assignments"]}
        if self._bytes() + sum(map(len, assignments.values())) > MEMBERS_BYTES_MAX:
            self.refused += 1
            return sync_answer(errors.GROUP_MAX_SIZE_REACHED)
        error = group.sync(token, request["member_id"], assignments, now)
        return sync_answer(error) if error else None

    def heartbeat(self, request: Values, now: float) -> Values:
        group, error = self._checked(request)
        return {"error_code": error if group is None else group.heartbeat(request["member_id"], now)}

    def leave(self, request: Values, now: float) -> Values:
        leaving = request.get("members")
        if leaving is None:
            leaving = [{"member_id": request["member_id"], "group_instance_id": None}]
        names = dict.fromkeys((each["member_id"], each["group_instance_id"]) for each in leaving)
        if len(names) > MEMBERS_MAX:
            return {"error_code": errors.INVALID_REQUEST, "members": []}
        answers = []
        for member_id, instance_id in names:
            error = self._leave_one(request["group_id"], member_id, instance_id, now)
            answers.append({"member_id": member_id, "group_instance_id": instance_id, "error_code": error})
        error = answers[0]["error_code"] if "members" not in request else errors.NONE
        return {"error_code": error, "members": answers}

    def _leave_one(self, group_id: str, member_id: str, instance_id: str | None, now: float) -> int:
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and not member_id and instance_id is not None:
            member = group.of_instance(instance_id)
        if group is None or member is None:
            return errors.UNKNOWN_MEMBER_ID
        group.remove(member.member_id, errors.UNKNOWN_MEMBER_ID, now)
        return errors.NONE

    def may_commit(self, request: Values) -> int:
        """The error of an OffsetCommit. Without a generation it comes from a consumer that assigns itself its partitions."""
        generation = request.get("generation_id", -1)
        group = self._groups.get(request["group_id"])
        if not is_name(request["group_id"]):
            return errors.INVALID_GROUP_ID
        if generation < 0 and (group is None or not group.members):
            return errors.NONE
        if group is None:
            return errors.ILLEGAL_GENERATION
        error = group.check(request["member_id"], request.get("group_instance_id"), generation)
        if not error and group.state is State.COMPLETING:
            return errors.REBALANCE_IN_PROGRESS
        return error

    def _checked(self, request: Values) -> tuple[Group | None, int]:
        """(the group, NONE), or (None, the error)."""
        group = self._groups.get(request["group_id"])
        if group is None:
            return None, errors.UNKNOWN_MEMBER_ID
        error = group.check(request["member_id"], request.get("group_instance_id"), request["generation_id"])
        return (None, error) if error else (group, errors.NONE)

    # --- what tools ask ---

    def listed(self, states: Collection[str]) -> list[Values]:
        """The groups in one of these states, in letters of any case; in any state where there are none (KIP-518)."""
        wanted = {state.lower() for state in states}
        return [
            {"group_id": group.group_id, "protocol_type": group.protocol_type, "group_state": group.state.value}
            for group in self._groups.values()
            if not wanted or group.state.value.lower() in wanted
        ]

    def described(self, group_id: str, room: int) -> tuple[Values, int]:
        """(the group, bytes of metadata and assignments in it). Members that do not fit into `room` come without these."""
        group = self._groups.get(group_id)
        left = room
        members = []
        protocol = "" if group is None else group.protocol
        for member in () if group is None else group.members.values():
            metadata, assignment = member.metadata(protocol), member.assignment
            if len(metadata) + len(assignment) > left:
                metadata = assignment = b""
            left -= len(metadata) + len(assignment)
            members.append(
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.joining.instance_id,
                    "client_id": member.joining.client_id,
                    "client_host": member.joining.client_host,
                    "member_metadata": metadata,
                    "member_assignment": assignment,
                }
            )
        described = {
            "error_code": errors.NONE,
            "group_id": group_id,
            "group_state": "Dead" if group is None else group.state.value,
            "protocol_type": "" if group is None else group.protocol_type,
            "protocol_data": protocol,
            "members": members,
        }
        return described, room - left

    # --- time, answers ---

    def next_timeout(self) -> float | None:
        times = [group.next_timeout() for group in self._groups.values()]
        return min((time for time in times if time is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        for group in list(self._groups.values()):
            group.handle_timeout(now)

    def take_answers(self) -> list[tuple[int, Values]]:
        """(token, answer) of requests that have waited. Groups without members are forgotten."""
        found: list[tuple[int, Values]] = []
        for group in list(self._groups.values()):
            found += group.answers
            group.answers = []
            if not group.members:
                del self._groups[group.group_id]
        return found


def is_name(text: str) -> bool:
    """Return whether this can be the id of a group."""
    return bool(text) and _is_short(text)


def _is_short(text: str) -> bool:
    return len(text.encode()) <= NAME_BYTES_MAX
