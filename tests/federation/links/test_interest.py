"""Interest of the cluster to the filters of a link, against a naive recomputation."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.links.interest import ClusterInterest, LinkInterest
from federation.links.wants import CLIENT, CLIENTS, NOBODY, Upstream, Want, Wants, include, merged, parse_wants
from federation.topics.filters import covers, filter_of, levels_of
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope
from federation_world import World
from link_ends import remote_end

HERE: Final = (Want((b"here",), 1),)
OWN: Final = [(b"a/#", True)]


def link_of(
    policies: list[tuple[bytes, bool]], rules: tuple[str, ...] = (), keeps_all: bool = False, filters_max: int = 1_000
) -> LinkInterest:
    upstream = Upstream(b"here", 1, b"there")
    return LinkInterest(Scope(policies), TopicMapping(rules), upstream, keeps_all, filters_max)


def test_a_link_that_comes_later_is_told_everything() -> None:
    cluster = ClusterInterest()
    cluster.add(b"#")
    link = link_of([(b"a/#", True), (b"b", True)])
    cluster.add_link(link)
    cluster.pass_on()
    assert link.take_changes() == ([b"a/#", b"b"], [])
    cluster.remove_link(link)
    cluster.remove(b"#")
    cluster.pass_on()
    assert link.take_changes() == ([], [])


def test_interest_of_the_upstream_is_not_told_to_it() -> None:
    cluster = ClusterInterest()
    link = LinkInterest(Scope(OWN), TopicMapping(), Upstream(b"here", 3, None, is_known=False))
    cluster.add_link(link)
    cluster.add(b"a/b", (Want((b"there",), 3),))
    cluster.pass_on()
    assert link.take_changes() == ([b"a/b"], [])
    link.set_upstream(Upstream(b"here", 3, b"there"))
    cluster.tell(link)
    assert link.take_changes() == ([], [b"a/b"])
    cluster.add(b"a/b", (Want((b"other",), 2),))
    cluster.pass_on()
    assert link.take_changes() == ([b"a/b"], [])
    assert link.wants_of(b"a/b") == (Want((b"other", b"here"), 2),)
    link.set_upstream(Upstream(b"here", 3, None))
    cluster.tell(link)
    assert link.take_changes() == ([], [b"a/b"])
    cluster.add(b"a/#")
    cluster.pass_on()
    assert link.take_changes() == ([b"a/#"], [])
    assert link.wants_of(b"a/#") == (Want((b"here",), 3),)


def test_a_link_that_keeps_all_wants_its_patterns() -> None:
    cluster = ClusterInterest()
    link = link_of([(b"c/#", False), (b"a/#", True), (b"a/b", True), (b"c/d", True)], ("up/# -> {#}",), keeps_all=True)
    cluster.add_link(link)
    cluster.add(b"a/b/c")
    cluster.pass_on()
    assert link.take_changes() == ([b"up/a/#"], [])
    link.set_upstream(Upstream(b"here", 1, None))
    cluster.tell(link)
    assert link.take_changes() == ([], [])
    assert link.wants_of(b"up/a/#") == HERE


def test_a_mapping_names_filters_and_topics() -> None:
    cluster = ClusterInterest()
    link = link_of(
        [(b"site/#", True), (b"other/#", False)], ("s1/# -> site/1/{#}", "s2/# -> site/2/{#}", "o/# -> other/{#}")
    )
    cluster.add_link(link)
    cluster.add(b"+/+/temp")
    cluster.add(b"other/x")
    cluster.pass_on()
    assert link.take_changes() == ([b"s1/temp", b"s2/temp"], [])
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
    assert link.take_changes() == ([b"0", b"1"], [])
    cluster.add(b"9")
    cluster.remove(b"1")
    cluster.remove(b"4")
    cluster.remove_link(gone)
    assert cluster.pass_on(3)
    assert link.take_changes() == ([b"9"], [b"1"])
    assert not cluster.has_told(link)
    assert not cluster.pass_on(5)
    assert cluster.has_told(link)
    assert link.take_changes() == ([b"2", b"3"], [])
    assert gone.take_changes() == ([], [])


LEVELS: Final = st.lists(st.sampled_from([b"a", b"b", b"c", b"+"]), min_size=1, max_size=3)
FILTERS: Final = st.builds(filter_of, LEVELS, st.booleans())
WANTS: Final = st.sampled_from(
    [CLIENTS, CLIENTS, NOBODY, (Want((b"x",), 2),), (Want((b"there",), 5),), (Want((b"x", b"y"), 5),), (CLIENT,)]
)
POLICIES: Final = st.lists(st.tuples(FILTERS, st.booleans()), min_size=1, max_size=4)
MAPPINGS: Final = st.sampled_from([(), ("up/# -> {#}",), ("u/a/+ -> a/{1}", "v/+/# -> b/{1}/{#}")])


def recomputed(
    subscriptions: list[tuple[bytes, Wants]], scope: Scope, mapping: TopicMapping, upstream: Upstream
) -> dict[bytes, Wants]:
    """What the upstream is to be told, by the definition: of all parts the maximal ones."""
    parts: dict[bytes, list[Want]] = {}
    for topic_filter in {topic_filter for topic_filter, _ in subscriptions}:
        told = upstream.told(merged(want for each, wants in subscriptions if each == topic_filter for want in wants))
        for part in scope.parts(topic_filter):
            for mapped in mapping.map_filter_out(part):
                if told:
                    parts.setdefault(filter_of(*levels_of(mapped)), []).extend(told)
    found = {part: merged(wants) for part, wants in parts.items()}
    return {
        one: wants
        for one, wants in found.items()
        if not any(other != one and covers(other, one) and include(more, wants) for other, more in found.items())
    }


@given(
    st.lists(st.tuples(FILTERS, WANTS, st.integers(0, 3)), max_size=30),
    POLICIES,
    MAPPINGS,
    st.sampled_from([b"there", None]),
)
def test_filters_of_a_link_after_any_changes(
    changes: list[tuple[bytes, Wants, int]],
    policies: list[tuple[bytes, bool]],
    rules: tuple[str, ...],
    name: bytes | None,
) -> None:
    cluster = ClusterInterest()
    upstream = Upstream(b"here", 3, name)
    link = LinkInterest(Scope(policies), TopicMapping(rules), upstream)
    cluster.add_link(link)
    subscriptions: list[tuple[bytes, Wants]] = []
    told: dict[bytes, Wants] = {}
    for topic_filter, wants, choice in changes:
        if choice == 0 and subscriptions:
            gone = subscriptions.pop(len(topic_filter) % len(subscriptions))
            cluster.remove(*gone)
        else:
            subscriptions.append((topic_filter, wants))
            cluster.add(topic_filter, wants)
        if choice != 1:
            cluster.pass_on()
            subscribe, unsubscribe = link.take_changes()
            told.update((each, link.wants_of(each)) for each in subscribe)
            for each in unsubscribe:
                del told[each]
            assert told == recomputed(subscriptions, Scope(policies), TopicMapping(rules), upstream)


@pytest.mark.parametrize("is_late", [False, True])
def test_interest_of_links_on_other_nodes_keeps_its_path(is_late: bool) -> None:
    world = World(2)
    here = world.nodes["n1"].broker
    cluster = ClusterInterest()
    upstream = Upstream(b"here", 2, b"there")
    link = LinkInterest(Scope([(b"#", True)]), TopicMapping(), upstream)
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
    subscribe, _ = link.take_changes()
    assert {each: link.wants_of(each) for each in subscribe} == {
        b"from/east": (Want((b"east", b"here"), 2),),
        b"from/west": (Want((b"west", b"here"), 2),),
        b"both": (Want((b"here",), 2), Want((b"west", b"here"), 2)),
        b"jobs": (Want((b"here",), 2),),
    }
    for client in clients.values():
        client.unsubscribe("both", "from/east", "from/west", "from/back")
    world.run(1)
    cluster.pass_on()
    subscribe, unsubscribe = link.take_changes()
    assert (subscribe, sorted(unsubscribe)) == ([b"both"], [b"from/east", b"from/west"])
    assert cluster.wants_of(b"from/east") == NOBODY


def test_a_header_of_a_link_that_cannot_be_read_is_left_out() -> None:
    assert parse_wants(b"") == CLIENTS
    assert parse_wants(b"1\nnonsense") == CLIENTS
    assert parse_wants(b"0\nnonsense") == NOBODY
    want = Want((b"a", b"b"), 3)
    assert parse_wants(b"0\n" + want.header()) == (want,)
