"""Interest of the cluster to the filters of a link, against a naive recomputation."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.links.bridging.headers import Interest, encode_interest
from federation.links.covering_set import CLIENT, CLIENTS, NO_INTEREST, Interests, include, merged
from federation.links.interest import UNKNOWN, ClusterInterest, LinkInterest, Tally, parse_interests, passed_on
from federation.topics.filters import covers, filter_of, levels_of
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope
from federation_world import World
from link_ends import remote_end

HERE: Final = (Interest((b"here",), 1),)
OWN: Final = [(b"a/#", True)]


def link_of(
    policies: list[tuple[bytes, bool]], rules: tuple[str, ...] = (), keeps_all: bool = False, filters_max: int = 1_000
) -> LinkInterest:
    link = LinkInterest(Scope(policies), TopicMapping(rules), b"here", 1, keeps_all, filters_max)
    link.set_upstream(b"there")
    return link


def test_a_link_that_comes_later_is_told_everything() -> None:
    cluster = ClusterInterest()
    cluster.add(b"#")
    link = link_of([(b"a/#", True), (b"b", True)])
    cluster.add_link(link)
    cluster.pass_on()
    assert link.covering_set.take_changes() == ([b"a/#", b"b"], [])
    cluster.remove_link(link)
    cluster.remove(b"#")
    cluster.pass_on()
    assert link.covering_set.take_changes() == ([], [])


def test_interest_of_the_upstream_is_not_told_to_it() -> None:
    cluster = ClusterInterest()
    link = LinkInterest(Scope(OWN), TopicMapping(), b"here", 3)
    cluster.add_link(link)
    cluster.add(b"a/b", (Interest((b"there",), 3),))
    cluster.pass_on()
    assert link.covering_set.take_changes() == ([b"a/b"], [])
    link.set_upstream(b"there")
    cluster.repeat(link)
    assert link.covering_set.take_changes() == ([], [b"a/b"])
    cluster.add(b"a/b", (Interest((b"other",), 2),))
    cluster.pass_on()
    assert link.covering_set.take_changes() == ([b"a/b"], [])
    assert link.covering_set.interests_of(b"a/b") == (Interest((b"other", b"here"), 2),)
    link.set_upstream(None)
    cluster.repeat(link)
    assert link.covering_set.take_changes() == ([], [b"a/b"])
    cluster.add(b"a/#")
    cluster.pass_on()
    assert link.covering_set.take_changes() == ([b"a/#"], [])
    assert link.covering_set.interests_of(b"a/#") == (Interest((b"here",), 3),)


def test_a_link_that_keeps_all_subscribes_to_its_patterns() -> None:
    cluster = ClusterInterest()
    link = link_of([(b"c/#", False), (b"a/#", True), (b"a/b", True), (b"c/d", True)], ("up/# -> {#}",), keeps_all=True)
    cluster.add_link(link)
    cluster.add(b"a/b/c")
    cluster.pass_on()
    assert link.covering_set.take_changes() == ([b"up/a/#"], [])
    link.set_upstream(None)
    cluster.repeat(link)
    assert link.covering_set.take_changes() == ([], [])
    assert link.covering_set.interests_of(b"up/a/#") == HERE


def test_a_mapping_names_filters_and_topics() -> None:
    cluster = ClusterInterest()
    link = link_of(
        [(b"site/#", True), (b"other/#", False)], ("s1/# -> site/1/{#}", "s2/# -> site/2/{#}", "o/# -> other/{#}")
    )
    cluster.add_link(link)
    cluster.add(b"+/+/temp")
    cluster.add(b"other/x")
    cluster.pass_on()
    assert link.covering_set.take_changes() == ([b"s1/temp", b"s2/temp"], [])
    assert link.map_in(b"s1/temp") == b"site/1/temp"
    assert link.map_in(b"o/x") is None
    assert link.map_in(b"x") is None


def test_a_link_that_comes_later_is_told_in_portions() -> None:
    cluster = ClusterInterest()
    for number in range(5):
        cluster.add(b"%d" % number)
    assert not cluster.pass_on()
    link, gone = link_of([(b"#", True)]), link_of([(b"#", True)])
    cluster.add_link(link)
    cluster.add_link(gone)
    assert cluster.pass_on(2)
    assert link.covering_set.take_changes() == ([b"0", b"1"], [])
    cluster.add(b"9")
    cluster.remove(b"1")
    cluster.remove(b"4")
    cluster.remove_link(gone)
    assert cluster.pass_on(3)
    assert link.covering_set.take_changes() == ([b"9"], [b"1"])
    assert not cluster.is_complete(link)
    assert not cluster.pass_on(5)
    assert cluster.is_complete(link)
    assert link.covering_set.take_changes() == ([b"2", b"3"], [])
    assert gone.covering_set.take_changes() == ([], [])


LEVELS: Final = st.lists(st.sampled_from([b"a", b"b", b"c", b"+"]), min_size=1, max_size=3)
FILTERS: Final = st.builds(filter_of, LEVELS, st.booleans())
INTERESTS: Final = st.sampled_from(
    [
        CLIENTS,
        CLIENTS,
        NO_INTEREST,
        (Interest((b"x",), 2),),
        (Interest((b"there",), 5),),
        (Interest((b"x", b"y"), 5),),
        (CLIENT,),
    ]
)
POLICIES: Final = st.lists(st.tuples(FILTERS, st.booleans()), min_size=1, max_size=4)
MAPPINGS: Final = st.sampled_from([(), ("up/# -> {#}",), ("u/a/+ -> a/{1}", "v/+/# -> b/{1}/{#}")])


def recomputed(
    subscriptions: list[tuple[bytes, Interests]], scope: Scope, mapping: TopicMapping, upstream: bytes | None
) -> dict[bytes, Interests]:
    """What the upstream is to be told, by the definition: of all parts the maximal ones."""
    parts: dict[bytes, list[Interest]] = {}
    for topic_filter in {topic_filter for topic_filter, _ in subscriptions}:
        both = merged(one for each, interests in subscriptions if each == topic_filter for one in interests)
        told = passed_on(both, b"here", 3, upstream)
        for part in scope.parts(topic_filter):
            for mapped in mapping.map_filter_out(part):
                if told:
                    parts.setdefault(filter_of(*levels_of(mapped)), []).extend(told)
    found = {part: merged(interests) for part, interests in parts.items()}
    return {
        one: interests
        for one, interests in found.items()
        if not any(other != one and covers(other, one) and include(more, interests) for other, more in found.items())
    }


@given(
    st.lists(st.tuples(FILTERS, INTERESTS, st.integers(0, 3)), max_size=30),
    POLICIES,
    MAPPINGS,
    st.sampled_from([b"there", None]),
)
def test_filters_of_a_link_after_any_changes(
    changes: list[tuple[bytes, Interests, int]],
    policies: list[tuple[bytes, bool]],
    rules: tuple[str, ...],
    name: bytes | None,
) -> None:
    cluster = ClusterInterest()
    link = LinkInterest(Scope(policies), TopicMapping(rules), b"here", 3)
    link.set_upstream(name)
    cluster.add_link(link)
    subscriptions: list[tuple[bytes, Interests]] = []
    told: dict[bytes, Interests] = {}
    for topic_filter, interests, choice in changes:
        if choice == 0 and subscriptions:
            gone = subscriptions.pop(len(topic_filter) % len(subscriptions))
            cluster.remove(*gone)
        else:
            subscriptions.append((topic_filter, interests))
            cluster.add(topic_filter, interests)
        if choice != 1:
            cluster.pass_on()
            subscribe, unsubscribe = link.covering_set.take_changes()
            told.update((each, link.covering_set.interests_of(each)) for each in subscribe)
            for each in unsubscribe:
                del told[each]
            assert told == recomputed(subscriptions, Scope(policies), TopicMapping(rules), name)


@pytest.mark.parametrize("is_late", [False, True])
def test_interest_of_links_on_other_nodes_keeps_its_path(is_late: bool) -> None:
    world = World(2)
    here = world.nodes["n1"].broker
    cluster = ClusterInterest()
    link = LinkInterest(Scope([(b"#", True)]), TopicMapping(), b"here", 2)
    link.set_upstream(b"there")
    cluster.add_link(link)
    if not is_late:
        cluster.observe(here)
    clients = {}
    for node, name, domain in [("n1", "east", b"east"), ("n2", "west", b"west"), ("n2", "back", b"there")]:
        clients[name] = world.client(node, name)
        broker = world.nodes[node].broker
        broker.sessions[name].bridge_end = remote_end(broker, domain, 2)
        clients[name].subscribe(f"from/{name}")
    clients["west"].subscribe("both")
    world.client("n2", "client").subscribe("both", "$share/group/jobs")
    world.run(1)
    if is_late:
        cluster.observe(here)
    cluster.pass_on()
    subscribe, _ = link.covering_set.take_changes()
    assert {each: link.covering_set.interests_of(each) for each in subscribe} == {
        b"from/east": (Interest((b"east", b"here"), 2),),
        b"from/west": (Interest((b"west", b"here"), 2),),
        b"both": (Interest((b"here",), 2), Interest((b"west", b"here"), 2)),
        b"jobs": (Interest((b"here",), 2),),
    }
    for client in clients.values():
        client.unsubscribe("both", "from/east", "from/west", "from/back")
    world.run(1)
    cluster.pass_on()
    subscribe, unsubscribe = link.covering_set.take_changes()
    assert (subscribe, sorted(unsubscribe)) == ([b"both"], [b"from/east", b"from/west"])
    assert cluster.interests_of(b"from/east") == NO_INTEREST


def test_a_header_of_a_link_that_cannot_be_read_is_left_out() -> None:
    assert parse_interests(b"") == CLIENTS
    assert parse_interests(b"1\nnonsense") == CLIENTS
    assert parse_interests(b"0\nnonsense") == NO_INTEREST
    interest = Interest((b"a", b"b"), 3)
    assert parse_interests(b"0\n" + encode_interest(*interest)) == (interest,)


def test_interest_of_clients_goes_to_every_upstream() -> None:
    assert passed_on(CLIENTS, b"here", 1, b"there") == (Interest((b"here",), 1),)
    assert passed_on(CLIENTS, b"here", 7, b"there") == (Interest((b"here",), 7),)
    assert passed_on(CLIENTS, b"here", 1, None) == (Interest((b"here",), 1),)


@pytest.mark.parametrize(
    ("interest", "upstream", "told"),
    [
        (Interest((b"a",), 1), b"there", ()),  # messages may pass one link, which is the one to a
        (Interest((b"a",), 2), b"there", (Interest((b"a", b"here"), 2),)),
        (Interest((b"a",), 9), b"there", (Interest((b"a", b"here"), 4),)),  # 3 of this link and the one to a
        (Interest((b"a", b"b"), 3), b"there", (Interest((b"a", b"b", b"here"), 3),)),
        (Interest((b"there", b"b"), 9), b"there", ()),
        (Interest((b"a", b"here", b"b"), 9), b"there", ()),
    ],
)
def test_interest_of_a_link_goes_on_as_far_as_it_may(interest: Interest, upstream: bytes, told: Interests) -> None:
    assert passed_on((interest,), b"here", 3, upstream) == told
    assert passed_on((interest,), b"here", 3, None) == NO_INTEREST
    assert passed_on((interest, CLIENT), b"here", 3, None) == (Interest((b"here",), 3),)


def test_an_upstream_that_is_not_known_yet_may_be_one_of_ours() -> None:
    assert passed_on((Interest((b"a",), 2),), b"here", 3, UNKNOWN) == (Interest((b"a", b"here"), 2),)


@pytest.mark.parametrize("name", [None, b"there"])
def test_the_interests_of_clients_are_the_same_before_the_upstream_is_known(name: bytes | None) -> None:
    assert passed_on(CLIENTS, b"here", 3, name) == passed_on(CLIENTS, b"here", 3, UNKNOWN)


MERGED: Final = st.lists(
    st.one_of(
        st.just(CLIENT),
        st.builds(Interest, st.lists(st.sampled_from([b"a", b"b", b"c"]), unique=True).map(tuple), st.integers(1, 4)),
    ),
    max_size=4,
).map(merged)


@given(MERGED)
def test_interest_comes_to_an_end_in_a_ring(interests: Interests) -> None:
    ring = [b"a", b"b", b"c"]
    rounds = 0
    while interests:
        domain, upstream = ring[rounds % 3], ring[(rounds + 1) % 3]
        interests = passed_on(interests, domain, 5, upstream)
        rounds += 1
    assert rounds <= 3


@given(st.lists(MERGED, max_size=8), st.data())
def test_a_tally_has_the_interests_that_were_not_removed(added: list[Interests], data: st.DataObject) -> None:
    tally = Tally()
    for interests in added:
        tally.add(interests)
    removed = data.draw(st.permutations(added))
    for count, interests in enumerate(removed):
        left = removed[count:]
        assert tally.interests() == merged(one for each in left for one in each)
        assert not tally.is_empty()
        tally.remove(interests)
    assert tally.is_empty()
    assert tally.interests() == NO_INTEREST
