"""The lines of the log about links: what has changed, once; a link that moves is no failure."""

from __future__ import annotations

from typing import Any

from broker.codec import properties as props
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.links.shell.link_log import LinkLog
from link_world import World


class Log:
    """Keeps (level, event, details) of each line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        def tell(event: str, **details: Any) -> None:
            assert details["upstream"] == "north"
            self.lines.append((level, event, details))

        return tell

    def take(self) -> list[tuple[str, str]]:
        lines, self.lines = self.lines, []
        return [(level, event) for level, event, _ in lines]


class Story:
    def __init__(self, **upstream: Any) -> None:
        self.world = World(upstream)
        self.log = Log()
        self.other = "b"
        self.link_log = LinkLog(self.log, self.world.links, lambda link_id: self.other)

    def told(self) -> list[tuple[str, str]]:
        self.link_log.changed(self.world.now)
        self.link_log.changed(self.world.now)
        return self.log.take()


def test_each_change_is_told_once_and_a_smaller_grant_when_it_is_another_one() -> None:
    story = Story()
    world = story.world
    assert story.told() == [("info", "link idle")]
    world.want()
    assert story.told() == [("info", "link starting")]
    week: Any = {props.SESSION_EXPIRY_INTERVAL: 604_800}
    world.run(properties=week)
    assert story.told() == [("info", "link running"), ("info", "the upstream grants less than asked")]
    world.lose()
    assert story.told() == [("warning", "link error")]
    world.until_next_try()
    assert story.told() == []
    world.lose()
    assert story.told() == []  # the same error again
    world.until_next_try()
    world.lose("refused")
    assert story.told() == [("warning", "link error")]
    world.until_next_try()
    world.run(session_present=True, properties=week)
    assert story.told() == [("info", "link running")]
    world.lose()
    story.told()
    world.until_next_try()
    story.told()
    world.run(session_present=True, properties=week | {props.MAXIMUM_QOS: 0})
    assert story.told() == [("info", "link running"), ("warning", "the upstream grants less than asked")]


def test_a_lost_session_is_told() -> None:
    story = Story()
    world = story.world
    world.want()
    world.run()
    world.lose()
    story.told()
    world.until_next_try()
    world.run(session_present=False)
    assert story.told() == [("warning", "link session lost, with what waited in it"), ("info", "link running")]


def test_a_link_that_moves_says_where_it_runs() -> None:
    story = Story()
    world = story.world
    world.want()
    world.run()
    story.told()
    link_id = world.link.plan.link_id
    world.links.drain(link_id, world.now + 5.0, world.now)
    story.link_log.changed(world.now)
    ((level, event, details),) = story.log.lines
    assert (level, event, details["to"]) == ("info", "link moves to another node", "b")
    assert story.told() == [("info", "link moves to another node")]
    world.lose()
    assert story.told() == []
    world.links.end(link_id, world.now)
    story.link_log.changed(world.now)
    ((level, event, details),) = story.log.lines
    assert (level, event, details["to"]) == ("info", "link has moved to another node", "b")


def test_a_link_of_a_node_that_stops_moves_nowhere() -> None:
    story = Story()
    story.other = ""
    world = story.world
    world.want()
    world.run()
    story.told()
    link_id = world.link.plan.link_id
    world.links.drain(link_id, world.now + 5.0, world.now)
    assert story.told() == []
    world.links.end(link_id, world.now)
    assert story.told() == [("info", "link has stopped")]


def test_a_link_without_a_definition_is_removed() -> None:
    story = Story()
    story.told()
    story.world.links.resolve(Resolution([], [], []), story.world.now)
    assert story.told() == [("info", "link removed: nothing needs it any more")]


def test_links_for_queues_are_told_too() -> None:
    story = Story()
    world = story.world
    policy = parse_policy("jobs", {"pattern": "$share/g/t", "definition": {"federation-upstream": "north"}})
    world.links.resolve(Resolution([world.link.plan.upstream], [], [policy]), world.now)
    assert story.told() == [("info", "link starting")]
    (link,) = world.links.by_id.values()
    link.connection_lost(link.attempt, "refused", world.now)
    assert story.told() == [("warning", "link error")]
    world.links.resolve(Resolution([], [], []), world.now)
    assert story.told() == [("info", "link removed: nothing needs it any more")]
