"""Definitions that were read from the configuration of another broker: what the readers of this package give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from federation.definitions.definitions import parse
from federation.definitions.entry import POLICY, UPSTREAM, UPSTREAM_SET, WORDS
from federation.definitions.error import DefinitionError
from federation.definitions.policy import ApplyTo, Policy
from federation.definitions.resolution import Resolution
from federation.definitions.uri import parse_uri
from federation.topics.filters import covers, intersection

POLICIES_COMPARED_MAX: Final = 500


class ImportFault(ValueError):
    """The file cannot be imported. The text names the place and what would be right; it never has a secret."""


@dataclass(slots=True)
class Imported:
    """Values by name, with the keys and units of the parameters and policies of RabbitMQ's management API.

    warnings  what has no meaning here or changes its meaning, with its place in the file
    """

    upstreams: dict[str, dict[str, Any]] = field(default_factory=dict)
    sets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def warn(self, place: str, text: str) -> None:
        """Keep a warning, once."""
        warning = f"{place}: {text}"
        if warning not in self.warnings:
            self.warnings.append(warning)

    def add_policy(self, place: str, name: str, pattern: str, selector: str, value: str, priority: int = 0) -> None:
        """Add a policy for topics. Raises ImportFault when its name is taken."""
        if name in self.policies:
            raise ImportFault(f'{place}: a policy "{name}" exists already; names of policies are unique here')
        self.policies[name] = {
            "pattern": pattern,
            "apply-to": ApplyTo.TOPICS.value,
            "priority": priority,
            "definition": {selector: value},
        }

    def rank_policies(self) -> None:
        """Give a policy a higher priority than those whose patterns have all its topics and more."""
        patterns = {policy["pattern"].encode() for policy in self.policies.values()}
        for policy in self.policies.values():
            own = policy["pattern"].encode()
            policy["priority"] = sum(other != own and covers(other, own) for other in patterns)

    def check(self) -> None:
        """Raise ImportFault for what a node would refuse. Names that nothing defines become warnings."""
        kinds: dict[str, dict[str, Any]] = {UPSTREAM: self.upstreams, UPSTREAM_SET: self.sets, POLICY: self.policies}
        parsed: list[list[Any]] = []
        for component, values in kinds.items():
            parsed.append([])
            for name, value in values.items():
                try:
                    parsed[-1].append(parse(component, name, value))
                except DefinitionError as error:
                    raise ImportFault(f'{WORDS[component]} "{name}": {error}') from None
        upstreams, sets, policies = parsed
        self.warnings += Resolution(upstreams, sets, policies).unresolved()
        self._warn_overlaps(policies)

    def _warn_overlaps(self, policies: list[Policy]) -> None:
        """Warn of topics whose policy only a name decides. Past POLICIES_COMPARED_MAX policies the rest is not compared."""
        for second in range(1, min(len(policies), POLICIES_COMPARED_MAX)):
            for first in range(second):
                one, other = policies[first], policies[second]
                common = intersection(one.filter, other.filter)
                if common is None or one.priority != other.priority or one.definition == other.definition:
                    continue
                best = min(one, other, key=lambda policy: policy.rank)
                text = f'and policy "{other.name}" have the topics {common.decode()}, where "{best.name}" alone applies'
                self.warn(f'policy "{one.name}"', f"{text}; a higher priority decides otherwise")

    def has_passwords(self) -> bool:
        """Return whether a URI has a password."""
        texts = [value["uri"] for value in self.upstreams.values()]
        uris = [uri for text in texts for uri in (text if isinstance(text, list) else [text])]
        return any(parse_uri(uri).password is not None for uri in uris)

    def document(self) -> dict[str, Any]:
        """The definitions as `gmqttctl definitions export` prints them."""
        parameters: list[dict[str, Any]] = [
            {"component": component, "name": name, "value": value}
            for component, values in ((UPSTREAM, self.upstreams), (UPSTREAM_SET, self.sets))
            for name, value in values.items()
        ]
        return {
            "parameters": parameters,
            "policies": [{"name": name, **value} for name, value in self.policies.items()],
        }
