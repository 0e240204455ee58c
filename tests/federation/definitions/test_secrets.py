"""Secrets of definitions: what has them, and where they go when nodes do not exchange them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.definitions.definitions import Definitions
from federation.definitions.entry import POLICY, UPSTREAM, UPSTREAM_SET, Entry, canonical
from federation.definitions.exchange import Exchange, answer
from federation.definitions.secrets import has_secrets, without_secrets

NOW = 1_700_000_000.0
PLAIN = {"uri": "mqtt://h"}
SECRET = {"uri": "mqtt://user:secret@h"}
POLICY_OF_ALL = {"pattern": "a/#", "definition": {"federation-upstream-set": "all"}}


@pytest.mark.parametrize(
    ("component", "value", "expected"),
    [
        (UPSTREAM, PLAIN, False),
        (UPSTREAM, {"uri": "mqtts://h", "tls": {"cacertfile": "/ca.pem", "keyfile": "/key.pem"}}, False),
        (UPSTREAM, SECRET, True),
        (UPSTREAM, {"uri": "mqtt://token@h"}, True),
        (UPSTREAM, {"uri": ["mqtt://h", "mqtt://a:secret@h"]}, True),
        (UPSTREAM, {"uri": "quic://h"}, True),
        (UPSTREAM, {**PLAIN, "token": "secret"}, True),
        (UPSTREAM, {**PLAIN, "tls": {"password": "secret"}}, True),
        (UPSTREAM, {**PLAIN, "queue-type": "quorum"}, False),
        (UPSTREAM, "secret", True),
        (UPSTREAM_SET, [{"upstream": "u", "max-hops": 2}], False),
        (UPSTREAM_SET, [{"upstream": "u"}, {"upstream": "v", "uri": "mqtt://a:secret@h"}], True),
        (POLICY, POLICY_OF_ALL, False),
        ("federation-route", ["secret"], True),
    ],
)
def test_secrets_are_known(component: str, value: object, expected: bool) -> None:
    assert has_secrets(component, value) is expected
    assert "secret" not in json.dumps(without_secrets(component, value))


def run(asking: Definitions, answering: Definitions) -> str:
    """A whole exchange; all that was on the wire."""
    exchange = Exchange(asking)
    seen = ""
    while (request := exchange.request()) is not None:
        found = answer(answering, request, NOW)
        exchange.receive(found, NOW)
        seen += f"{request}{found}"
    return seen


def made(name: str, shares_secrets: bool, **values: Any) -> Definitions:
    definitions = Definitions(name, shares_secrets=shares_secrets)
    for upstream, value in values.items():
        definitions.put(UPSTREAM, upstream, value, NOW)
    return definitions


def test_an_entry_with_a_secret_stays_at_its_node_and_is_named() -> None:
    a = made("a", False, plain=PLAIN)
    assert any("allow_plain_secrets" in text for text in a.put(UPSTREAM, "u", SECRET, NOW))
    assert any("allow_plain_secrets" in text for text in a.put_all([(UPSTREAM, "v", SECRET)], NOW))
    a.put(POLICY, "p", POLICY_OF_ALL, NOW)
    b = made("b", False, other=PLAIN)
    for asking, answering in ((a, b), (b, a)):
        assert "secret" not in run(asking, answering)
    assert b.names(UPSTREAM) == ["other", "plain"]
    assert b.names(POLICY) == ["p"]
    assert a.digest() == b.digest()
    assert a.get(UPSTREAM, "u") == SECRET
    assert len(a.resolution().links()) == 4
    assert [text.split(":")[0] for text in a.kept_here()] == ['upstream "u"', 'upstream "v"']
    assert b.kept_here() == []


def test_a_secret_that_another_node_sends_is_refused_and_named() -> None:
    a, b = made("a", False), made("b", True, u=SECRET)
    run(a, b)
    assert a.names(UPSTREAM) == []
    assert a.counters.refused > 0
    refused = a.take_refused()
    assert '"u"' in refused[0]
    assert "secret@" not in str(refused)


def test_what_was_exchanged_before_stays_and_changes_without_secrets_go_on() -> None:
    """A version before has exchanged a secret; both nodes have it in their files."""
    entry = Entry(UPSTREAM, "u", 1 << 40, "a", canonical(SECRET))
    a, b = made("a", False), made("b", False)
    for definitions in (a, b):
        definitions.load([entry], NOW)
    assert "secret" not in run(a, b)
    assert a.get(UPSTREAM, "u") == b.get(UPSTREAM, "u") == SECRET
    a.put(UPSTREAM, "u", PLAIN, NOW)
    run(a, b)
    assert b.get(UPSTREAM, "u") == PLAIN
    assert a.digest() == b.digest()
    a.put(UPSTREAM, "u", SECRET, NOW + 1)
    run(a, b)
    assert (a.get(UPSTREAM, "u"), b.get(UPSTREAM, "u")) == (SECRET, PLAIN)
    a.delete(UPSTREAM, "u", NOW + 2)
    run(b, a)
    assert b.get(UPSTREAM, "u") is None
    assert a.digest() == b.digest()


def test_the_digest_of_a_file_does_not_tell_its_secrets() -> None:
    def digest(value: object) -> int:
        return Definitions("n", {(UPSTREAM, "u"): value}).declared_digest()

    assert digest(SECRET) == digest({"uri": "mqtt://user:other@h"}) != digest(PLAIN)
    assert digest(PLAIN) != digest({"uri": "mqtt://i"})
