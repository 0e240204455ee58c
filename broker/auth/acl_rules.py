"""Access rules for topics: what mosquitto's `acl_file` means, without the file.

Rules of a user come before patterns, and in both a denial comes before what is allowed. Nothing that matches is no opinion.
"""

# compiled with mypyc
from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker.authorization import ALLOW, DENY, NO_OPINION, Verdict
from broker.routing.names import filter_matches
from broker.routing.trie import Trie

# What a rule gives. DENIED takes both.
DENIED: Final = 0
READ: Final = 1
PUBLISH: Final = 2

USER_NAME: Final = "%u"
CLIENT_ID: Final = "%c"
_PLACEHOLDERS: Final = re.compile(f"({USER_NAME}|{CLIENT_ID})")
_FRESH: Final = b"\0"  # a level that no rule and no client has: topics have no U+0000


class Rule(NamedTuple):
    """topic_filter  of a pattern: may have %u for the user name and %c for the client id
    gives         READ, PUBLISH, READ | PUBLISH, or DENIED
    """

    topic_filter: str
    gives: int


class FilterRules:
    """The rules of one user: topic filters without placeholders.

    The last answer is kept: a route asks for one topic and all of its receivers."""

    def __init__(self, rules: list[Rule]) -> None:
        self.filters: list[bytes] = []  # that may be read, for `may_read_any`
        self._denied = Trie()
        self._given = Trie()
        self._topic = b""
        self._wanted = DENIED
        self._verdict = NO_OPINION
        for rule in rules:
            topic_filter = rule.topic_filter.encode()
            if rule.gives == DENIED:
                self._denied.set(topic_filter, True)
                continue
            known = self._given.get(topic_filter)
            gives = rule.gives | (known if isinstance(known, int) else 0)
            self._given.set(topic_filter, gives)
            if gives & READ:
                self.filters.append(topic_filter)

    def judge(self, topic: bytes, wanted: int) -> Verdict:
        if topic is not self._topic or wanted != self._wanted:
            self._verdict = self._judge(topic, wanted)
            self._topic = topic
            self._wanted = wanted
        return self._verdict

    def _judge(self, topic: bytes, wanted: int) -> Verdict:
        if self._denied.match(topic):
            return DENY
        for gives in self._given.match(topic):
            assert isinstance(gives, int)
            if gives & wanted:
                return ALLOW
        return NO_OPINION


class Template:
    """The topic filter of a pattern with placeholders, for one client at a time."""

    def __init__(self, rule: Rule) -> None:
        self.gives = rule.gives
        self.needs_user = USER_NAME in rule.topic_filter
        self._is_dollar = rule.topic_filter.startswith("$")
        first_level = rule.topic_filter.partition("/")[0]
        self.first_level = b"+" if _PLACEHOLDERS.search(first_level) else first_level.encode()
        self._parts = [part.encode() for part in _PLACEHOLDERS.split(rule.topic_filter)]

    def filter_of(self, username: bytes, client_id: bytes) -> bytes:
        """The topic filter of a client. b"" for none: a placeholder without a value is no empty level, and only a rule that
        begins with `$` is about topics that do."""
        if self.needs_user and not username:
            return b""
        parts = list(self._parts)
        for index in range(1, len(parts), 2):  # the placeholders
            parts[index] = username if parts[index] == b"%u" else client_id
        found = b"".join(parts)
        return b"" if found.startswith(b"$") and not self._is_dollar else found


class PatternRules:
    """Rules for every client. Patterns with placeholders are kept once for all clients: in a tree that has `+` for the
    levels with placeholders. What the tree finds is compared with the filter of the client."""

    def __init__(self, rules: list[Rule]) -> None:
        self.is_empty = not rules
        self._plain = FilterRules([rule for rule in rules if not _PLACEHOLDERS.search(rule.topic_filter)])
        self._templates: list[Template] = []
        self._tree = Trie()  # filter with + for levels with placeholders -> list of templates
        self._topic = b""  # of the last search in the tree
        self._found: list[Template] = []
        for rule in rules:
            if not _PLACEHOLDERS.search(rule.topic_filter):
                continue
            template = Template(rule)
            self._templates.append(template)
            levels = ["+" if _PLACEHOLDERS.search(level) else level for level in rule.topic_filter.split("/")]
            key = "/".join(levels).encode()
            found = self._tree.get(key)
            if isinstance(found, list):
                found.append(template)
            else:
                self._tree.set(key, [template])

    def judge(self, topic: bytes, wanted: int, username: str, client_id: str) -> Verdict:
        if self.is_empty:
            return NO_OPINION
        if _has_wildcard(username) or _has_wildcard(client_id):
            return DENY  # the name would match the topics of others
        verdict = self._plain.judge(topic, wanted)
        if verdict is DENY or not self._templates:
            return verdict
        user, client = username.encode(), client_id.encode()
        for template in self._templates_for(topic, user, client):
            if template.gives != DENIED and not (template.gives & wanted and verdict is NO_OPINION):
                continue
            found = template.filter_of(user, client)
            if found and filter_matches(found, topic):
                if template.gives == DENIED:
                    return DENY
                verdict = ALLOW
        return verdict

    def _templates_for(self, topic: bytes, username: bytes, client_id: bytes) -> list[Template]:
        """The templates that may match the topic."""
        if b"/" in username or b"/" in client_id or topic.startswith(b"$"):
            return self._templates  # a placeholder stands for more than one level, or for a part of $NAME
        if topic is not self._topic:
            found: list[Template] = []
            for templates in self._tree.match(topic):
                assert isinstance(templates, list)
                found += templates
            self._topic = topic
            self._found = found
        return self._found

    def filters_of(self, username: str, client_id: str, first_level: bytes) -> list[bytes]:
        """The topic filters that a client may read, before denials; without those that begin with another level than a topic
        filter with this first level."""
        user, client = username.encode(), client_id.encode()
        found = list(self._plain.filters)
        for template in self._templates:
            if template.gives & READ and may_begin_alike(first_level, template.first_level):
                topic_filter = template.filter_of(user, client)
                if topic_filter:
                    found.append(topic_filter)
        return found


class AclRules:
    """The rules of a file, or of one client's credentials.

    users         rules by user name; those of clients without a user name are under ""
    patterns      rules for all clients
    depth         more than the levels of any rule
    placeholders  most placeholders in one pattern
    """

    def __init__(self, users: dict[str, list[Rule]], patterns: list[Rule]) -> None:
        self.users = {name: FilterRules(rules) for name, rules in users.items()}
        self.patterns = PatternRules(patterns)
        filters = [rule.topic_filter for rules in [*users.values(), patterns] for rule in rules]
        self.depth = 2 + max([topic_filter.count("/") for topic_filter in filters], default=0)
        self.placeholders = max([len(_PLACEHOLDERS.findall(rule.topic_filter)) for rule in patterns], default=0)

    def judge(self, topic: bytes, wanted: int, username: str, client_id: str) -> Verdict:
        """Whether a client may read the topic, or publish to it: `wanted` is READ or PUBLISH."""
        user = self.users.get(username)
        if user is not None:
            verdict = user.judge(topic, wanted)
            if verdict is not NO_OPINION:
                return verdict
        return self.patterns.judge(topic, wanted, username, client_id)

    def may_read_any(self, topic_filter: bytes, username: str, client_id: str) -> bool:
        """Whether the client may read a topic, one at least, that matches the filter.

        Each rule that allows something is intersected with the filter. A topic of the intersection stands for the others of
        the same number of levels when it has a level that no rule has wherever any level would do: a rule denies it only if
        it denies all of them."""
        user = self.users.get(username)
        filters = [] if user is None else list(user.filters)
        filters += self.patterns.filters_of(username, client_id, topic_filter.partition(b"/")[0])
        depth = self.depth + self.placeholders * max(username.count("/"), client_id.count("/"))
        for allowed in filters:
            both = intersect(topic_filter, allowed)
            if both is None:
                continue
            levels, is_open = both
            levels = [_FRESH if level == b"+" else level for level in levels]
            longest = max(depth, len(levels) + 1) if is_open else len(levels)
            levels += [_FRESH] * (longest - len(levels))
            shortest = max(1, len(both[0]))
            for count in range(longest, shortest - 1, -1):
                if self.judge(b"/".join(levels[:count]), READ, username, client_id) is ALLOW:
                    return True
        return False


def may_begin_alike(first: bytes, second: bytes) -> bool:
    """Whether filters with these first levels may have a topic in common."""
    return first == second or first in (b"+", b"#") or second in (b"+", b"#")


def intersect(first: bytes, second: bytes) -> tuple[list[bytes], bool] | None:
    """The topics that match both filters, as (levels, is_open): with `is_open` any levels may follow. None for no topic."""
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


def _has_wildcard(name: str) -> bool:
    return "+" in name or "#" in name
