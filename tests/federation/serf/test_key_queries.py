"""Key queries: what a member does, what it answers and when, and how the asker counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from federation.gossip.counters import DropReason
from federation.gossip.keyring import KEYS_MAX, Keyring, key_text
from federation.serf.asked_queries import AskedQuery
from federation.serf.config import SerfConfig
from federation.serf.events import KeysChanged, MemberEvent, MemberFailed
from federation.serf.key_queries import (
    QUERY_INSTALL_KEY,
    QUERY_KEYS,
    QUERY_LIST_KEYS,
    QUERY_REMOVE_KEY,
    QUERY_USE_KEY,
    KeyCounts,
    count_key_responses,
    do_key_query,
)
from federation.serf.messages import KeyRequest, KeyResponse
from federation.serf.serf import Serf
from simulator.network import Faults
from simulator.serf_process import SerfProcess
from simulator.world import Host, World

A, B, C = b"a" * 16, b"b" * 24, b"c" * 32


def request(key: bytes) -> bytes:
    return KeyRequest(key).encode()


@pytest.mark.parametrize(
    ("name", "payload", "keys", "words"),
    [
        (QUERY_INSTALL_KEY, request(C), (A, B, C), ""),
        (QUERY_INSTALL_KEY, request(B), (A, B), ""),
        (QUERY_INSTALL_KEY, request(b"short"), (A, B), "5 bytes"),
        (QUERY_USE_KEY, request(B), (B, A), ""),
        (QUERY_USE_KEY, request(C), (A, B), "install"),
        (QUERY_REMOVE_KEY, request(B), (A,), ""),
        (QUERY_REMOVE_KEY, request(C), (A, B), ""),
        (QUERY_REMOVE_KEY, request(A), (A, B), "primary"),
        (QUERY_INSTALL_KEY, b"", (A, B), "no key"),
        (QUERY_USE_KEY, b"\x08\x80", (A, B), "no key"),
    ],
)
def test_what_a_member_does(name: str, payload: bytes, keys: tuple[bytes, ...], words: str) -> None:
    keyring = Keyring([A, B], Random(1))
    response = do_key_query(keyring, False, name, payload)
    assert keyring.keys == keys
    assert (response.result, response.keys) == (not words, None)
    assert words in response.message


def test_a_list_and_a_member_without_keys() -> None:
    response = do_key_query(Keyring([B, A], Random(1)), False, QUERY_LIST_KEYS, request(b""))
    assert response == KeyResponse((key_text(B), key_text(A)), "", key_text(B), True)
    for name in QUERY_KEYS:
        response = do_key_query(None, False, name, request(A))
        assert (response.result, response.keys) == (False, None)
        assert "not encrypted" in response.message


@pytest.mark.parametrize("name", QUERY_KEYS)
def test_whoever_may_have_sent_a_plain_packet_neither_learns_nor_changes_keys(name: str) -> None:
    keyring = Keyring([A, B], Random(1))
    response = do_key_query(keyring, True, name, request(B))
    assert keyring.keys == (A, B)
    assert (response.result, response.keys, response.primary_key) == (False, None, "")
    assert "gossip_verify_incoming" in response.message


@pytest.mark.parametrize("payload", [b"\x07", b"\x07\xc1", b"\x07\x81\xa3Key"])
def test_a_query_that_cannot_be_read_is_answered(payload: bytes) -> None:
    response = do_key_query(Keyring([A], Random(1)), False, QUERY_INSTALL_KEY, payload)
    assert not response.result
    assert response.message


def test_counts() -> None:
    counts = count_key_responses(
        {
            "n1": KeyResponse(("A", "B"), "", "A", True).encode(),
            "n2": KeyResponse(("B", "A", "A"), "only some", "B", True).encode(),
            "old": KeyResponse(("B",), "", "", True).encode(),
            "n4": KeyResponse(None, "disk full", "", False).encode(),
            "n5": KeyResponse(None, "", "", False).encode(),
            "n6": b"",
            "n7": b"\x08\xff",
        },
        8,
    )
    assert (counts.nodes, counts.responses, counts.errors) == (8, 7, 4)
    assert (counts.keys, counts.primary_keys) == ({"A": 2, "B": 3}, {"A": 1, "B": 1})
    assert sorted(counts.messages) == ["n2", "n4", "n5", "n6", "n7"]
    assert counts.messages["n4"] == "disk full"
    assert all(counts.messages.values())


def new_serf(**settings: object) -> Serf:
    config = SerfConfig("me", "10.0.0.1", 8902, encrypt_keys=(A,))
    serf = Serf(replace(config, **settings), Random(1), 0.0)  # type: ignore[arg-type]
    serf.take_events()
    return serf


def counts_of(asked: AskedQuery, nodes: int = 1) -> KeyCounts:
    return count_key_responses(asked.responses, nodes)


def test_the_answer_waits_until_the_keys_are_kept() -> None:
    serf = new_serf(keeps_keys=True)
    for error, words in (("", {}), ("disk full", {"me": "disk full"})):
        asked = serf.ask_keys(QUERY_INSTALL_KEY, C, 0.0)
        (changed,) = [event for event in serf.take_events() if isinstance(event, KeysChanged)]
        assert (changed.keys, changed.awaits, asked.responses) == ((A, C), True, {})
        serf.keys_kept(changed, error, 1.0)
        assert counts_of(asked) == KeyCounts(1, 1, len(words), words)
    asked = serf.ask_keys(QUERY_USE_KEY, B, 0.0)  # nothing changed, nothing is kept
    assert counts_of(asked).errors == 1
    assert serf.keyring is not None
    assert serf.keyring.keys == (A, C)


def test_without_a_keeper_the_answer_comes_at_once() -> None:
    serf = new_serf()
    asked = serf.ask_keys(QUERY_INSTALL_KEY, C, 0.0)
    assert counts_of(asked) == KeyCounts(1, 1)
    (changed,) = [event for event in serf.take_events() if isinstance(event, KeysChanged)]
    assert (changed.keys, changed.awaits) == ((A, C), False)


def test_a_list_that_is_too_long_is_cut_off() -> None:
    keys = tuple(bytes((number,)) * 32 for number in range(KEYS_MAX))
    serf = new_serf(encrypt_keys=keys, node_name="n" * 255)
    asked = serf.ask_keys(QUERY_LIST_KEYS, b"", 0.0)
    counts = counts_of(asked)
    assert (counts.responses, counts.errors) == (1, 0)
    assert 10 < len(counts.keys) < KEYS_MAX
    assert set(counts.keys) == {key_text(key) for key in keys[: len(counts.keys)]}
    (text,) = counts.messages.values()
    assert str(len(counts.keys)) in text
    assert str(KEYS_MAX) in text
    assert serf.counters.drops == 0


# --- a cluster


class Cluster:
    def __init__(self, count: int, seed: int = 1, faults: Faults | None = None) -> None:
        self.world = World(seed, faults)
        self.hosts: list[Host] = []
        for number in range(1, count + 1):
            self.add(number)
        self.world.run(5.0)

    def add(self, number: int, *keys: bytes) -> None:
        ip = f"10.0.0.{number}"
        config = SerfConfig(f"n{number}", ip, 8902, encrypt_keys=keys or (A,))
        seeds = [("10.0.0.1", 8902)] if number > 1 else []
        host = self.world.add_host(f"n{number}", ip, lambda host: SerfProcess(host, config, seeds))
        host.start()
        self.hosts.append(host)

    def process(self, number: int) -> SerfProcess:
        process = self.hosts[number - 1].process
        assert isinstance(process, SerfProcess)
        return process

    def ask(self, number: int, name: str, key: bytes) -> KeyCounts:
        serf = self.process(number).serf
        nodes = serf.alive_others() + 1
        asked = serf.ask_keys(name, key, self.world.now)
        self.hosts[number - 1].settle()
        self.world.run_until(lambda: asked.is_over or len(asked.responses) == nodes, 30.0, f"{name} is over")
        return counts_of(asked, nodes)

    def check(self, what: str, condition: Callable[[Serf], bool]) -> None:
        for number in range(1, len(self.hosts) + 1):
            self.world.check(condition(self.process(number).serf), f"n{number}: {what}")


def test_a_cluster_rotates_its_key_and_nothing_is_dropped() -> None:
    cluster = Cluster(6)
    everyone = KeyCounts(6, 6)
    assert cluster.ask(2, QUERY_INSTALL_KEY, C) == everyone
    assert cluster.ask(3, QUERY_REMOVE_KEY, A).errors == 6  # it is in use
    assert cluster.ask(4, QUERY_USE_KEY, C) == everyone
    both = cluster.ask(5, QUERY_LIST_KEYS, b"")
    assert both == replace(everyone, keys={key_text(C): 6, key_text(A): 6}, primary_keys={key_text(C): 6})
    assert cluster.ask(6, QUERY_REMOVE_KEY, A) == everyone
    cluster.add(7, C)
    cluster.world.run(60.0)
    cluster.check("it has the new key alone", lambda serf: serf.keyring is not None and serf.keyring.keys == (C,))
    cluster.check("it sees seven members", lambda serf: serf.alive_others() == 6)
    cluster.check("nothing was dropped", lambda serf: serf.counters.drops == 0)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_rotation_on_a_bad_network_loses_no_member(seed: int) -> None:
    """What a member did not hear is repeated, as an operator does it, before the next step."""
    cluster = Cluster(5, seed, Faults(loss=0.1, delay_min=0.001, delay_max=0.1))
    cluster.world.run_until(
        lambda: all(cluster.process(number).serf.alive_others() == 4 for number in range(1, 6)), 60.0, "all joined"
    )
    for name, key in ((QUERY_INSTALL_KEY, C), (QUERY_USE_KEY, C), (QUERY_REMOVE_KEY, A)):
        for _ in range(20):
            counts = cluster.ask(1, name, key)
            assert counts.errors == 0
            if counts == KeyCounts(5, 5):
                break
        assert counts == KeyCounts(5, 5)
    cluster.world.run(30.0)
    cluster.check("it has the new key alone", lambda serf: serf.keyring is not None and serf.keyring.keys == (C,))
    for number in range(1, 6):
        events = [event for event in cluster.process(number).events if isinstance(event, MemberEvent)]
        assert not any(isinstance(event, MemberFailed) for event in events)


def test_a_member_without_the_new_key_is_counted_and_is_back_with_it() -> None:
    cluster = Cluster(3)
    cluster.hosts[2].crash()
    cluster.world.run(40.0)
    assert cluster.ask(1, QUERY_INSTALL_KEY, C) == KeyCounts(2, 2)
    assert cluster.ask(1, QUERY_USE_KEY, C) == KeyCounts(2, 2)
    cluster.hosts[2].start()
    cluster.world.run(60.0)
    late = cluster.process(3).serf
    assert late.counters.dropped[DropReason.WRONG_KEY] > 0
    assert late.keyring is not None
    late.keyring.install(C)  # as its operator does, in the file
    late.keyring.use(C)
    cluster.world.run(90.0)
    cluster.check("it sees all", lambda serf: serf.alive_others() == 2)
