"""A set of upstreams: `[{"upstream": NAME, KEY: OVERRIDE, …}, …]`, the value of the parameter `federation-upstream-set`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from federation.definitions.error import DefinitionError, check_name
from federation.definitions.upstream import parse_upstream_keys

ALL: Final = "all"
"""The set of all upstreams, which exists by itself."""
MEMBERS_MAX: Final = 1000  # of one set


@dataclass(frozen=True, slots=True)
class UpstreamSet:
    """`members`: (name of an upstream, the fields of Upstream that this member overrides as (field, value))."""

    name: str
    members: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


def parse_upstream_set(name: object, value: object) -> UpstreamSet:
    """A set from the value of its parameter. Raises DefinitionError. Whether the upstreams exist is not asked here."""
    checked = check_name("name", name)
    if checked == ALL:
        raise DefinitionError("name", f'the set "{ALL}" is all upstreams and exists by itself')
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MEMBERS_MAX:
        text = f'a set is a list of 1..{MEMBERS_MAX} members; for example [{{"upstream": "a"}}, {{"upstream": "b"}}]'
        raise DefinitionError("", text)
    members = []
    for index, member in enumerate(value):
        key = f"[{index}]"
        if not isinstance(member, dict) or "upstream" not in member:
            raise DefinitionError(key, 'a member is an object with the key upstream; for example {"upstream": "a"}')
        upstream = check_name(f"{key}.upstream", member["upstream"])
        overrides = parse_upstream_keys(key, {inner: member[inner] for inner in member if inner != "upstream"})
        if (upstream, overrides) in members:
            raise DefinitionError(key, f'the upstream "{upstream}" stands in the set twice with the same keys')
        members.append((upstream, overrides))
    return UpstreamSet(checked, tuple(members))
