"""Definitions: changes, refusals, tombstones, what stands in the configuration file, and convergence."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.definitions import definitions as module
from federation.definitions import versions
from federation.definitions.definitions import LINK_KEY_BITS, Definitions
from federation.definitions.document import read_document, write_document
from federation.definitions.entry import (
    POLICY,
    UPSTREAM,
    UPSTREAM_SET,
    Entry,
    canonical,
)
from federation.definitions.error import DefinitionError
from federation.definitions.versions import REFUSED_NAMED_MAX, TOMBSTONE_SECONDS
from federation.hybrid_clock import AHEAD_MAX, CLOCK_LATEST, CLOCK_MAX, COUNTER_BITS

NOW = 1_700_000_000.0
ALL = {"pattern": "a/#", "definition": {"federation-upstream-set": "all"}}


def upstream(host: str = "host", **keys: Any) -> dict[str, Any]:
    return {"uri": f"mqtt://{host}"} | keys


def test_a_definition_is_in_effect_at_once() -> None:
    definitions = Definitions("n")
    assert definitions.put(UPSTREAM, "u", upstream(), NOW) == []
    assert definitions.put(POLICY, "p", ALL, NOW) == []
    assert [link.upstream.name for link in definitions.resolution().links()] == ["u"]
    assert definitions.get(UPSTREAM, "u") == upstream()
    assert definitions.names(UPSTREAM) == ["u"]
    assert definitions.delete(UPSTREAM, "u", NOW)
    assert definitions.resolution().links() == []
    assert definitions.get(UPSTREAM, "u") is None
    assert definitions.names(UPSTREAM) == []
    assert not definitions.delete(UPSTREAM, "u", NOW)


def clock_at(time: float) -> int:
    return int(time * 1000) << COUNTER_BITS


def test_a_change_is_above_everything_that_its_node_has_seen() -> None:
    definitions = Definitions("n")
    ahead = Entry(UPSTREAM, "u", clock_at(NOW + AHEAD_MAX), "z", canonical(upstream("far")))
    assert definitions.merge([ahead], NOW) == 1
    definitions.put(UPSTREAM, "u", upstream("near"), NOW)
    definitions.put(UPSTREAM, "u", upstream("nearer"), NOW)
    assert definitions.get(UPSTREAM, "u") == upstream("nearer")
    assert definitions.merge([ahead], NOW) == 0


def test_the_links_of_a_new_upstream_have_a_key_that_is_kept_and_those_of_a_stored_one_have_none() -> None:
    definitions = Definitions("n", rng=random.Random(1))
    stored = Entry(UPSTREAM, "stored", clock_at(NOW), "m", canonical(upstream()))
    definitions.load([stored], NOW)
    definitions.put(UPSTREAM, "stored", upstream("changed"), NOW)
    definitions.put(UPSTREAM, "new", upstream(), NOW)
    definitions.put(POLICY, "p", ALL, NOW)
    new, old = definitions.resolution().links()
    assert old.key == ""
    assert len(new.key) == LINK_KEY_BITS // 4
    definitions.put(UPSTREAM, "new", upstream("changed"), NOW)
    other = Definitions("o", rng=random.Random(2))
    other.merge(definitions.entries(), NOW)
    assert [plan.key for plan in other.resolution().links()] == [new.key, ""]
    definitions.delete(UPSTREAM, "new", NOW)
    definitions.put(UPSTREAM, "new", upstream(), NOW)
    assert definitions.resolution().links()[0].key not in ("", new.key)


def test_changes_are_taken_once_and_the_last_of_each_entry() -> None:
    definitions = Definitions("n")
    definitions.put(UPSTREAM, "u", upstream(), NOW)
    definitions.delete(UPSTREAM, "u", NOW)
    assert [entry.value for entry in definitions.take_changes()] == [None]
    assert definitions.take_changes() == []


@pytest.mark.parametrize(
    ("component", "name", "value", "key"),
    [
        ("federation", "u", upstream(), "component"),
        (UPSTREAM, "a/b", upstream(), "name"),
        (UPSTREAM, "u", {"uri": "x"}, "uri"),
        (UPSTREAM_SET, "s", [{"upstream": "u"}, {"upstream": "gone"}], "[1].upstream"),
        (UPSTREAM_SET, "s", [{"upstream": "u", "tls": {"cacertfile": "/a"}}], "[0].tls"),
        (POLICY, "p", {"pattern": "a/#/b", "definition": {"federation-upstream-set": "all"}}, "pattern"),
        (POLICY, "p", {"pattern": "$share/g/a", "definition": {"overflow": "reject"}}, "definition.overflow"),
        (POLICY, "p", {**ALL, "pattern": "^federated\\."}, "pattern"),
        (POLICY, "p", {**ALL, "pattern": "federated/.*"}, "pattern"),
        (UPSTREAM, "u", {"uri": "mqtt://***@h"}, "uri"),
        (UPSTREAM, "u", {"uri": ["mqtt://h", "mqtt://a:***@h"]}, "uri[1]"),
        (UPSTREAM_SET, "s", [{"upstream": "u"}, {"upstream": "u", "uri": "mqtt://a:x***@h"}], "[1].uri"),
        (UPSTREAM, "declared", upstream(), "name"),
        (UPSTREAM, "u", upstream(exchange="x" * 70_000), "exchange"),
    ],
)
def test_a_definition_that_cannot_be_meant_is_refused(component: str, name: str, value: object, key: str) -> None:
    definitions = Definitions("n", {(UPSTREAM, "declared"): upstream()})
    definitions.put(UPSTREAM, "u", upstream(), NOW)
    before = definitions.digest()
    with pytest.raises(DefinitionError) as caught:
        definitions.put(component, name, value, NOW)
    assert caught.value.key == key
    assert definitions.digest() == before


def test_what_was_stored_before_is_in_effect_although_it_is_not_written_any_more() -> None:
    definitions = Definitions("n")
    stored = [
        Entry(UPSTREAM, "u", clock_at(NOW), "n", canonical({"uri": "mqtt://a:x***y@h"})),
        Entry(POLICY, "p", clock_at(NOW), "n", canonical({**ALL, "pattern": "^federated\\."})),
    ]
    definitions.load(read_document(write_document(stored)), NOW)
    (link,) = definitions.resolution().links()
    assert link.upstream.uris[0].password == "x***y"
    assert definitions.put(UPSTREAM, "u", {"uri": "mqtt://a:x%2A%2A%2Ay@h"}, NOW) == []


def test_jobs_that_come_as_copies_are_told() -> None:
    definitions = Definitions("n", {(POLICY, "t"): {"pattern": "jobs/#", "definition": {"federation-upstream": "u"}}})
    queue = {"pattern": "$share/g/jobs/a", "definition": {"federation-upstream": "u"}}
    definitions.put(UPSTREAM, "u", upstream(), NOW)
    (warning,) = definitions.put(POLICY, "q", queue, NOW)
    assert warning.startswith("pattern: it shares topics with the policy t")
    assert definitions.copies() == [f'policy "q": {warning}']
    assert definitions.put(POLICY, "q", queue | {"definition": {}}, NOW) == []
    assert definitions.copies() == []


def test_readers_see_no_user_name_and_password() -> None:
    definitions = Definitions("n", {(UPSTREAM, "declared"): {"uri": ["mqtt://a:secret@h", "mqtt://b:secret@h"]}})
    definitions.put(UPSTREAM, "u", {"uri": "mqtt://token@h?heartbeat=5", "max-hops": 2}, NOW)
    definitions.put(UPSTREAM_SET, "s", [{"upstream": "u", "uri": "mqtt://x:secret@h"}, {"upstream": "declared"}], NOW)
    definitions.merge([Entry(UPSTREAM, "newer", 1, "m", canonical({"uri": "quic://a:secret@h"}))], NOW)
    assert definitions.read(UPSTREAM, "declared") == {"uri": ["mqtt://***@h:1883"] * 2}
    assert definitions.read(UPSTREAM, "u") == {"uri": "mqtt://***@h:1883?heartbeat=5", "max-hops": 2}
    assert definitions.read(UPSTREAM_SET, "s") == [
        {"upstream": "u", "uri": "mqtt://***@h:1883"},
        {"upstream": "declared"},
    ]
    assert definitions.read(UPSTREAM, "newer") == {"uri": "***"}
    unknown = {"token": "secret", "max-hops": 2}
    for clock, (component, value, shown) in enumerate(
        [
            (UPSTREAM, unknown, {"token": "***", "max-hops": 2}),
            (UPSTREAM_SET, [unknown], [{"token": "***", "max-hops": 2}]),
            (UPSTREAM_SET, {"members": ["secret"]}, {"members": "***"}),
            (UPSTREAM, "secret", "***"),
        ],
        1,
    ):
        definitions.merge([Entry(component, "x", clock, "m", canonical(value))], NOW)
        assert definitions.read(component, "x") == shown
    assert definitions.read(UPSTREAM, "gone") is None
    assert definitions.get(UPSTREAM, "u") == {"uri": "mqtt://token@h?heartbeat=5", "max-hops": 2}


def test_many_definitions_are_written_all_or_none() -> None:
    definitions = Definitions("n")
    wanted: list[tuple[str, str, object]] = [
        (POLICY, "p", {"pattern": "a", "definition": {"federation-upstream-set": "s"}}),
        (UPSTREAM_SET, "s", [{"upstream": "u"}]),
        (UPSTREAM, "u", upstream(**{"ha-policy": "all"})),
    ]
    with pytest.raises(DefinitionError) as caught:
        definitions.put_all([*wanted, (UPSTREAM, "v", {})], NOW)
    assert caught.value.key == 'upstream "v".uri'
    assert definitions.entries() == []
    warnings = definitions.put_all(wanted, NOW)
    assert [text.split(":")[0] for text in warnings] == ['upstream "u"']
    assert len(definitions.take_changes()) == 3
    assert len(definitions.resolution().links()) == 1
    assert definitions.put_all(wanted, NOW + 1) == warnings
    assert definitions.take_changes() == []


def test_a_name_that_may_become_defined_warns() -> None:
    definitions = Definitions("n")
    policy = {"pattern": "a", "definition": {"federation-upstream": "later"}}
    warning = 'definition.federation-upstream: no upstream "later"'
    assert definitions.put(POLICY, "p", policy, NOW) == [warning]
    assert definitions.problems() == [f'policy "p": {warning}']
    assert definitions.put(UPSTREAM, "later", upstream(**{"queue-type": "quorum"}), NOW)[0].startswith("queue-type")
    assert definitions.problems() == []


def test_a_cycle_of_two_links_warns() -> None:
    definitions = Definitions("n")
    definitions.put(UPSTREAM, "in", upstream(), NOW)
    policy = {"pattern": "a/#", "definition": {"federation-upstream-set": "all"}}
    assert definitions.put(POLICY, "p", policy, NOW) == []
    (warning,) = definitions.put(UPSTREAM, "out", upstream(direction="out"), NOW)
    assert warning.startswith('direction: a/# comes back over the upstream "in" again')
    assert definitions.put(POLICY, "p", {**policy, "priority": 1}, NOW) == [warning]
    assert definitions.put(UPSTREAM, "out", upstream(direction="out", exchange="from/us/# -> {#}"), NOW) == []


def test_a_key_that_is_no_longer_supported_is_read_and_named() -> None:
    """As an earlier version has stored it; a broker that strips properties gets the link into `error`, as without the key."""
    value = upstream() | {"content-window": 1000}
    definitions = Definitions("n")
    both = [{"upstream": "u", "content-window": 5}, {"upstream": "out"}]
    stored = [
        Entry(UPSTREAM, "u", clock_at(NOW), "n", canonical(value)),
        Entry(UPSTREAM, "out", clock_at(NOW), "n", canonical({**value, "direction": "out"})),
        Entry(UPSTREAM_SET, "s", clock_at(NOW), "n", canonical(both)),
        Entry(POLICY, "p", clock_at(NOW), "n", canonical({**ALL, "definition": {"federation-upstream-set": "s"}})),
    ]
    definitions.load(read_document(write_document(stored)), NOW)
    assert [bool(link.echo) for link in definitions.resolution().links()] == [True, False]
    named = [text for text in definitions.problems() if "content-window" in text]
    assert [text.split(":")[0] for text in named] == ['upstream "out"', 'upstream "u"', 'upstream set "s"']
    assert any("content-window" in text for text in definitions.put(UPSTREAM, "v", value, NOW))
    assert any("content-window" in text for text in definitions.put(UPSTREAM_SET, "s", both[:1], NOW))


def test_an_upstream_of_a_set_is_not_deleted() -> None:
    definitions = Definitions("n")
    definitions.put(UPSTREAM, "u", upstream(), NOW)
    definitions.put(UPSTREAM_SET, "s", [{"upstream": "u"}], NOW)
    with pytest.raises(DefinitionError, match='the upstream set "s" has it'):
        definitions.delete(UPSTREAM, "u", NOW)
    assert definitions.delete(UPSTREAM_SET, "s", NOW)
    assert definitions.delete(UPSTREAM, "u", NOW)


def test_the_configuration_file_hides_entries_of_the_same_name() -> None:
    definitions = Definitions("n", {(UPSTREAM, "u"): upstream("file"), (POLICY, "p"): ALL})
    definitions.merge([Entry(UPSTREAM, "u", 1, "m", canonical(upstream("other")))], NOW)
    (link,) = definitions.resolution().links()
    assert link.upstream.uris[0].host == "file"
    assert definitions.problems() == ['upstream "u": the one of the configuration file is used']
    with pytest.raises(DefinitionError, match="configuration file of this node"):
        definitions.delete(UPSTREAM, "u", NOW)
    assert [entry.key for entry in definitions.entries()] == [(UPSTREAM, "u")]


def test_entries_that_cannot_be_meant_here_are_kept_and_isolated() -> None:
    definitions = Definitions("n", {(POLICY, "p"): ALL})
    newer = [
        Entry(UPSTREAM, "newer", 1, "m", canonical(upstream() | {"quic-only": True})),
        Entry("federation-route", "r", 1, "m", "1"),
        Entry(UPSTREAM, "good", 1, "m", canonical(upstream())),
    ]
    assert definitions.merge(newer, NOW) == 3
    assert [link.upstream.name for link in definitions.resolution().links()] == ["good"]
    told = definitions.problems()
    assert len(told) == 2
    assert "quic-only: unknown key" in told[1]
    assert sorted(entry.key for entry in definitions.entries()) == sorted(entry.key for entry in newer)


def test_damaged_entries_are_refused_and_counted() -> None:
    definitions = Definitions("n")
    assert definitions.merge([Entry(UPSTREAM, "u", 0, "m", "{}"), Entry(UPSTREAM, "u", 1, "m", "{")], NOW) == 0
    assert definitions.counters.refused == 2
    assert definitions.entries() == []


@pytest.mark.parametrize("clock", [clock_at(NOW + AHEAD_MAX + 1), CLOCK_MAX])
def test_an_entry_that_a_wrong_clock_made_is_refused_and_named(clock: int) -> None:
    definitions = Definitions("n")
    far = Entry(UPSTREAM, "far", clock, "z", canonical(upstream("far")))
    assert definitions.merge([far, Entry(UPSTREAM, "u", clock_at(NOW), "m", canonical(upstream()))], NOW) == 1
    assert definitions.counters.refused == 1
    (refused,) = definitions.take_refused()
    assert all(part in refused for part in ('"far"', '"z"', "clock"))
    assert definitions.take_refused() == []
    other = Definitions("o")
    definitions.put(UPSTREAM, "v", upstream(), NOW)
    assert other.merge(definitions.entries(), NOW) == 2


@pytest.mark.parametrize("clock", [CLOCK_LATEST + 1, CLOCK_MAX])
def test_a_clock_that_no_node_can_have_is_stamped_anew_when_it_is_loaded(clock: int) -> None:
    definitions = Definitions("n")
    definitions.load(
        [
            Entry(UPSTREAM, "far", clock, "z", canonical(upstream("far"))),
            Entry(UPSTREAM, "u", clock_at(NOW) + 5, "m", canonical(upstream())),
        ],
        NOW,
    )
    assert definitions.counters.stamped_anew == 1
    definitions.put(UPSTREAM, "far", upstream("near"), NOW)
    found = {entry.name: entry for entry in definitions.entries()}
    assert clock_at(NOW) + 5 < found["far"].clock < clock_at(NOW + 1)
    assert found["u"].node == "m"
    assert Definitions("o").merge(found.values(), NOW) == 2


def test_definitions_ahead_of_the_clusters_time_are_stamped_anew_in_their_order() -> None:
    """A node that starts with a clock of 1970 loads what it made in its right time, and keeps it as it is until then."""
    definitions = Definitions("n")
    made = [
        Entry(UPSTREAM, name, clock_at(NOW) + counter, "m", canonical(upstream())) for counter, name in enumerate("ba")
    ]
    definitions.load(made, 0.0)
    assert definitions.entries() == made
    definitions.put(UPSTREAM, "a", upstream("other"), 0.0)
    before = definitions.digest()
    definitions.correct(NOW)
    assert definitions.digest() == before
    definitions.correct(NOW - AHEAD_MAX - 60)
    found = sorted(definitions.entries(), key=lambda entry: entry.clock)
    assert [(entry.name, entry.node) for entry in found] == [("b", "n"), ("a", "n")]
    assert Definitions("o").merge(found, NOW - AHEAD_MAX - 60) == 2
    assert definitions.get(UPSTREAM, "a") == upstream("other")


def test_what_was_refused_is_named_in_bounds() -> None:
    definitions = Definitions("n")
    definitions.merge([Entry(UPSTREAM, f"u{index}", CLOCK_MAX, "m", "{}") for index in range(100)], NOW)
    assert len(definitions.take_refused()) == REFUSED_NAMED_MAX
    assert definitions.counters.refused == 100


def test_a_tombstone_is_forgotten_after_its_time_and_not_taken_again() -> None:
    definitions = Definitions("n")
    definitions.put(UPSTREAM, "u", upstream(), NOW)
    definitions.delete(UPSTREAM, "u", NOW)
    (tombstone,) = definitions.entries()
    definitions.expire(NOW + TOMBSTONE_SECONDS - 1)
    assert definitions.entries() == [tombstone]
    definitions.expire(NOW + TOMBSTONE_SECONDS + 1)
    assert definitions.entries() == []
    assert definitions.digest() == 0
    assert definitions.merge([tombstone], NOW + TOMBSTONE_SECONDS + 1) == 0


def test_tombstones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "TOMBSTONES_MAX", 3)
    definitions = Definitions("n")
    for index in range(5):
        definitions.put(UPSTREAM, str(index), upstream(), NOW + index)
        definitions.delete(UPSTREAM, str(index), NOW + index)
    assert [entry.name for entry in definitions.entries()] == ["2", "3", "4"]
    assert definitions.counters.tombstones_dropped == 2


def test_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (module, versions):
        monkeypatch.setattr(found, "ENTRIES_MAX", 2)
    definitions = Definitions("n")
    definitions.put(UPSTREAM, "a", upstream(), NOW)
    definitions.put(UPSTREAM, "b", upstream(), NOW)
    with pytest.raises(DefinitionError, match="at most 2"):
        definitions.put(UPSTREAM, "c", upstream(), NOW)
    definitions.put(UPSTREAM, "a", upstream("other"), NOW)
    others = [Entry(UPSTREAM, str(index), 1, "m", "{}") for index in range(9)]
    assert definitions.merge(others, NOW) == 2
    assert definitions.counters.refused == 7


entries = st.lists(
    st.builds(
        Entry,
        st.sampled_from([UPSTREAM, POLICY]),
        st.sampled_from("abcd"),
        st.integers(1, 5).map(lambda number: (int(NOW * 1000) + number) << 16),
        st.sampled_from(["n1", "n2"]),
        st.sampled_from([None, "1", "2"]),
    ),
    max_size=12,
)


@given(entries, st.randoms(use_true_random=False))
def test_nodes_converge_in_any_order_and_with_repetition(found: list[Entry], rng: random.Random) -> None:
    nodes = []
    for name in ("a", "b", "c"):
        definitions = Definitions(name)
        shuffled = found + rng.sample(found, rng.randint(0, len(found)))
        rng.shuffle(shuffled)
        while shuffled:
            cut = rng.randint(1, len(shuffled))
            definitions.merge(shuffled[:cut], NOW)
            del shuffled[:cut]
        nodes.append(definitions)
    assert len({definitions.digest() for definitions in nodes}) == 1
    assert len({frozenset(definitions.entries()) for definitions in nodes}) == 1


@given(entries, entries)
def test_digests_are_equal_exactly_when_the_entries_are(found: list[Entry], other: list[Entry]) -> None:
    first, second = Definitions("a"), Definitions("b")
    first.merge(found, NOW)
    second.merge(other, NOW)
    is_same = set(first.entries()) == set(second.entries())
    assert (first.buckets() == second.buckets()) is is_same
    assert (first.digest() == second.digest()) is is_same
    assert bool(first.differing(second.buckets()) or second.differing(first.buckets())) is not is_same


def test_links_that_a_change_makes_impossible_are_warned_about() -> None:
    definitions = Definitions("a")
    definitions.put(UPSTREAM, "u", {"uri": "mqtts://u"}, NOW)
    definitions.put(UPSTREAM_SET, "s", [{"upstream": "u", "tls": {"verify": "verify_none"}}, {"upstream": "u"}], NOW)
    policy = {"pattern": "a", "definition": {"federation-upstream-set": "s"}}
    assert definitions.put(POLICY, "p", policy, NOW) == []
    (warning,) = definitions.put(UPSTREAM, "u", {"uri": "mqtt://u"}, NOW)
    assert 'to "u" cannot run' in warning
    assert "no URI has TLS" in warning
    assert definitions.put(POLICY, "p", {**policy, "priority": 1}, NOW) == [warning]
    assert definitions.put(UPSTREAM_SET, "s", [{"upstream": "u"}], NOW) == []
