"""Access rules for every client, which may have placeholders for its names."""

# compiled with mypyc
from __future__ import annotations

import re
from typing import Final, cast

from broker.auth.acl_filters import DENIED, READ, FilterRules, Rule, open_from
from broker.authorization import ALLOW, DENY, NO_OPINION, Verdict
from broker.routing.names import filter_matches
from broker.routing.overlap import overlapping
from broker.routing.trie import Trie

USER_NAME: Final = "%u"
CLIENT_ID: Final = "%c"
TOPIC_LEVELS_MAX: Final = 128  # of any topic: the largest `max_topic_levels`
TREES_MAX: Final = 8  # of patterns, for names with different numbers of slashes; a full table is cleared
TREE_STEPS: Final = 8  # of a slice, for each pattern of a tree that is made
NAME_BYTES_OF_STEP: Final = 2_048  # that are copied in one step
_PLACEHOLDERS: Final = re.compile(f"({USER_NAME}|{CLIENT_ID})")


class Template:
    """The topic filter of a pattern with placeholders, for one client at a time."""

    def __init__(self, rule: Rule) -> None:
        self.gives = rule.gives
        self.needs_user = USER_NAME in rule.topic_filter
        self.is_dollar = rule.topic_filter.startswith("$")
        self._levels = rule.topic_filter.split("/")
        self._parts = [part.encode() for part in _PLACEHOLDERS.split(rule.topic_filter)]

    def has_open_dollar(self) -> bool:
        """Return whether the first level begins with `$` and has a placeholder."""
        return self.is_dollar and _PLACEHOLDERS.search(self._levels[0]) is not None

    def shape(self, user_slashes: int, client_slashes: int) -> bytes:
        """Return the filter with `+` for each level with placeholders, where the names have so many slashes. b"" for one with
        more levels than a topic can have."""
        levels: list[str] = []
        for level in self._levels:
            if _PLACEHOLDERS.search(level) is None:
                levels.append(level)
                continue
            count = 1 + level.count(USER_NAME) * user_slashes + level.count(CLIENT_ID) * client_slashes
            if count > TOPIC_LEVELS_MAX:
                return b""
            levels += ["+"] * count
        return b"" if len(levels) > TOPIC_LEVELS_MAX + 1 else "/".join(levels).encode()

    def filter_of(self, username: bytes, client_id: bytes) -> bytes:
        """Return the topic filter of a client. b"" for none: a placeholder without a value is no empty level, and only a rule
        that begins with `$` is about topics that do."""
        if self.needs_user and not username:
            return b""
        parts = list(self._parts)
        for index in range(1, len(parts), 2):  # the placeholders
            parts[index] = username if parts[index] == b"%u" else client_id
        found = b"".join(parts)
        return b"" if found.startswith(b"$") and not self.is_dollar else found


class PatternRules:
    """Rules for every client. Patterns with placeholders are kept once for all clients: in a tree that has `+` for the
    levels with placeholders. What the tree finds is compared with the filter of the client. Names with `/` stand for more
    levels, so there is a tree for each number of them.

    steps  as in FilterRules
    """

    def __init__(self, rules: list[Rule]) -> None:
        self.is_empty = not rules
        self.steps = 0
        self.plain = FilterRules([rule for rule in rules if not _PLACEHOLDERS.search(rule.topic_filter)])
        found = [Template(rule) for rule in rules if _PLACEHOLDERS.search(rule.topic_filter)]
        self._templates = [template for template in found if not template.has_open_dollar()]
        self._dollar_templates = [template for template in found if template.has_open_dollar()]
        self._has_templates = len(found) > 0
        self._has_denials = self.plain.has_denials() or any(template.gives == DENIED for template in found)
        self._trees: dict[
            tuple[int, int], Trie
        ] = {}  # by slashes of user name and client id: filter -> list of templates
        self._topic = b""  # of the last search in a tree
        self._searched: Trie | None = None
        self._found: list[Template] = []

    def judge(self, topic: bytes, wanted: int, username: str, client_id: str) -> Verdict:
        if self.is_empty:
            return NO_OPINION
        if has_wildcard(username) or has_wildcard(client_id):
            return DENY  # the name would match the topics of others
        verdict = self.plain.judge(topic, wanted)
        if verdict is DENY or not self._has_templates:
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

    def denied_from(self, topic: bytes, username: str, client_id: str) -> int:
        """Return the same as in FilterRules."""
        least = self.plain.denied_from(topic)
        user, client = username.encode(), client_id.encode()
        for template in self._templates_for(topic, user, client):
            if template.gives == DENIED:
                found = template.filter_of(user, client)
                if found and filter_matches(found, topic):
                    least = min(least, open_from(found))
        return least

    def has_denials(self) -> bool:
        return self._has_denials

    def readable(self, topic_filter: bytes, username: str, client_id: str) -> list[bytes]:
        """Filters that give READ to the client, before denials; those that have a topic in common with the filter are among
        them."""
        found = self.plain.readable(topic_filter)
        if not self._has_templates:
            return found
        user, client = username.encode(), client_id.encode()
        tree = self._tree_for(user, client)
        templates = list(self._dollar_templates) if topic_filter.startswith(b"$") else []
        for value in overlapping(tree, topic_filter):
            templates += cast(list[Template], value)
        self.steps += tree.visited + len(templates) * (1 + (len(user) + len(client)) // NAME_BYTES_OF_STEP)
        for template in templates:
            if template.gives & READ:
                own = template.filter_of(user, client)
                if own:
                    found.append(own)
        return found

    def _tree_for(self, username: bytes, client_id: bytes) -> Trie:
        shape = (username.count(b"/"), client_id.count(b"/"))
        tree = self._trees.get(shape)
        if tree is None:
            if len(self._trees) >= TREES_MAX:
                self._trees.clear()
            tree = self._trees[shape] = Trie()
            self.steps += TREE_STEPS * len(self._templates)
            for template in self._templates:
                key = template.shape(shape[0], shape[1])
                if key:
                    known = tree.get(key)
                    if known is None:
                        tree.set(key, [template])
                    else:
                        cast(list[Template], known).append(template)
        return tree

    def _templates_for(self, topic: bytes, username: bytes, client_id: bytes) -> list[Template]:
        """Return the templates that may match the topic."""
        tree = self._tree_for(username, client_id)
        if topic is not self._topic or tree is not self._searched:
            # A placeholder behind `$` stands for a part of the level, which no `+` matches.
            found = list(self._dollar_templates) if topic.startswith(b"$") else []
            for templates in tree.match(topic):
                found += cast(list[Template], templates)
            self.steps += tree.visited
            self._topic = topic
            self._searched = tree
            self._found = found
        self.steps += len(self._found)
        return self._found


def placeholders_of(rule: Rule) -> int:
    """Return the number of placeholders."""
    return len(_PLACEHOLDERS.findall(rule.topic_filter))


def has_wildcard(name: str) -> bool:
    """Return whether a name, in the place of a placeholder, would match the topics of others."""
    return "+" in name or "#" in name
