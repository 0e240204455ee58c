"""The rules of the file, and what a token says, as one authorizer."""

from __future__ import annotations

import pytest

from broker.auth.acl_authorizer import SHARED_MAX, AclAuthorizer
from broker.auth.acl_file import parse_acl_file
from broker.authorization import ALLOW, DENY, NO_OPINION, ClientIdentity, TopicAccess, Verdict

RULES = parse_acl_file(b"user u\ntopic read a/#\ntopic deny a/secret\n").rules
TOKEN = (TopicAccess("a/#", False, True), TopicAccess("own/%u/%c", True, False), TopicAccess("nothing", False, False))


def client(access: tuple[TopicAccess, ...] | None = None) -> ClientIdentity:
    return ClientIdentity("c", "u", "127.0.0.1:1", access)


@pytest.mark.parametrize(
    ("topic", "file", "token", "both"),
    [
        (b"a/x", ALLOW, ALLOW, ALLOW),
        (b"a/secret", DENY, ALLOW, DENY),
        (b"other", NO_OPINION, DENY, DENY),
        (b"nothing", NO_OPINION, DENY, DENY),
        (b"own/u/c", NO_OPINION, DENY, DENY),
    ],
)
def test_reading(topic: bytes, file: Verdict, token: Verdict, both: Verdict) -> None:
    assert AclAuthorizer(RULES).may_read(client(), topic) is file
    assert AclAuthorizer(None).may_read(client(TOKEN), topic) is token
    assert AclAuthorizer(RULES).may_read(client(TOKEN), topic) is both
    assert AclAuthorizer(None).may_read(client(), topic) is ALLOW


@pytest.mark.parametrize(
    ("topic", "file", "token"),
    [(b"own/u/c", NO_OPINION, ALLOW), (b"own/u/d", NO_OPINION, DENY), (b"a/x", NO_OPINION, DENY)],
)
def test_publishing(topic: bytes, file: Verdict, token: Verdict) -> None:
    assert AclAuthorizer(RULES).may_publish(client(), topic) is file
    assert AclAuthorizer(None).may_publish(client(TOKEN), topic) is token
    assert AclAuthorizer(RULES).may_publish(client(TOKEN), topic) is token


@pytest.mark.parametrize(
    ("topic_filter", "file", "token"),
    [(b"a/+", ALLOW, ALLOW), (b"#", ALLOW, ALLOW), (b"a/secret", NO_OPINION, ALLOW), (b"b", NO_OPINION, DENY)],
)
def test_subscribing(topic_filter: bytes, file: Verdict, token: Verdict) -> None:
    assert AclAuthorizer(RULES).may_subscribe(client(), b"", topic_filter) is file
    assert AclAuthorizer(None).may_subscribe(client(TOKEN), b"g", topic_filter) is token
    assert AclAuthorizer(None).may_subscribe(client(), b"", topic_filter) is ALLOW


def test_a_token_that_lists_nothing_allows_nothing() -> None:
    authorizer = AclAuthorizer(None)
    assert authorizer.may_read(client(()), b"a") is DENY
    assert authorizer.may_publish(client(()), b"a") is DENY
    assert authorizer.may_subscribe(client(()), b"", b"#") is DENY


def test_tokens_that_say_the_same_share_their_rules() -> None:
    authorizer = AclAuthorizer(None)
    clients = [ClientIdentity(f"c{number}", "u", "127.0.0.1:1", tuple(TOKEN)) for number in range(2)]
    for found in clients:
        assert authorizer.may_publish(found, b"own/u/" + found.client_id.encode()) is ALLOW
    assert authorizer.may_publish(clients[0], b"own/u/c1") is DENY
    assert clients[0].kept is clients[1].kept is not None


def test_more_tokens_than_are_kept_are_judged_alike() -> None:
    authorizer = AclAuthorizer(None)
    for number in range(SHARED_MAX + 10):
        access = (TopicAccess(f"t{number}", False, True),)
        assert authorizer.may_read(client(access), b"t%d" % number) is ALLOW
    assert authorizer.may_read(client((TopicAccess("t0", False, True),)), b"t0") is ALLOW
