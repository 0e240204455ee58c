"""What the readers of other brokers' files give: checks, ranks, warnings and the document."""

from __future__ import annotations

import pytest

from federation.definitions.imports.imported import Imported, ImportFault


def policy(pattern: str, upstream: str = "up", priority: int = 0) -> dict[str, object]:
    return {"pattern": pattern, "priority": priority, "definition": {"federation-upstream": upstream}}


def test_the_document_has_parameters_and_policies() -> None:
    found = Imported({"up": {"uri": "mqtt://h"}}, {"s": [{"upstream": "up"}]}, {"p": policy("a/#")})
    found.check()
    assert found.document() == {
        "parameters": [
            {"component": "federation-upstream", "name": "up", "value": {"uri": "mqtt://h"}},
            {"component": "federation-upstream-set", "name": "s", "value": [{"upstream": "up"}]},
        ],
        "policies": [{"name": "p", **policy("a/#")}],
    }


def test_passwords_are_found() -> None:
    assert not Imported({"up": {"uri": "mqtt://user@h"}}).has_passwords()
    assert Imported({"up": {"uri": ["mqtt://h", "mqtt://user:secret@h"]}}).has_passwords()


def test_a_warning_is_kept_once() -> None:
    found = Imported()
    found.warn("line 1", "text")
    found.warn("line 1", "text")
    assert found.warnings == ["line 1: text"]


def test_a_name_of_a_policy_is_taken_once() -> None:
    found = Imported()
    found.add_policy("line 1", "p", "a", "federation-upstream-set", "all")
    with pytest.raises(ImportFault, match='line 2: a policy "p" exists already'):
        found.add_policy("line 2", "p", "b", "federation-upstream-set", "all")


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (Imported({"up": {"uri": "mqtt://h", "max-hops": "x"}}), 'upstream "up": max-hops: '),
        (Imported({"a/b": {"uri": "mqtt://h"}}), 'upstream "a/b": name: '),
        (Imported(sets={"all": [{"upstream": "up"}]}), 'upstream set "all": name: '),
        (Imported(policies={"p": policy("a/#/b")}), 'policy "p": pattern: '),
        (Imported({"up": {"uri": "mqtt://h", "exchange": ["a/# -> b/{#}", "a/b -> c"]}}), 'upstream "up": exchange: '),
    ],
)
def test_definitions_that_a_node_would_refuse_are_faults(found: Imported, fault: str) -> None:
    with pytest.raises(ImportFault) as caught:
        found.check()
    assert str(caught.value).startswith(fault)


def test_topics_that_only_a_name_decides_warn() -> None:
    upstreams: dict[str, dict[str, object]] = {"up": {"uri": "mqtt://h"}, "other": {"uri": "mqtt://g"}}
    found = Imported(upstreams, {}, {"p": policy("+/a"), "q": policy("b/+", "other"), "r": policy("#", "other", 1)})
    found.check()
    assert found.warnings == [
        'policy "p": and policy "q" have the topics b/a, where "p" alone applies; a higher priority decides otherwise'
    ]


def test_narrower_patterns_rank_higher() -> None:
    found = Imported(policies={"p": policy("#"), "q": policy("a/b"), "r": policy("a/+"), "s": policy("c")})
    found.rank_policies()
    assert [value["priority"] for value in found.policies.values()] == [0, 2, 1, 1]
