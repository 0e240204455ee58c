"""Consumer groups: who joins, leaves and is told what; and random schedules, after which all members have one assignment."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka import error_codes as errors
from broker.kafka import groups as groups_module
from broker.kafka.groups import Groups
from kafka_client import join_request

Answer = dict[str, Any]
SESSION = 10.0


class World:
    """Groups with a clock. `answers` are those that came later, by the token of their request."""

    def __init__(self) -> None:
        self.groups = Groups(Random(1))
        self.now = 0.0
        self.answers: dict[int, Answer] = {}
        self._token = 0

    def _settle(self, answer: Answer | None) -> int:
        if answer is not None:
            self.answers[self._token] = answer
        self.answers.update(self.groups.take_answers())
        return self._token

    def join(self, member_id: str = "", version: int = 3, group: str = "g", **changed: Any) -> int:
        """Returns the token of the request."""
        self._token += 1
        request = join_request(group, member_id) | changed
        return self._settle(self.groups.join(self._token, request, version, "c", "h:1", self.now))

    def sync(self, joined: Answer, assignments: dict[str, bytes] | None = None, group: str = "g") -> int:
        self._token += 1
        request = of_member(joined, group) | {
            "assignments": [{"member_id": key, "assignment": value} for key, value in (assignments or {}).items()]
        }
        return self._settle(self.groups.sync(self._token, request, self.now))

    def heartbeat(self, joined: Answer) -> int:
        error = self.groups.heartbeat(of_member(joined), self.now)["error_code"]
        self._settle(None)
        return int(error)

    def leave(self, member_id: str) -> int:
        members = [{"member_id": member_id, "group_instance_id": None}]
        answer = self.groups.leave({"group_id": "g", "members": members}, self.now)
        self._settle(None)
        return int(answer["members"][0]["error_code"])

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.groups.handle_timeout(self.now)
        self._settle(None)

    def stable_pair(self) -> tuple[Answer, Answer]:
        """Two members with an assignment; the first one leads."""
        one = self.answers[self.join()]
        second = self.join()
        one = self.answers[self.join(one["member_id"])]
        two = self.answers[second]
        waiting = self.sync(two)
        assert waiting not in self.answers
        own = self.sync(one, {one["member_id"]: b"1", two["member_id"]: b"2"})
        assert [self.answers[token]["assignment"] for token in (own, waiting)] == [b"1", b"2"]
        return one, two


def of_member(joined: Answer, group: str = "g") -> dict[str, Any]:
    return {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}


@pytest.fixture
def world() -> World:
    return World()


def test_a_member_alone_leads(world: World) -> None:
    joined = world.answers[world.join()]
    assert (joined["error_code"], joined["generation_id"], joined["protocol_name"]) == (0, 1, "range")
    assert joined["leader"] == joined["member_id"]
    assert [each["metadata"] for each in joined["members"]] == [b"meta"]
    assert world.answers[world.sync(joined, {joined["member_id"]: b"x"})]["assignment"] == b"x"
    assert world.heartbeat(joined) == errors.NONE


def test_a_second_member_makes_all_join_again(world: World) -> None:
    one, two = world.stable_pair()
    assert one["generation_id"] == two["generation_id"] == 2
    assert len(one["members"]) == 2
    assert two["members"] == []
    third = world.join()
    assert third not in world.answers
    assert [world.heartbeat(each) for each in (one, two)] == [errors.REBALANCE_IN_PROGRESS] * 2
    assert world.answers[world.sync(one)]["error_code"] == errors.REBALANCE_IN_PROGRESS
    world.join(one["member_id"])
    assert third not in world.answers
    world.join(two["member_id"])
    assert world.answers[third]["generation_id"] == 3
    assert world.heartbeat(one) == errors.ILLEGAL_GENERATION


def test_a_member_that_does_not_join_again_is_removed(world: World) -> None:
    _, two = world.stable_pair()
    third = world.join()
    again = world.join(two["member_id"])
    world.pass_time(SESSION)  # the first one sends nothing
    assert world.answers[third]["generation_id"] == world.answers[again]["generation_id"] == 3
    assert world.groups.members == 2
    assert world.answers[again]["leader"] in (world.answers[third]["member_id"], two["member_id"])


def test_a_member_that_beats_and_does_not_join_again_is_removed(world: World) -> None:
    one, _ = world.stable_pair()
    third = world.join()
    for _ in range(8):
        world.pass_time(SESSION * 0.9)
        if third not in world.answers:
            world.heartbeat(one)
    assert world.answers[third]["error_code"] == errors.NONE  # after the rebalance timeout of 60 s
    assert world.groups.members == 1


def test_a_leader_that_beats_and_does_not_assign_is_removed(world: World) -> None:
    one = world.answers[world.join()]
    second = world.join()
    one = world.answers[world.join(one["member_id"])]
    waiting = world.sync(world.answers[second])
    for _ in range(8):
        world.pass_time(SESSION * 0.9)
        if waiting not in world.answers:
            assert world.heartbeat(one) == errors.NONE
    assert world.answers[waiting]["error_code"] == errors.REBALANCE_IN_PROGRESS
    again = world.answers[world.join(world.answers[second]["member_id"])]
    assert again["leader"] == again["member_id"]
    assert world.heartbeat(one) == errors.UNKNOWN_MEMBER_ID


def test_a_sync_that_another_one_overtakes_is_answered(world: World) -> None:
    one = world.answers[world.join()]
    second = world.join()
    one = world.answers[world.join(one["member_id"])]
    two = world.answers[second]
    overtaken, waiting = world.sync(two), world.sync(two)
    assert world.answers[overtaken]["error_code"] == errors.REBALANCE_IN_PROGRESS
    world.sync(one, {two["member_id"]: b"2"})
    assert world.answers[waiting]["assignment"] == b"2"


def test_members_expire_and_leave(world: World) -> None:
    one, two = world.stable_pair()
    world.pass_time(SESSION / 2)
    assert world.heartbeat(one) == errors.NONE
    world.pass_time(SESSION / 2)
    assert world.heartbeat(two) == errors.UNKNOWN_MEMBER_ID
    assert world.heartbeat(one) == errors.REBALANCE_IN_PROGRESS
    assert world.leave(one["member_id"]) == errors.NONE
    assert world.leave(one["member_id"]) == errors.UNKNOWN_MEMBER_ID
    assert len(world.groups) == 0
    assert world.groups.next_timeout() is None


def test_who_leaves_is_answered_once(world: World) -> None:
    joined = world.answers[world.join()]

    def leave(*members: str) -> Answer:
        leaving = [{"member_id": each, "group_instance_id": None} for each in members]
        return world.groups.leave({"group_id": "g", "members": leaving}, world.now)

    answer = leave(joined["member_id"], "x", joined["member_id"], "x")
    assert [each["error_code"] for each in answer["members"]] == [errors.NONE, errors.UNKNOWN_MEMBER_ID]
    assert leave(*map(str, range(251)))["error_code"] == errors.INVALID_REQUEST


def test_a_lost_answer_is_given_again(world: World) -> None:
    one, two = world.stable_pair()
    again = world.answers[world.join(two["member_id"])]
    assert (again["generation_id"], again["members"]) == (2, [])
    assert world.answers[world.sync(again)]["assignment"] == b"2"
    assert world.heartbeat(one) == errors.NONE


def test_new_members_are_told_their_id_first(world: World) -> None:
    """KIP-394: a member whose answer is lost leaves no trace."""
    told = world.answers[world.join(version=4)]
    assert told["error_code"] == errors.MEMBER_ID_REQUIRED
    assert world.groups.members == 0
    joined = world.answers[world.join(told["member_id"], version=4)]
    assert (joined["error_code"], joined["member_id"]) == (errors.NONE, told["member_id"])
    assert world.answers[world.join("somebody", version=4)]["error_code"] == errors.UNKNOWN_MEMBER_ID


def test_a_static_member_replaces_itself(world: World) -> None:
    """KIP-345: the one that came later is the member."""
    first = world.answers[world.join(group_instance_id="i", version=5)]
    second = world.answers[world.join(group_instance_id="i", version=5)]
    assert second["error_code"] == errors.NONE
    assert world.groups.members == 1
    request = of_member(first) | {"group_instance_id": "i"}
    assert world.groups.heartbeat(request, world.now)["error_code"] == errors.FENCED_INSTANCE_ID
    old = world.join(first["member_id"], group_instance_id="i", version=5)
    assert world.answers[old]["error_code"] == errors.FENCED_INSTANCE_ID


def test_a_static_member_that_starts_again_keeps_its_assignment(world: World) -> None:
    """KIP-345: whether it leads or not, the other one goes on."""
    first, second = world.join(group_instance_id="i", version=5), world.join(group_instance_id="j", version=5)
    one = world.answers[world.join(world.answers[first]["member_id"], group_instance_id="i", version=5)]
    two = world.answers[second]
    world.sync(one, {one["member_id"]: b"1", two["member_id"]: b"2"})
    for instance, former, assignment, other in (("j", two, b"2", one), ("i", one, b"1", None)):
        again = world.answers[world.join(group_instance_id=instance, version=5)]
        assert (again["error_code"], again["generation_id"], again["members"]) == (0, one["generation_id"], [])
        assert again["leader"] == one["member_id"]
        assert again["member_id"] != former["member_id"]
        assert world.answers[world.sync(again)]["assignment"] == assignment
        assert world.heartbeat(again) == errors.NONE
        request = of_member(former) | {"group_instance_id": instance}
        assert world.groups.heartbeat(request, world.now)["error_code"] == errors.FENCED_INSTANCE_ID
        if other is not None:
            assert world.heartbeat(other) == errors.NONE
    assert world.groups.members == 2
    # With other protocols it joins as a new one.
    changed = [{"name": "range", "metadata": b"other"}]
    world.join(group_instance_id="j", version=5, protocols=changed)
    assert world.heartbeat(again) == errors.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"group_id": ""}, errors.INVALID_GROUP_ID),
        ({"group_id": "g" * 257}, errors.INVALID_GROUP_ID),
        ({"session_timeout_ms": 999}, errors.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2**31 - 1}, errors.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "m" * 257}, errors.INVALID_REQUEST),
        ({"protocol_type": "t" * 257}, errors.INVALID_REQUEST),
        ({"protocols": [{"name": "p" * 257, "metadata": b""}]}, errors.INVALID_REQUEST),
        ({"protocols": [{"name": f"p{each}", "metadata": b""} for each in range(17)]}, errors.INVALID_REQUEST),
    ],
)
def test_members_that_cannot_be(world: World, changed: dict[str, Any], error: int) -> None:
    assert world.answers[world.join(**changed)]["error_code"] == error
    assert len(world.groups) == 0


def test_all_members_have_a_protocol_in_common(world: World) -> None:
    world.join(protocols=[{"name": "a", "metadata": b""}, {"name": "b", "metadata": b"1"}])
    refused = world.join(protocols=[{"name": "c", "metadata": b""}])
    assert world.answers[refused]["error_code"] == errors.INCONSISTENT_GROUP_PROTOCOL
    assert world.answers[world.join(protocol_type="connect")]["error_code"] == errors.INCONSISTENT_GROUP_PROTOCOL
    second = world.join(protocols=[{"name": "b", "metadata": b"2"}])
    world.pass_time(SESSION)
    assert world.answers[second]["protocol_name"] == "b"


def test_groups_and_members_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 5)
    monkeypatch.setattr(groups_module, "MEMBERS_MAX", 10)
    for number in range(5):
        world.join(group=f"g{number}")
    assert world.answers[world.join(group="more")]["error_code"] == errors.GROUP_MAX_SIZE_REACHED
    for _ in range(9):
        world.join(group="g0")
    assert world.answers[world.join(group="g0")]["error_code"] == errors.GROUP_MAX_SIZE_REACHED
    monkeypatch.setattr(groups_module, "ALL_MEMBERS_MAX", 15)
    world.join(group="g1")
    assert world.answers[world.join(group="g1")]["error_code"] == errors.GROUP_MAX_SIZE_REACHED
    monkeypatch.setattr(groups_module, "ALL_MEMBERS_MAX", 100)
    monkeypatch.setattr(groups_module, "MEMBERS_BYTES_MAX", world.groups._bytes() + 5_000)
    large = [{"name": "range", "metadata": b"x" * 5_000}]
    assert world.answers[world.join(group="g1", protocols=large)]["error_code"] == errors.GROUP_MAX_SIZE_REACHED
    assert world.groups.refused == 4


def test_a_description_is_bounded(world: World) -> None:
    """Members that find no room come without their metadata."""
    for _ in range(4):
        world.join(protocols=[{"name": "range", "metadata": b"x" * 100}])
    world.pass_time(SESSION)  # the first one does not join again
    for room, sizes in ((1_000, [100, 100, 100]), (250, [100, 100, 0]), (0, [0, 0, 0])):
        described, size = world.groups.described("g", room)
        assert size == sum(sizes)
        assert [len(each["member_metadata"]) for each in described["members"]] == sizes
    assert world.groups.described("h", 0)[0]["group_state"] == "Dead"


def test_who_may_commit(world: World) -> None:
    def error(generation: int, member_id: str = "") -> int:
        return world.groups.may_commit({"group_id": "g", "generation_id": generation, "member_id": member_id})

    assert [error(-1), error(1)] == [errors.NONE, errors.ILLEGAL_GENERATION]
    joined = world.answers[world.join()]
    assert error(1, joined["member_id"]) == errors.REBALANCE_IN_PROGRESS
    world.sync(joined)
    assert error(1, joined["member_id"]) == errors.NONE
    assert error(0, joined["member_id"]) == errors.ILLEGAL_GENERATION
    assert error(-1) == errors.UNKNOWN_MEMBER_ID


class Player:
    """A consumer that follows the protocol. `assigned`: of the generation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.joined: Answer = {"member_id": ""}
        self.token = 0
        self.is_syncing = False
        self.assigned: tuple[int, bytes] | None = None
        self.join()

    def join(self) -> None:
        self.assigned = None
        self.is_syncing = False
        self.token = self.world.join(self.joined["member_id"])

    def act(self) -> None:
        if self.assigned is not None:
            if self.world.heartbeat(self.joined) != errors.NONE:
                self.join()
            return
        answer = self.world.answers.get(self.token)
        if answer is None:
            return
        if answer["error_code"] == errors.UNKNOWN_MEMBER_ID:
            self.joined = {"member_id": ""}
        if answer["error_code"]:
            self.join()
        elif self.is_syncing:
            self.assigned = self.joined["generation_id"], answer["assignment"]
        else:
            self.joined = answer
            self.is_syncing = True
            shares = {each["member_id"]: each["member_id"].encode() for each in answer["members"]}
            self.token = self.world.sync(answer, shares)


@given(st.lists(st.tuples(st.sampled_from(("add", "crash", "leave", "wait", "act")), st.integers(0, 9)), max_size=40))
def test_after_any_schedule_all_members_have_the_assignment_of_one_generation(schedule: list[tuple[str, int]]) -> None:
    world = World()
    players: list[Player] = []
    for action, number in schedule:
        player = players[number % len(players)] if players else None
        if action == "add":
            players.append(Player(world))
        elif action == "wait":
            world.pass_time(number)
        elif player is not None and action == "act":
            player.act()
        elif player is not None:
            players.remove(player)
            if action == "leave":
                world.leave(player.joined["member_id"])
    for _ in range(60):
        for player in players:
            player.act()
        world.pass_time(2.0)
    assert world.groups.members == len(players)
    generations = {player.assigned[0] if player.assigned else None for player in players}
    assert len(generations) <= 1
    for player in players:
        assert player.assigned is not None
        assert player.assigned[1] == player.joined["member_id"].encode()
