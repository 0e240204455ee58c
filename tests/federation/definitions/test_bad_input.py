"""Any JSON is a definition or is refused with a DefinitionError, whose text has no password; expressions take bounded time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.definitions.definitions import Definitions, parse
from federation.definitions.entry import COMPONENTS, POLICY, UPSTREAM, UPSTREAM_SET
from federation.definitions.error import NAME_BYTES_MAX, DefinitionError
from federation.definitions.policy import UpstreamPattern
from federation.definitions.upstream import IGNORED_KEYS, UPSTREAM_KEYS

SECRET = "-".join(["SECRET", "WORD"])  # no constant that hypothesis may try as a name
texts = st.text(max_size=30) | st.sampled_from(
    [f"mqtt://a:{SECRET}@h", f"mqtts://{SECRET}@h?verify=verify_none", "on-confirm", "a/#", "$share/g/a", "# -> x/{#}"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
keys = texts | st.sampled_from(
    [*UPSTREAM_KEYS, *IGNORED_KEYS, "upstream", "pattern", "definition", "federation-upstream-set", "priority"]
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=6), max_leaves=20
)


@given(st.sampled_from(COMPONENTS), texts, values)
def test_any_value_is_a_definition_or_refused(component: str, name: str, value: object) -> None:
    told = ""
    try:
        parse(component, name, value)
    except DefinitionError as error:
        told = str(error)
    assert SECRET not in told


@given(st.lists(st.tuples(st.sampled_from(COMPONENTS), st.sampled_from(["a", "b", "all"]), values), max_size=8))
def test_definitions_stay_whole_after_any_writing(found: list[tuple[str, str, Any]]) -> None:
    definitions = Definitions("n")
    for component, name, value in found:
        with suppress(DefinitionError):
            definitions.put(component, name, value, 1.0)
        with suppress(DefinitionError):
            definitions.delete(component, "b", 1.0)
    other = Definitions("m")
    other.merge(definitions.entries(), 1.0)
    assert other.digest() == definitions.digest()
    assert SECRET not in str(definitions.problems())
    for component in (UPSTREAM, UPSTREAM_SET, POLICY):
        for name in definitions.names(component):
            assert SECRET not in str(definitions.read(component, name)) or component == POLICY


@pytest.mark.parametrize("text", ["a*a*a*b", ".*.*.*x", "(a|a|a|a|a|a)a*a*a*$", "[a-z]+[a-z]+[a-z]+[0-9]"])
def test_an_expression_ends_for_any_name(text: str) -> None:
    """With unbounded backtracking this takes until the timeout of the test."""
    pattern = UpstreamPattern(text)
    assert not pattern.matches("a" * (NAME_BYTES_MAX - 1) + "!")
