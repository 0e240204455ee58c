"""The definitions of a node: versioned entries, those of the configuration file, and their meaning.

Definitions of the configuration file are not replicated and cannot be changed; they hide entries with the same name.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any, Final

from federation.definitions.entry import (
    COMPONENTS,
    LINK_KEY,
    POLICY,
    UPSTREAM,
    UPSTREAM_SET,
    VALUE_BYTES_MAX,
    WORDS,
    Entry,
    Key,
    canonical,
)
from federation.definitions.error import DefinitionError, check_name
from federation.definitions.policy import ApplyTo, Policy, doubt, parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.secrets import has_secrets, refuse_hidden, without_secrets
from federation.definitions.upstream import (
    Upstream,
    UpstreamSet,
    ignored_keys,
    parse_upstream,
    parse_upstream_set,
    removed_keys,
)
from federation.definitions.versions import ENTRIES_MAX, Versions

LINK_KEY_BITS: Final = 48
KEPT_HERE: Final = (
    "its user name, password or unknown key is kept on this node alone, because nodes send definitions unencrypted on "
    "plugins.federation.fed_addr: set plugins.federation.tls, or write it on each node by a call or in the configuration "
    "file, or set plugins.federation.allow_plain_secrets"
)

Parsed = Upstream | UpstreamSet | Policy
NO_LINK_KEY: Final = "the random part of client identifiers is no text of letters and digits"
_PARSERS: Final[dict[str, Any]] = {UPSTREAM: parse_upstream, UPSTREAM_SET: parse_upstream_set, POLICY: parse_policy}


class Definitions(Versions):
    """`declared`: (component, name) -> value of the configuration file, all sound."""

    def __init__(
        self,
        node: str,
        declared: dict[Key, object] | None = None,
        rng: random.Random | None = None,
        shares_secrets: bool = True,
    ) -> None:
        """`rng` makes the keys of the links of new upstreams; None: they have none."""
        super().__init__(node, shares_secrets)
        self._rng = rng
        self.declared = dict(declared or {})
        self._parsed = {key: parse(*key, value) for key, value in self.declared.items()}
        self._link_keys: dict[str, str] = {}  # by upstream
        self._faults: dict[Key, str] = {}
        self._removed: dict[Key, list[str]] = {}  # warnings of keys that are no longer supported
        self._resolution: Resolution | None = None

    # --- reading

    def get(self, component: str, name: str) -> object | None:
        """The value of a definition, that of the configuration file first; None without one."""
        if (component, name) in self.declared:
            return self.declared[component, name]
        entry = self._entries.get((component, name))
        return None if entry is None or entry.value is None else json.loads(entry.value)

    def read(self, component: str, name: str) -> object | None:
        """As `get`, with HIDDEN for user names and passwords in URIs."""
        return without_secrets(component, self.get(component, name))

    def names(self, component: str) -> list[str]:
        """The names of a component that have a value, sorted."""
        found = {name for own, name in self.declared if own == component}
        found.update(entry.name for entry in self._entries.values() if entry.component == component and entry.value)
        return sorted(found)

    def resolution(self) -> Resolution:
        """Return the meaning of the definitions: a new object after each change, without entries that cannot be parsed."""
        if self._resolution is None:
            self._resolution = self._resolve()
        return self._resolution

    def warnings(self) -> list[tuple[str, str]]:
        """(what, text) of all definitions that do not have the effect that they seem to have."""
        found = (
            ("a definition has no full effect", self.problems()),
            ("a definition is kept on this node alone", self.kept_here()),
            ("jobs of a federated queue come as copies, too", self.copies()),
            ("topic mappings collide", self.collisions()),
            ("a link gets back what it pushes", self.resolution().echoes()),
        )
        return [(what, text) for what, texts in found for text in texts]

    def problems(self) -> list[str]:
        """Name what keeps definitions from having their full effect, without secrets."""
        hidden = sorted(key for key, entry in self._entries.items() if entry.value and key in self.declared)
        found = [
            *sorted(self._faults.items()),
            *((key, "the one of the configuration file is used") for key in hidden),
            *((key, text) for key, texts in sorted(self._removed.items()) for text in texts),
        ]
        return [f"{_shown(*key)}: {text}" for key, text in found] + self.resolution().unresolved()

    def kept_here(self, keys: Collection[Key] | None = None) -> list[str]:
        """Entries, of all or of some keys, that other nodes do not get."""
        return [
            f"{_shown(*key)}: {KEPT_HERE}"
            for key in sorted(self._kept_here if keys is None else self._kept_here.intersection(keys))
        ]

    def collisions(self) -> list[str]:
        """Pairs of upstreams whose mappings give different topics one name here."""
        return list({found.upstreams: found.text for found in self.resolution().collisions}.values())

    def copies(self) -> list[str]:
        """Policies for queues whose jobs also come as copies, by policies for topics."""
        resolution = self.resolution()
        queues = [policy for policy in resolution.policies if policy.apply_to is ApplyTo.QUEUES]
        return [f'policy "{policy.name}": {text}' for policy in queues for text in resolution.copied(policy)]

    # --- changes on this node

    def put(self, component: str, name: str, value: object, now: float) -> list[str]:
        """Create or replace a definition; `now` is Unix seconds. Gives warnings. Raises DefinitionError."""
        self._put(component, name, value, now)
        warnings = self._warnings(component, name, value) + self._collisions_of([(component, name)])
        return [*warnings, KEPT_HERE] if (component, name) in self._kept_here else warnings

    def _put(self, component: str, name: str, value: object, now: float) -> None:
        self._check_changeable(component, name)
        parsed = parse(component, name, value)
        text = _canonical(value)
        if isinstance(parsed, Policy):
            doubt(parsed)
        else:
            refuse_hidden(value)
        if isinstance(parsed, UpstreamSet):
            self._check_members(parsed)
        old = self._entries.get((component, name))
        if (old is None or old.value is None) and self._live >= ENTRIES_MAX:
            raise DefinitionError("name", f"there are {self._live} definitions already, at most {ENTRIES_MAX}")
        if old is None or old.value != text:
            self._write(component, name, text, now)
        # An upstream of a state without keys gets none: its links go on with their sessions.
        is_new = component == UPSTREAM and (old is None or old.value is None)
        if is_new and self._rng is not None and name not in self._link_keys:
            key = canonical(f"{self._rng.getrandbits(LINK_KEY_BITS):012x}")
            self._write(LINK_KEY, name, key, now)

    def _check_members(self, upstream_set: UpstreamSet) -> None:
        for index, (name, overrides) in enumerate(upstream_set.members):
            upstream = self._parsed.get((UPSTREAM, name))
            if not isinstance(upstream, Upstream):
                raise DefinitionError(f"[{index}].upstream", f'there is no upstream "{name}"; create it first')
            try:
                upstream.with_overrides(overrides)
            except DefinitionError as error:
                raise error.below(f"[{index}]") from None

    def put_all(self, definitions: Iterable[tuple[str, str, object]], now: float) -> list[str]:
        """Create or replace (component, name, value)s, all or none; sets after their upstreams. Gives warnings. Raises
        DefinitionError, whose key names the definition."""
        trial = Definitions(self.node, self.declared, self._rng, self.shares_secrets)
        trial.load(self._entries.values(), now)
        trial.take_changes()
        ordered = sorted(definitions, key=lambda item: COMPONENTS.index(item[0]) if item[0] in COMPONENTS else 0)
        for component, name, value in ordered:
            try:
                trial._put(component, name, value, now)
            except DefinitionError as error:
                raise error.below(_shown(component, name)) from None
        for entry in trial.take_changes():
            self._keep(entry)
        warnings = [
            f"{_shown(component, name)}: {text}"
            for component, name, value in ordered
            for text in self._warnings(component, name, value)
        ]
        keys = [(component, name) for component, name, _ in ordered]
        return warnings + self._collisions_of(keys) + self.kept_here(keys)

    def delete(self, component: str, name: str, now: float) -> bool:
        """Delete a definition; False when there is none. Raises DefinitionError when it is in use or cannot be changed."""
        self._check_changeable(component, name)
        old = self._entries.get((component, name))
        if old is None or old.value is None:
            return False
        if component == UPSTREAM:
            for found in self._parsed.values():
                if isinstance(found, UpstreamSet) and any(upstream == name for upstream, _ in found.members):
                    raise DefinitionError("name", f'the upstream set "{found.name}" has it; change the set first')
        self._write(component, name, None, now)
        if component == UPSTREAM and name in self._link_keys:
            self._write(LINK_KEY, name, None, now)
        return True

    def _check_changeable(self, component: str, name: str) -> None:
        if component not in COMPONENTS:
            raise DefinitionError("component", f'"{component[:64]}" is not one of {", ".join(COMPONENTS[:2])}')
        if (component, check_name("name", name)) in self.declared:
            text = f"the {_shown(component, name)} stands in the configuration file of this node; change it there"
            raise DefinitionError("name", text)

    def _warnings(self, component: str, name: str, value: object) -> list[str]:
        """Warn of what has no effect yet: it is kept all the same."""
        parsed = self._parsed.get((component, name))
        resolution = self.resolution()
        if isinstance(parsed, Policy):
            found = (resolution.unresolved_name(parsed), f"pattern: {text}" if (text := doubt(parsed)) else "")
            texts = [text for text in found if text] + resolution.faults(policy=parsed)
            return texts + resolution.echo_warnings(policy=parsed) + resolution.copied(parsed)
        if isinstance(parsed, UpstreamSet):
            return ignored_keys(value) + resolution.faults([upstream for upstream, _ in parsed.members])
        return ignored_keys(value) + resolution.faults([name]) + resolution.echo_warnings(name)

    def _collisions_of(self, keys: Collection[Key]) -> list[str]:
        """The collisions in which these definitions have a part, one for each pair of upstreams."""
        found: dict[tuple[str, str], str] = {}
        for collision in self.resolution().collisions:
            parts = [(POLICY, collision.policy), *((UPSTREAM, name) for name in collision.upstreams)]
            policy = self._parsed.get((POLICY, collision.policy))
            if isinstance(policy, Policy):
                parts.append((UPSTREAM_SET, policy.definition.value))
            if any(part in keys for part in parts):
                found.setdefault(collision.upstreams, collision.text)
        return list(found.values())

    def declared_digest(self) -> int:
        """64 bits that are the same on nodes whose configuration files have the same definitions, secrets apart: a digest of
        them would let its readers try passwords. 0 for none."""
        if not self.declared:
            return 0
        values = [
            [*key, without_secrets(key[0], value) if has_secrets(key[0], value) else value]
            for key, value in sorted(self.declared.items(), key=lambda item: item[0])
        ]
        # YAML has values that JSON has not, such as dates in keys without an effect.
        text = json.dumps(values, sort_keys=True, default=str)
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())

    # --- meaning

    def _entry_changed(self, entry: Entry) -> None:
        if entry.key in self.declared:
            return
        self._resolution = None
        for known in (self._parsed, self._faults, self._removed):
            known.pop(entry.key, None)
        if entry.component == LINK_KEY:
            self._link_keys.pop(entry.name, None)
        if entry.value is None:
            return
        if entry.component == LINK_KEY:
            key = json.loads(entry.value)
            if isinstance(key, str) and key.isascii() and key.isalnum():
                self._link_keys[entry.name] = key
            else:
                self._faults[entry.key] = NO_LINK_KEY
            return
        if entry.component not in COMPONENTS:
            self._faults[entry.key] = "this node does not know this kind of definition"
            return
        value = json.loads(entry.value)
        if texts := removed_keys(value):
            self._removed[entry.key] = texts
        try:
            self._parsed[entry.key] = parse(*entry.key, value)
        except DefinitionError as error:
            self._faults[entry.key] = str(error)

    def _resolve(self) -> Resolution:
        found = self._parsed.values()
        return Resolution(
            [item for item in found if isinstance(item, Upstream)],
            [item for item in found if isinstance(item, UpstreamSet)],
            [item for item in found if isinstance(item, Policy)],
            {name: key for name, key in self._link_keys.items() if (UPSTREAM, name) not in self.declared},
        )


def _shown(component: str, name: str) -> str:
    return f'{WORDS.get(component, component)} "{name}"'


def parse(component: str, name: str, value: object) -> Parsed:
    """A definition from its value. Raises DefinitionError."""
    parsed: Parsed = _PARSERS[component](name, value)
    return parsed


def _canonical(value: object) -> str:
    try:
        text = canonical(value)
    except (TypeError, ValueError, RecursionError):
        raise DefinitionError("", "the value is not JSON") from None
    if len(text.encode()) > VALUE_BYTES_MAX:
        raise DefinitionError("", f"the value has more than {VALUE_BYTES_MAX} bytes")
    return text
