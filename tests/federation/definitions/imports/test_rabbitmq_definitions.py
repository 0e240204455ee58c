"""Definitions files of RabbitMQ: upstreams, sets and policies, virtual hosts, and what cannot be translated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.rabbitmq_definitions import import_definitions
from wording import check_each_named, check_named

BY_HAND = "$share/GROUP/FILTER"


def upstream(name: str, uri: str | list[str] = "amqp://u:p@h", vhost: str = "/", **keys: Any) -> dict[str, Any]:
    value = {"uri": uri} | {key.replace("_", "-"): value for key, value in keys.items()}
    return {"component": "federation-upstream", "name": name, "vhost": vhost, "value": value}


def upstream_set(name: str, *members: dict[str, Any], vhost: str = "/") -> dict[str, Any]:
    return {"component": "federation-upstream-set", "name": name, "vhost": vhost, "value": list(members)}


def policy(name: str, pattern: str, apply_to: str = "exchanges", vhost: str = "/", **definition: Any) -> dict[str, Any]:
    found = {key.replace("_", "-"): value for key, value in definition.items()} or {"federation-upstream-set": "all"}
    return {"vhost": vhost, "name": name, "pattern": pattern, "apply-to": apply_to, "priority": 3, "definition": found}


def run(
    parameters: list[dict[str, Any]], policies: list[dict[str, Any]], apply_to: str = "all", **more: Any
) -> Imported:
    return import_definitions(json.dumps({"parameters": parameters, "policies": policies, **more}), apply_to)


def test_keys_of_an_upstream_stay() -> None:
    keys: dict[str, Any] = {
        "prefetch_count": 10,
        "reconnect_delay": 2,
        "ack_mode": "on-publish",
        "max_hops": 3,
        "expires": 3600000,
        "message_ttl": 1000,
        "consumer_tag": "tag",
        "resource_cleanup_mode": "never",
    }
    found = run([upstream("up", ["amqp://a", "amqps://b/%2f"][:1], **keys)], [])
    assert found.upstreams == {
        "up": {"uri": ["mqtt://a"]} | {key.replace("_", "-"): value for key, value in keys.items()}
    }
    assert found.warnings == []


def test_keys_without_meaning_warn() -> None:
    found = run(
        [
            upstream(
                "up",
                queue_type="quorum",
                bind_nowait=True,
                channel_use_mode="single",
                odd=1,
                queue="q",
                trust_user_id=True,
            ),
            upstream("down", trust_user_id=False),
        ],
        [],
    )
    assert found.upstreams == {"up": {"uri": "mqtt://u:p@h"}, "down": {"uri": "mqtt://u:p@h"}}
    keys = ("queue-type", "bind-nowait", "channel-use-mode", "odd", "queue", "trust-user-id")
    check_each_named(found.warnings, [('"up"', key) for key in keys])


def test_policies_have_filters_for_their_expressions() -> None:
    found = run([upstream("up")], [policy("p", r"^federated\."), policy("q", "^(a|b)$", federation_upstream="up")])
    assert found.policies == {
        "p": {
            "pattern": "federated/#",
            "apply-to": "topics",
            "priority": 3,
            "definition": {"federation-upstream-set": "all"},
        },
        "q-1": {"pattern": "a/#", "apply-to": "topics", "priority": 3, "definition": {"federation-upstream": "up"}},
        "q-2": {"pattern": "b/#", "apply-to": "topics", "priority": 3, "definition": {"federation-upstream": "up"}},
    }


def test_an_expression_without_a_filter_names_policy_and_pattern() -> None:
    with pytest.raises(ImportFault, match=r'policy "p": pattern "\^federated": .*end'):
        run([upstream("up")], [policy("p", "^federated")])


@pytest.mark.parametrize("apply_to", ["all", "exchanges"])
def test_policies_for_queues_are_left_out(apply_to: str) -> None:
    policies = [policy("e", "^e$"), policy("q", "^q", "queues"), policy("both", "^b$", "all")]
    found = run([upstream("up")], policies, apply_to)
    assert list(found.policies) == ["e", "both"]
    warnings = [('policy "q"', '"queues"', BY_HAND), ('policy "both"', "exchanges", "queues")]
    check_each_named(found.warnings, warnings if apply_to == "all" else [])


def test_policies_without_federation_are_left_out_with_a_warning() -> None:
    found = run([upstream("up")], [policy("ha", ".*", ha_mode="all"), policy("s", "^s$", "streams")])
    assert found.policies == {}
    check_each_named(found.warnings, [('policy "ha"', '"ha-mode"'), ('policy "s"', '"streams"', BY_HAND)])


def test_parameters_of_other_components_warn() -> None:
    found = run([{"component": "shovel", "name": "s", "vhost": "/", "value": {}}], [])
    check_each_named(found.warnings, [("parameters[0]", '"shovel"')])


def test_the_exchange_of_an_upstream_becomes_a_mapping() -> None:
    found = run([upstream("up", exchange="far")], [policy("p", "^near$", federation_upstream="up")])
    assert found.upstreams["up"]["exchange"] == "far/# -> near/{#}"


def test_the_exchange_of_a_member_becomes_a_mapping() -> None:
    found = run(
        [upstream("up"), upstream_set("s", {"upstream": "up", "exchange": "far", "max-hops": 2})],
        [policy("p", "^near$", federation_upstream_set="s")],
    )
    assert found.sets == {"s": [{"upstream": "up", "exchange": "far/# -> near/{#}", "max-hops": 2}]}


def test_an_exchange_for_several_exchanges_is_refused() -> None:
    with pytest.raises(ImportFault, match=r'upstream "up".*exchange.*policy "p"'):
        run([upstream("up", exchange="far")], [policy("p", r"^near\.", federation_upstream="up")])
    with pytest.raises(ImportFault, match=r'upstream "up".*"far".*a, b'):
        run([upstream("up", exchange="far")], [policy("p", "^a$"), policy("q", "^b$", federation_upstream="up")])


def test_an_exchange_that_no_policy_uses_is_left_out() -> None:
    found = run([upstream("up", exchange="far")], [])
    assert found.upstreams == {"up": {"uri": "mqtt://u:p@h"}}
    check_each_named(found.warnings, [('upstream "up"', '"far"', "no policy")])


def test_virtual_hosts_become_prefixes_and_mappings() -> None:
    found = run(
        [upstream("up", "amqp://h/remote", vhost="local"), upstream("same", vhost="local")],
        [policy("p", "^x$", vhost="local")],
    )
    assert found.upstreams["up"]["exchange"] == "remote/# -> local/{#}"
    assert "exchange" not in found.upstreams["same"]
    assert found.policies["local.p"]["pattern"] == "local/x/#"


def test_names_in_several_virtual_hosts_stay_apart() -> None:
    found = run(
        [upstream("up"), upstream("up", vhost="b"), upstream("other", vhost="b")],
        [
            policy("p", "^x$"),
            policy("p", "^x$", vhost="b"),
            policy("r", "^y$", vhost="b", federation_upstream_pattern="^o"),
        ],
    )
    assert list(found.upstreams) == ["up", "b.up", "other"]
    assert found.sets == {
        "p": [{"upstream": "up"}],
        "b.p": [{"upstream": "b.up"}, {"upstream": "other"}],
        "b.r": [{"upstream": "other"}],
    }
    assert [value["definition"] for value in found.policies.values()] == [
        {"federation-upstream-set": "p"},
        {"federation-upstream-set": "b.p"},
        {"federation-upstream-set": "b.r"},
    ]


def test_exchanges_of_other_types_warn() -> None:
    exchanges = [
        {"name": "logs", "vhost": "/", "type": "fanout"},
        {"name": "logs", "vhost": "other", "type": "fanout"},
        {"name": "orders", "vhost": "/", "type": "topic"},
    ]
    found = run([upstream("up")], [policy("p", "^(logs|orders)$")], exchanges=exchanges)
    check_each_named(found.warnings, [('policy "p"', '"logs"', "fanout")])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ["line 1", "JSON"]),
        ('{"a": 1,\n}', ["line 2", "JSON"]),
        ("[]", ["object"]),
        ("[" * 100_000, ["inside"]),
        ('{"parameters": {}}', ["parameters", "list"]),
        ('{"policies": [1]}', ["policies[0]", "object"]),
        ('{"policies": [{"name": "p"}]}', ["policies[0]", "pattern"]),
        (json.dumps({"parameters": [upstream("up", "http://h")]}), ['upstream "up"', "uri"]),
        (json.dumps({"parameters": [upstream("up", ["amqp://h/a", "amqp://h/b"])]}), ['"up"', "virtual hosts"]),
        (json.dumps({"parameters": [upstream("up", max_hops=0)]}), ['upstream "up"', "max-hops", "0"]),
        (json.dumps({"parameters": [{**upstream("up"), "name": 1}]}), ["parameters[0]", "name"]),
        (json.dumps({"parameters": [{**upstream("up"), "value": 1}]}), ["up", "object"]),
        (json.dumps({"parameters": [{**upstream_set("s"), "value": 1}]}), ["s", "list of objects"]),
        (
            json.dumps({"policies": [policy("p", "^x$", federation_upstream="a", federation_upstream_set="b")]}),
            ["p", "federation-upstream", "federation-upstream-set", "exclude"],
        ),
    ],
)
def test_faults_name_the_place(text: str, parts: list[str]) -> None:
    with pytest.raises(ImportFault) as caught:
        import_definitions(text, "all")
    check_named(str(caught.value), parts)


def test_names_that_nothing_defines_warn() -> None:
    found = run([], [policy("p", "^x$", vhost="v", federation_upstream="no")])
    check_each_named(found.warnings, [('policy "v.p"', "federation-upstream", '"no"')])
