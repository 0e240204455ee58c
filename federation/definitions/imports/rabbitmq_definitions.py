"""A definitions file of RabbitMQ (JSON): upstreams, sets and policies of its federation.

An upstream without another virtual host and without `exchange` stays as it is. Another virtual host, or the name of an
exchange, becomes a mapping of topics. A policy becomes one policy for each topic filter of its regular expression.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from federation.definitions.entry import UPSTREAM, UPSTREAM_SET
from federation.definitions.error import nearest, shown
from federation.definitions.imports.amqp_uri import from_amqp
from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.namespaces import DEFAULT_VHOST, mapping_rule, prefix_of, topics_of
from federation.definitions.imports.regular_expressions import PatternError, filters_of, names_of
from federation.definitions.policy import Selector, UpstreamPattern
from federation.definitions.upstream import ALL, IGNORED_KEYS, NO_USER_IDS, TRUST_USER_ID, UPSTREAM_KEYS

EXCHANGES: Final = "exchanges"
APPLY_TO: Final = (EXCHANGES, ALL)

Key = tuple[str, str]
"""(virtual host, name)."""


class _Policy(NamedTuple):
    place: str
    vhost: str
    name: str
    pattern: str
    priority: int
    selector: Selector
    value: str


def import_definitions(text: str, apply_to: str) -> Imported:
    """Translate a file. Policies for queues are left out, with a warning unless `apply_to` is EXCHANGES. Raises ImportFault."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ImportFault(f"line {error.lineno}: the file is no JSON: {error.msg}") from None
    except RecursionError:
        raise ImportFault("the file has too many lists and objects inside each other") from None
    if not isinstance(document, dict):
        raise ImportFault(
            'the file is not an object with "parameters" and "policies", as rabbitmqctl export_definitions has'
        )
    found = _Definitions(document, apply_to).imported
    found.check()
    return found


class _Definitions:
    """One file; `imported` is what it means."""

    def __init__(self, document: dict[str, Any], apply_to: str) -> None:
        self.imported = Imported()
        self._upstreams: dict[Key, dict[str, Any]] = {}
        self._sets: dict[Key, list[dict[str, Any]]] = {}
        self._vhosts: dict[Key, str | None] = {}
        for place, entry in _entries(document, "parameters"):
            self._parameter(place, entry)
        self._warns_of_queues = apply_to == ALL
        self._policies_found = [
            policy
            for place, entry in _entries(document, "policies")
            if (policy := self._policy(place, entry)) is not None
        ]
        self._exchanges = [entry for _, entry in _entries(document, "exchanges")]
        for key, value in self._upstreams.items():
            self._map(f'upstream "{key[1]}"', key, value, self._filters_that_use(key))
            self.imported.upstreams[self._name(key, self._upstreams)] = value
        for key, members in self._sets.items():
            self.imported.sets[self._name(key, self._sets)] = [self._member(key, member) for member in members]
        for policy in self._policies_found:
            self._translate(policy)

    def _parameter(self, place: str, entry: Mapping[str, Any]) -> None:
        component, name, value = entry.get("component"), entry.get("name"), entry.get("value")
        key = (_vhost(entry), str(name))
        if not isinstance(name, str) or not name:
            raise ImportFault(f"{place}: name is not a text")
        if component == UPSTREAM:
            if not isinstance(value, dict):
                raise ImportFault(f'{place}: the value of upstream "{name}" is not an object')
            self._upstreams[key] = self._upstream(f'upstream "{name}"', key, value)
        elif component == UPSTREAM_SET:
            if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
                raise ImportFault(f'{place}: the value of upstream set "{name}" is not a list of objects')
            self._sets[key] = value
        else:
            self.imported.warn(place, f"component {shown(component)} is left out: it is not federation")

    def _upstream(self, place: str, key: Key, value: dict[str, Any]) -> dict[str, Any]:
        found = self._keys(place, value)
        uris = value.get("uri")
        texts = uris if isinstance(uris, list) else [uris]
        translated = [from_amqp(text, place) for text in texts]
        for uri in translated:
            for warning in uri.warnings:
                self.imported.warn(place, warning)
        vhosts = {uri.vhost for uri in translated}
        if len(vhosts) > 1:
            raise ImportFault(f"{place}: its URIs have several virtual hosts; make an upstream for each")
        self._vhosts[key] = vhosts.pop() if vhosts else None
        addresses = [uri.uri for uri in translated]
        return {"uri": addresses if isinstance(uris, list) else addresses[0], **found}

    def _keys(self, place: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """The keys that stay; those without a meaning warn."""
        found: dict[str, Any] = {}
        for key, inner in value.items():
            if key in IGNORED_KEYS:
                self.imported.warn(place, f"{key} has no effect: {IGNORED_KEYS[key]}")
            elif key == "queue" and inner:
                text = f"queue {shown(inner)} is left out: name the group of the upstream by hand, queue: $share/GROUP/FILTER"
                self.imported.warn(place, text)
            elif key == TRUST_USER_ID:
                if inner is True:
                    self.imported.warn(place, f"{key} is left out: {NO_USER_IDS}")
            elif key in UPSTREAM_KEYS and key not in ("uri", "queue") and inner not in (None, ""):
                found[key] = inner
            elif key not in UPSTREAM_KEYS:
                self.imported.warn(place, f"unknown key {shown(key)} is left out; {nearest(key, UPSTREAM_KEYS)}")
        return found

    def _policy(self, place: str, entry: Mapping[str, Any]) -> _Policy | None:
        """The policy; None when it is none of federation, or for queues only."""
        name, pattern, definition = entry.get("name"), entry.get("pattern"), entry.get("definition")
        if not isinstance(name, str) or not isinstance(pattern, str) or not isinstance(definition, dict):
            text = "a policy has name and pattern, which are texts, and definition, which is an object"
            raise ImportFault(f"{place}: {text}")
        place = f'policy "{name}"'
        found = [selector for selector in Selector if selector.value in definition]
        for key in definition:
            if key not in {selector.value for selector in Selector}:
                self.imported.warn(place, f"{shown(key)} of its definition is left out: it is not federation")
        if not found:
            return None
        if len(found) > 1:
            raise ImportFault(f"{place}: {' and '.join(item.value for item in found)} exclude each other")
        apply_to = entry.get("apply-to", ALL)
        if apply_to not in APPLY_TO:
            if self._warns_of_queues:
                text = "a queue is a shared group here, so write its policy by hand: $share/GROUP/FILTER"
                self.imported.warn(place, f"it is left out: it applies to {shown(apply_to)}; {text}")
            return None
        if apply_to == ALL and self._warns_of_queues:
            self.imported.warn(place, "it applies to exchanges here, and not to queues")
        priority, value = entry.get("priority", 0), definition[found[0].value]
        return _Policy(place, _vhost(entry), name, pattern, priority, found[0], str(value))

    def _translate(self, policy: _Policy) -> None:
        selector, value = self._upstreams_of_policy(policy)
        base = _plain(policy.name)
        if policy.vhost != DEFAULT_VHOST:
            base = f"{_plain(policy.vhost)}.{base}"
        try:
            filters = filters_of(policy.pattern)
        except PatternError as error:
            raise ImportFault(f"{policy.place}: {error}") from None
        for number, topic_filter in enumerate(filters, 1):
            name = f"{base}-{number}" if len(filters) > 1 else base
            pattern = prefix_of(policy.vhost) + topic_filter
            self.imported.add_policy(policy.place, name, pattern, selector.value, value, policy.priority)
        self._warn_types(policy)

    def _warn_types(self, policy: _Policy) -> None:
        """Exchanges of the file that the policy has and that are not topic exchanges."""
        expression = re.compile(policy.pattern)  # it has a filter, so that it is of a simple form
        for entry in self._exchanges:
            name, kind = entry.get("name"), entry.get("type")
            if isinstance(name, str) and _vhost(entry) == policy.vhost and expression.search(name) and kind != "topic":
                text = f"the type of exchange {shown(name)} is {kind}, not topic: topics are matched as by a topic exchange"
                self.imported.warn(policy.place, text)

    def _upstreams_of_policy(self, policy: _Policy) -> tuple[Selector, str]:
        """The key of a policy's definition here. `all` and patterns see one virtual host in RabbitMQ, and become sets when
        the file has upstreams in several."""
        key = (policy.vhost, policy.value)
        if policy.selector is Selector.UPSTREAM:
            return policy.selector, self._name(key, self._upstreams)
        if policy.selector is Selector.UPSTREAM_SET and policy.value != ALL:
            return policy.selector, self._name(key, self._sets)
        if len({vhost for vhost, _ in self._upstreams}) < 2:
            return policy.selector, policy.value
        names = [self._name(found, self._upstreams) for found in self._keys_of(policy)]
        if not names:
            raise ImportFault(f"{policy.place}: its virtual host has no upstream that it means")
        set_name = f"{_plain(policy.vhost)}.{_plain(policy.name)}".lstrip(".")
        self.imported.sets[set_name] = [{"upstream": name} for name in names]
        return Selector.UPSTREAM_SET, set_name

    def _keys_of(self, policy: _Policy) -> list[Key]:
        """The upstreams of a policy by name, pattern or `all`; those of other sets come from `_sets`."""
        keys = [key for key in self._upstreams if key[0] == policy.vhost]
        if policy.selector is Selector.UPSTREAM:
            return [key for key in keys if key[1] == policy.value]
        if policy.selector is Selector.UPSTREAM_PATTERN:
            pattern = UpstreamPattern(policy.value)
            return [key for key in keys if pattern.matches(key[1])]
        return keys if policy.value == ALL else []

    def _filters_that_use(self, key: Key) -> list[_Policy]:
        """Policies for exchanges whose links to an upstream take its own `exchange`."""
        found = []
        for policy in self._policies_found:
            members = (
                self._sets.get((policy.vhost, policy.value), []) if policy.selector is Selector.UPSTREAM_SET else []
            )
            is_member = any(item.get("upstream") == key[1] and not item.get("exchange") for item in members)
            if policy.vhost == key[0] and (is_member or key in self._keys_of(policy)):
                found.append(policy)
        return found

    def _member(self, set_key: Key, member: Mapping[str, Any]) -> dict[str, Any]:
        place = f'upstream set "{set_key[1]}"'
        key = (set_key[0], str(member.get("upstream")))
        value = self._keys(place, {name: inner for name, inner in member.items() if name != "upstream"})
        if value.get("exchange"):
            policies = [
                policy
                for policy in self._policies_found
                if policy.selector is Selector.UPSTREAM_SET and (policy.vhost, policy.value) == set_key
            ]
            self._map(place, key, value, policies)
        return {"upstream": self._name(key, self._upstreams), **value}

    def _map(self, place: str, key: Key, value: dict[str, Any], policies: Iterable[_Policy]) -> None:
        """Replace the name of an exchange in `value` by a mapping; add one for another virtual host."""
        upstream_vhost = self._vhosts.get(key) or key[0]
        exchange = value.pop("exchange", None)
        if exchange is None:
            if upstream_vhost != key[0]:
                value["exchange"] = mapping_rule(f"{prefix_of(upstream_vhost)}#", f"{prefix_of(key[0])}#")
            return
        names = {name for policy in policies for name in self._exact_names(place, policy)}
        if not names:
            self.imported.warn(place, f"exchange {shown(exchange)} is left out: no policy for exchanges uses it")
        elif len(names) > 1:
            listed = ", ".join(sorted(names))
            raise ImportFault(
                f"{place}: exchange {shown(exchange)} is one for {listed}; make an upstream for each of them"
            )
        else:
            local = topics_of(key[0], names.pop())
            upstream = topics_of(upstream_vhost, str(exchange))
            if upstream != local:
                value["exchange"] = mapping_rule(upstream, local)

    def _exact_names(self, place: str, policy: _Policy) -> list[str]:
        try:
            names = names_of(policy.pattern)
        except PatternError:
            names = ["+"]
        if "+" in names:
            raise ImportFault(
                f'{place}: its exchange is one for each exchange that {policy.place} has, by the pattern "{policy.pattern}"; '
                f"name one exchange in that pattern, or take exchange out of the upstream"
            )
        return names

    def _name(self, key: Key, found: Iterable[Key]) -> str:
        """A name is that of the file, behind its virtual host when another one has the same name."""
        vhosts = {vhost for vhost, name in found if name == key[1]}
        is_alone = key[0] == DEFAULT_VHOST or len(vhosts | {key[0]}) == 1
        return _plain(key[1]) if is_alone else f"{_plain(key[0])}.{_plain(key[1])}"


def _entries(document: Mapping[str, Any], section: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    entries = document.get(section, [])
    if not isinstance(entries, list):
        raise ImportFault(f"{section}: not a list")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ImportFault(f"{section}[{index}]: not an object")
        yield f"{section}[{index}]", entry


def _vhost(entry: Mapping[str, Any]) -> str:
    return str(entry.get("vhost", DEFAULT_VHOST))


def _plain(name: str) -> str:
    """A name of RabbitMQ as one level of a topic, which names of definitions are."""
    return name.strip("/").replace("/", ".")
