"""Who a Kafka client is to the rules after its login."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.auth.acl_authorizer import AclAuthorizer
from broker.auth.acl_file import parse_acl_file
from broker.authorization import Verdict
from broker.hooks import ConnectRequest
from broker.kafka.login import Login
from broker.listener_facts import ListenerFacts
from broker.server.host import Host


class Accepting:
    """A decider that lets everybody in."""

    def decide(self, request: ConnectRequest, now: float) -> None:
        request.accept(b"")


async def logged_in(rule: str, client_id: str, username: str) -> Login:
    settings = SimpleNamespace(client_id_by_user=rule)
    broker = SimpleNamespace(connect_deciders=[Accepting()], settings=settings)
    host = cast(Host, SimpleNamespace(broker=broker, now=lambda: 0.0))
    login = Login(host, client_id, ("10.0.0.9:5", "10.0.0.1:9092"), ListenerFacts("x", "tcp"), "")
    if username:
        await login.proceed("PLAIN", f"\0{username}\0secret".encode())
    else:
        await login.without_credentials()
    assert login.is_done
    return login


@pytest.mark.parametrize(
    ("rule", "client_id", "username", "bound"),
    [
        ("off", "alice:dev1", "bob", "alice:dev1"),
        ("off", "", "bob", ""),
        ("prefix", "bob:dev1", "bob", "bob:dev1"),
        ("prefix", "alice:dev1", "bob", "bob:"),
        ("prefix", "rdkafka", "bob", "bob:"),
        ("prefix", "bob:a:dev1", "bob", "bob:"),  # of the user bob:a
        ("prefix", "", "bob", "bob:"),
        ("equal", "alice", "bob", "bob"),
        ("equal", "alice", "", ""),
        ("prefix", "alice:dev1", "", ""),
    ],
)
async def test_the_client_id_is_one_of_the_user(rule: str, client_id: str, username: str, bound: str) -> None:
    identity = (await logged_in(rule, client_id, username)).identity
    assert (identity.client_id, identity.username) == (bound, username)


async def test_nobody_reads_what_is_for_a_client_of_another_user() -> None:
    rules: Any = AclAuthorizer(parse_acl_file(b"pattern read devices/%c/#\n").rules)
    for user, may_read in (("alice", True), ("bob", False)):
        identity = (await logged_in("prefix", "alice:dev1", user)).identity
        assert (rules.may_read(identity, b"devices/alice:dev1/t") is Verdict.ALLOW) == may_read
