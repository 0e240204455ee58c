"""The definitions of a node: versioned entries that converge on all nodes of a cluster, and their meaning.

The last writer of an entry wins, by a hybrid clock and then by the node's name. Deleted entries stay as tombstones for
TOMBSTONE_SECONDS, so that a node that was away does not bring them back. Entries of the configuration file are not
replicated and cannot be changed; they hide replicated entries with the same name.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from federation.definitions.entry import (
    AHEAD_MAX,
    BUCKETS,
    CLOCK_LATEST,
    COMPONENTS,
    COUNTER_BITS,
    LINK_KEY,
    PARAMETERS,
    POLICY,
    UPSTREAM,
    UPSTREAM_SET,
    VALUE_BYTES_MAX,
    Entry,
    Key,
    bucket_of,
    canonical,
)
from federation.definitions.error import DefinitionError, check_name, shown
from federation.definitions.policy import ApplyTo, Policy, doubt, parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.secrets import has_secrets, refuse_hidden, without_secrets
from federation.definitions.upstream import Upstream, ignored_keys, parse_upstream, removed_keys
from federation.definitions.upstream_set import UpstreamSet, parse_upstream_set

ENTRIES_MAX: Final = 4096  # that this node adds to; twice as many when nodes add at the same time
TOMBSTONES_MAX: Final = 8192  # the oldest are forgotten first, and counted
TOMBSTONE_SECONDS: Final = 90 * 86_400
REFUSED_NAMED_MAX: Final = 16  # between two calls of take_refused; counters.refused has all
LINK_KEY_BITS: Final = 48
KEPT_HERE: Final = (
    "its user name, password or unknown key is kept on this node alone, because nodes send definitions unencrypted on "
    "plugins.federation.fed_addr: write it on each node by a call or in the configuration file, or set "
    "plugins.federation.allow_plain_secrets"
)

Parsed = Upstream | UpstreamSet | Policy
NO_LINK_KEY: Final = "the random part of client identifiers is no text of letters and digits"
_PARSERS: Final[dict[str, Any]] = {UPSTREAM: parse_upstream, UPSTREAM_SET: parse_upstream_set, POLICY: parse_policy}
WORDS: Final = {UPSTREAM: "upstream", UPSTREAM_SET: "upstream set", POLICY: "policy"}


class Counters:
    """refused  entries of other nodes that were not taken: see `refusal`
    stamped_anew  entries whose clocks were too far ahead
    """

    def __init__(self) -> None:
        self.refused = 0
        self.stamped_anew = 0
        self.tombstones_dropped = 0


class Definitions:
    """`node` is the name in the cluster. `declared`: (component, name) -> value of the configuration file, all sound.
    `shares_secrets`: whether other nodes get, and give, entries with secrets; else those stay at the node that has them."""

    def __init__(
        self,
        node: str,
        declared: dict[Key, object] | None = None,
        rng: random.Random | None = None,
        shares_secrets: bool = True,
    ) -> None:
        """`rng` makes the keys of the links of new upstreams; None: they have none."""
        self.node = node
        self.shares_secrets = shares_secrets
        self._rng = rng
        self.declared = dict(declared or {})
        self.counters = Counters()
        self._entries: dict[Key, Entry] = {}
        self._kept_here: set[Key] = set()  # entries with secrets that are no part of an exchange
        self._buckets = [0] * BUCKETS
        self._live = 0
        self._clock = 0
        self._changes: dict[Key, Entry] = {}
        self._refused: list[str] = []
        self._parsed = {key: parse(*key, value) for key, value in self.declared.items()}
        self._link_keys: dict[str, str] = {}  # by upstream
        self._faults: dict[Key, str] = {}
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

    def entries(self) -> list[Entry]:
        """All replicated entries, tombstones too."""
        return list(self._entries.values())

    def resolution(self) -> Resolution:
        """What the definitions mean; a new object after each change. Entries that cannot be meant are left out."""
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
        """What keeps definitions from having their full effect, as texts without secrets."""
        resolution = self.resolution()
        texts = [f'{WORDS.get(key[0], key[0])} "{key[1]}": {text}' for key, text in sorted(self._faults.items())]
        hidden = sorted(key for key, entry in self._entries.items() if entry.value and key in self.declared)
        texts += [f'{WORDS[key[0]]} "{key[1]}": the one of the configuration file is used' for key in hidden]
        texts += [
            f'{WORDS[key[0]]} "{key[1]}": {text}'
            for key, entry in sorted(self._entries.items())
            if entry.value and key[0] in PARAMETERS and key not in self.declared
            for text in removed_keys(json.loads(entry.value))
        ]
        return texts + resolution.unresolved()

    def kept_here(self, keys: Collection[Key] | None = None) -> list[str]:
        """Entries, of all or of some keys, that other nodes do not get."""
        return [
            f'{WORDS.get(component, component)} "{name}": {KEPT_HERE}'
            for component, name in sorted(self._kept_here if keys is None else self._kept_here.intersection(keys))
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
        self._write(component, name, value, now)
        warnings = self._warnings(component, name, value) + self._collisions_of([(component, name)])
        return [*warnings, KEPT_HERE] if (component, name) in self._kept_here else warnings

    def _write(self, component: str, name: str, value: object, now: float) -> None:
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
            self._keep(Entry(component, name, self._next_clock(now), self.node, text))
        # An upstream of a state without keys gets none: its links go on with their sessions.
        is_new = component == UPSTREAM and (old is None or old.value is None)
        if is_new and self._rng is not None and name not in self._link_keys:
            key = canonical(f"{self._rng.getrandbits(LINK_KEY_BITS):012x}")
            self._keep(Entry(LINK_KEY, name, self._next_clock(now), self.node, key))

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
                trial._write(component, name, value, now)
            except DefinitionError as error:
                raise error.below(f'{WORDS.get(component, component)} "{name}"') from None
        for entry in trial.take_changes():
            self._keep(entry)
        warnings = [
            f'{WORDS[component]} "{name}": {text}'
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
        self._keep(Entry(component, name, self._next_clock(now), self.node, None))
        if component == UPSTREAM and name in self._link_keys:
            self._keep(Entry(LINK_KEY, name, self._next_clock(now), self.node, None))
        return True

    def _check_changeable(self, component: str, name: str) -> None:
        if component not in COMPONENTS:
            raise DefinitionError("component", f'"{component[:64]}" is not one of {", ".join(COMPONENTS[:2])}')
        if (component, check_name("name", name)) in self.declared:
            text = f'the {WORDS[component]} "{name}" stands in the configuration file of this node; change it there'
            raise DefinitionError("name", text)

    def _warnings(self, component: str, name: str, value: object) -> list[str]:
        """What may become true: it is kept, and told."""
        parsed = self._parsed.get((component, name))
        if isinstance(parsed, Policy):
            texts = [text] if (text := self.resolution().unresolved_name(parsed)) else []
            if text := doubt(parsed):
                texts.append(f"pattern: {text}")
            texts += self.resolution().faults(policy=parsed)
            texts += self.resolution().echo_warnings(policy=parsed)
            texts += self.resolution().copied(parsed)
        elif isinstance(parsed, UpstreamSet):
            texts = ignored_keys(value) + self.resolution().faults([upstream for upstream, _ in parsed.members])
        else:
            texts = ignored_keys(value) + self.resolution().faults([name]) + self.resolution().echo_warnings(name)
        return texts

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

    def _next_clock(self, now: float) -> int:
        return max(int(now * 1000) << COUNTER_BITS, self._clock + 1)

    # --- entries of other nodes and of the file

    def load(self, entries: Iterable[Entry], now: float) -> None:
        """Take the entries of this node's own file. Its clock may be the wrong one: entries ahead of it stay as they are, up to
        those that no clock can have made."""
        for entry in entries:
            self._take(entry, now)
        self._stamp_anew([entry for entry in self._entries.values() if entry.clock > CLOCK_LATEST], now)

    def correct(self, now: float) -> None:
        """Stamp entries anew whose clocks are too far ahead of the cluster's time: all other nodes would refuse them, and each
        change after them."""
        self._stamp_anew([entry for entry in self._entries.values() if entry.is_ahead(now)], now)

    def _stamp_anew(self, wrong: list[Entry], now: float) -> None:
        if not wrong:
            return
        keys = {entry.key for entry in wrong}
        self._clock = max((entry.clock for key, entry in self._entries.items() if key not in keys), default=0)
        for entry in sorted(wrong, key=lambda entry: entry.order):
            self._keep(replace(entry, clock=self._next_clock(now), node=self.node))
        self.counters.stamped_anew += len(wrong)

    def merge(self, entries: Iterable[Entry], now: float) -> int:
        """Take entries of another node; the number of those that were new. `now` is Unix seconds. `take_refused` has those that
        are not taken."""
        taken = 0
        for entry in entries:
            if refusal := self._refusal(entry, now):
                self.counters.refused += 1
                if len(self._refused) < REFUSED_NAMED_MAX:
                    self._refused.append(f"{WORDS.get(entry.component, 'definition')} {shown(entry.name)}: {refusal}")
            else:
                taken += self._take(entry, now)
        return taken

    def _refusal(self, entry: Entry, now: float) -> str:
        """Why an entry of another node is not taken; "" for one that may be."""
        if fault := entry.fault():
            return fault
        if self._is_withheld(entry):
            return "it has secrets, which are not taken unencrypted: see plugins.federation.allow_plain_secrets"
        if entry.is_ahead(now):
            return f"the clock of node {shown(entry.node)}, which made it, was more than {AHEAD_MAX:g} s ahead"
        old = self._entries.get(entry.key)
        if entry.value is not None and (old is None or old.value is None) and self._live >= 2 * ENTRIES_MAX:
            return f"there are {self._live} definitions already"
        return ""

    def _take(self, entry: Entry, now: float) -> bool:
        old = self._entries.get(entry.key)
        if (old is None and self._is_expired(entry, now)) or (old is not None and old.order >= entry.order):
            return False
        self._keep(entry)
        return True

    def take_refused(self) -> list[str]:
        """Entries that were not taken since the last call, at most REFUSED_NAMED_MAX, with the reason."""
        found = self._refused
        self._refused = []
        return found

    def _keep(self, entry: Entry) -> None:
        old = self._entries.get(entry.key)
        if old is not None:
            self._remove(old)
        self._entries[entry.key] = entry
        self._live += entry.value is not None
        if self._is_withheld(entry):
            self._kept_here.add(entry.key)
        else:
            self._buckets[bucket_of(entry.key)] ^= entry.digest()
        self._clock = max(self._clock, entry.clock)
        self._changes[entry.key] = entry
        if entry.key not in self.declared:
            self._parse(entry)
        if entry.value is None and len(self._entries) - self._live > TOMBSTONES_MAX:
            self._drop_oldest()

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self._live -= entry.value is not None
        if entry.key in self._kept_here:
            self._kept_here.remove(entry.key)
        else:
            self._buckets[bucket_of(entry.key)] ^= entry.digest()

    def _is_withheld(self, entry: Entry) -> bool:
        return (
            not self.shares_secrets
            and entry.value is not None
            and has_secrets(entry.component, json.loads(entry.value))
        )

    def _drop_oldest(self) -> None:
        tombstones = (entry for entry in self._entries.values() if entry.value is None)
        self._forget(min(tombstones, key=lambda entry: entry.order))
        self.counters.tombstones_dropped += 1

    def expire(self, now: float) -> None:
        """Forget tombstones that are older than TOMBSTONE_SECONDS."""
        for entry in [entry for entry in self._entries.values() if self._is_expired(entry, now)]:
            self._forget(entry)

    def _is_expired(self, entry: Entry, now: float) -> bool:
        return entry.value is None and entry.milliseconds / 1000 + TOMBSTONE_SECONDS < now

    def _forget(self, entry: Entry) -> None:
        self._remove(entry)
        self._changes.pop(entry.key, None)

    def take_changes(self) -> list[Entry]:
        """Entries that changed since the last call, each once."""
        found = list(self._changes.values())
        self._changes.clear()
        return found

    # --- comparing

    def digest(self) -> int:
        """64 bits that are the same on nodes with the same entries."""
        found = 0
        for bucket in self._buckets:
            found ^= bucket
        return found

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

    def buckets(self) -> tuple[int, ...]:
        """The digests of the BUCKETS parts."""
        return tuple(self._buckets)

    def differing(self, buckets: tuple[int, ...]) -> list[Entry]:
        """Own entries in the parts whose digests are others in `buckets`, sorted by key; never those that are kept here."""
        parts = {index for index, own in enumerate(self._buckets) if own != buckets[index]}
        found = [
            entry for key, entry in self._entries.items() if bucket_of(key) in parts and key not in self._kept_here
        ]
        return sorted(found, key=lambda entry: entry.key)

    # --- meaning

    def _parse(self, entry: Entry) -> None:
        self._resolution = None
        self._parsed.pop(entry.key, None)
        self._faults.pop(entry.key, None)
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
        try:
            self._parsed[entry.key] = parse(*entry.key, json.loads(entry.value))
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
