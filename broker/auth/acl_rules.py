"""Access rules for topics have the meaning of mosquitto's `acl_file`; the file is read elsewhere.

Rules of a user come before patterns, and in both a denial comes before what is allowed. Nothing that matches is no opinion.
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.auth.acl_filters import DENIED, NOT_DENIED, PUBLISH, READ, FilterRules, Rule
from broker.auth.acl_patterns import TOPIC_LEVELS_MAX, PatternRules, Template, has_wildcard, placeholders_of
from broker.authorization import NO_OPINION, Verdict
from broker.routing.names import filter_matches

LEVELS_OF_STEP: Final = 16  # that are compared in one step
GIVES: Final = {DENIED: "deny", READ: "read", PUBLISH: "write", READ | PUBLISH: "readwrite"}  # words of the file
_FRESH: Final = b"\0"  # a level that no rule and no client has: topics have no U+0000


class AclRules:
    """The rules of a file, or of one client's credentials.

    users         rules by user name; those of clients without a user name are under ""
    patterns      rules for all clients
    depth         more than the levels of any rule
    placeholders  most placeholders in one pattern
    """

    def __init__(self, users: dict[str, list[Rule]], patterns: list[Rule]) -> None:
        self._written = (users, patterns)
        self.users = {name: FilterRules(rules) for name, rules in users.items()}
        self.patterns = PatternRules(patterns)
        filters = [rule.topic_filter for rules in [*users.values(), patterns] for rule in rules]
        self.depth = 2 + max([topic_filter.count("/") for topic_filter in filters], default=0)
        self.placeholders = max([placeholders_of(rule) for rule in patterns], default=0)
        self._steps = 0

    @property
    def count(self) -> int:
        users, patterns = self._written
        return sum(len(rules) for rules in users.values()) + len(patterns)

    def written(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield (topic or pattern, user name, what it gives, topic filter) of each rule, as the file has it."""
        users, patterns = self._written
        for username, rules in users.items():
            for rule in rules:
                yield "topic", username, GIVES[rule.gives], rule.topic_filter
        for rule in patterns:
            yield "pattern", "", GIVES[rule.gives], rule.topic_filter

    def take_steps(self, username: str) -> int:
        """Steps of a slice that the questions for this user took since the last call."""
        patterns = self.patterns
        steps = self._steps + patterns.steps + patterns.plain.steps
        self._steps = patterns.steps = patterns.plain.steps = 0
        user = self.users.get(username)
        if user is not None:
            steps += user.steps
            user.steps = 0
        return steps

    def judge(self, topic: bytes, wanted: int, username: str, client_id: str) -> Verdict:
        """Judge whether a client may read the topic, or publish to it: `wanted` is READ or PUBLISH."""
        user = self.users.get(username)
        if user is not None:
            verdict = user.judge(topic, wanted)
            if verdict is not NO_OPINION:
                return verdict
        return self.patterns.judge(topic, wanted, username, client_id)

    def rule_for(self, topic: bytes, wanted: int, username: str, client_id: str) -> str:
        """Return the rule by which `judge` answers, as the file has it; "" where there is none. Looks at one rule after the
        other."""
        users, patterns = self._written
        names = (username.encode(), client_id.encode())
        for word, rules in (("topic", users.get(username, [])), ("pattern", patterns)):
            if word == "pattern" and (has_wildcard(username) or has_wildcard(client_id)):
                return "the user name or the client id has a wildcard, so that patterns deny"
            found: Rule | None = None
            for rule in rules:
                topic_filter = rule.topic_filter.encode()
                if word == "pattern":
                    topic_filter = Template(rule).filter_of(names[0], names[1])
                if topic_filter and filter_matches(topic_filter, topic):
                    if rule.gives == DENIED:
                        found = rule
                        break
                    if rule.gives & wanted and found is None:
                        found = rule
            if found is not None:
                text = f"{word} {GIVES[found.gives]} {found.topic_filter}"
                return f"user {username}: {text}" if word == "topic" and username else text
        return ""

    def may_read_any(self, topic_filter: bytes, username: str, client_id: str) -> bool:
        """Return whether the client may read at least one topic that matches the filter.

        What the user may read comes first, as patterns cannot deny it."""
        user = self.users.get(username)
        if user is not None:
            search = Search(self, user, False, username, client_id)
            found = not search.denies_all(topic_filter) and search.finds(topic_filter, user.readable(topic_filter))
            self._steps += search.steps
            if found:
                return True
        if self.patterns.is_empty or has_wildcard(username) or has_wildcard(client_id):
            return False
        search = Search(self, user, True, username, client_id)
        found = not search.denies_all(topic_filter) and search.finds(
            topic_filter, self.patterns.readable(topic_filter, username, client_id)
        )
        self._steps += search.steps
        return found


class Search:
    """Looks for one topic that matches a filter and that rules allow, and not deny.

    Each filter that allows something is intersected with the filter. A topic of the intersection stands for the others of the
    same number of levels when it has a level that no rule has wherever any level would do: a rule denies it only if it denies
    all of them.
    """

    def __init__(
        self, rules: AclRules, user: FilterRules | None, with_patterns: bool, username: str, client_id: str
    ) -> None:
        self.steps = 0
        self._user = user
        self._patterns = rules.patterns if with_patterns else None
        self._has_denials = (user is not None and user.has_denials()) or (
            with_patterns and rules.patterns.has_denials()
        )
        self._username = username
        self._client_id = client_id
        self._depth = rules.depth + min(
            rules.placeholders * max(username.count("/"), client_id.count("/")), TOPIC_LEVELS_MAX
        )

    def denies_all(self, topic_filter: bytes) -> bool:
        """Return whether all topics of the filter are denied."""
        own = intersect(topic_filter, topic_filter)
        assert own is not None
        return self._has_denials and not self._has_undenied(own[0], own[1])

    def finds(self, topic_filter: bytes, allowed: list[bytes]) -> bool:
        """Return whether one of the filters that are allowed has such a topic."""
        level_steps = 1 + topic_filter.count(b"/") // LEVELS_OF_STEP
        for one in allowed:
            self.steps += level_steps
            both = intersect(topic_filter, one)
            if both is not None and (not self._has_denials or self._has_undenied(both[0], both[1])):
                return True
        return False

    def _has_undenied(self, levels: list[bytes], is_open: bool) -> bool:
        """Return whether a topic of these levels, or with `is_open` of these and any further ones, is not denied."""
        shortest = max(1, len(levels))
        levels = [_FRESH if level == b"+" else level for level in levels]
        count = max(self._depth, len(levels) + 1) if is_open else len(levels)
        levels += [_FRESH] * (count - len(levels))
        while count >= shortest:
            denied_from = self._denied_from(b"/".join(levels[:count]))
            if denied_from == NOT_DENIED:
                return True
            count = min(count, denied_from) - 1  # what `a/#` denies from `a` on
        return False

    def _denied_from(self, topic: bytes) -> int:
        least = NOT_DENIED if self._user is None else self._user.denied_from(topic)
        if self._patterns is not None:
            least = min(least, self._patterns.denied_from(topic, self._username, self._client_id))
        return least


def intersect(first: bytes, second: bytes) -> tuple[list[bytes], bool] | None:
    """Return the topics that match both filters, as (levels, is_open): with `is_open` any levels may follow. None for no
    topic."""
    one, two = first.split(b"/"), second.split(b"/")
    one_is_open, two_is_open = one[-1] == b"#", two[-1] == b"#"
    if (_begins_with_wildcard(one) and two[0].startswith(b"$")) or (
        _begins_with_wildcard(two) and one[0].startswith(b"$")
    ):
        return None  # [MQTT-4.7.2-1]
    if one_is_open:
        one.pop()
    if two_is_open:
        two.pop()
    levels: list[bytes] = []
    for index in range(max(len(one), len(two))):
        if index >= len(one):
            if not one_is_open:
                return None
            levels.append(two[index])
        elif index >= len(two):
            if not two_is_open:
                return None
            levels.append(one[index])
        elif one[index] == b"+":
            levels.append(two[index])
        elif two[index] in (b"+", one[index]):
            levels.append(one[index])
        else:
            return None
    return levels, one_is_open and two_is_open


def _begins_with_wildcard(levels: list[bytes]) -> bool:
    return levels[0] in (b"+", b"#")
