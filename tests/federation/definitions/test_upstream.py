"""Upstreams and sets of them: RabbitMQ's keys and defaults, members and overrides, and what is refused with which key."""

from __future__ import annotations

import pytest

from federation.definitions.error import DefinitionError
from federation.definitions.upstream import (
    AckMode,
    Direction,
    InterestMode,
    ResourceCleanupMode,
    TlsOptions,
    Upstream,
    UpstreamSet,
    ignored_keys,
    parse_upstream,
    parse_upstream_keys,
    parse_upstream_set,
)
from federation.definitions.uri import LinkUri, parse_uri

URI = LinkUri("mqtt", "a", 1883)


def test_an_upstream_with_a_uri_alone_has_the_defaults_of_rabbitmq() -> None:
    upstream = parse_upstream("origin", {"uri": "mqtt://a"})
    assert upstream == Upstream("origin", (URI,))
    assert (upstream.prefetch_count, upstream.ack_mode, upstream.reconnect_delay) == (1000, AckMode.ON_CONFIRM, 5.0)
    assert (upstream.max_hops, upstream.expires, upstream.message_ttl) == (1, None, None)
    assert upstream.resource_cleanup_mode is ResourceCleanupMode.DEFAULT


def test_each_key_is_read() -> None:
    upstream = parse_upstream(
        "origin",
        {
            "uri": ["mqtts://a", "mqtt://b:1"],
            "prefetch-count": 20,
            "ack-mode": "no-ack",
            "reconnect-delay": 0.5,
            "trust-user-id": False,
            "max-hops": 4,
            "expires": 90_000,
            "message-ttl": 1500,
            "exchange": ["eu/# -> x/{#}", "us/a -> b"],
            "queue": "$share/g/f",
            "consumer-tag": "tag",
            "resource-cleanup-mode": "never",
            "tls": {
                "cacertfile": "/ca",
                "certfile": "/c",
                "keyfile": "/k",
                "verify": "verify_none",
                "server-name-indication": "n",
            },
            "local-username": "links",
            "direction": "in",
            "interest": "all",
        },
    )
    assert upstream == Upstream(
        name="origin",
        uris=(LinkUri("mqtts", "a", 8883), LinkUri("mqtt", "b", 1)),
        prefetch_count=20,
        ack_mode=AckMode.NO_ACK,
        reconnect_delay=0.5,
        max_hops=4,
        expires=90.0,
        message_ttl=1.5,
        exchange=("eu/# -> x/{#}", "us/a -> b"),
        queue="$share/g/f",
        consumer_tag="tag",
        resource_cleanup_mode=ResourceCleanupMode.NEVER,
        tls=TlsOptions("/ca", "/c", "/k", False, "n"),
        local_username="links",
        direction=Direction.IN,
        interest=InterestMode.ALL,
    )


@pytest.mark.parametrize(
    ("value", "key", "part"),
    [
        (None, "", "not an object"),
        ([], "", "not an object"),
        ({}, "uri", "missing"),
        ({"uri": None}, "uri", "missing"),
        ({"uri": []}, "uri", "1..16"),
        ({"uri": ["mqtt://a", "b"]}, "uri[1]", "mqtt://"),
        ({"uri": ["mqtt://a", "mqtt://a:1883/"]}, "uri", "twice"),
        ({"uri": "mqtt://a", "max_hops": 1}, "max_hops", "nearest known one is max-hops"),
        ({"uri": "mqtt://a", "max-hops": 0}, "max-hops", "1..255"),
        ({"uri": "mqtt://a", "max-hops": "1"}, "max-hops", "1..255"),
        ({"uri": "mqtt://a", "max-hops": True}, "max-hops", "1..255"),
        ({"uri": "mqtt://a", "max-hops": 1.5}, "max-hops", "1..255"),
        ({"uri": "mqtt://a", "prefetch-count": 65536}, "prefetch-count", "1..65535"),
        ({"uri": "mqtt://a", "prefetch-count": 0}, "prefetch-count", "1..65535"),
        ({"uri": "mqtt://a", "ack-mode": "on_confirm"}, "ack-mode", "nearest is on-confirm"),
        ({"uri": "mqtt://a", "reconnect-delay": -1}, "reconnect-delay", "seconds"),
        ({"uri": "mqtt://a", "reconnect-delay": float("nan")}, "reconnect-delay", "seconds"),
        ({"uri": "mqtt://a", "expires": 0}, "expires", "milliseconds"),
        ({"uri": "mqtt://a", "message-ttl": -1}, "message-ttl", "milliseconds"),
        ({"uri": "mqtt://a", "trust-user-id": "yes"}, "trust-user-id", "true or false"),
        ({"uri": "mqtt://a", "trust-user-id": True}, "trust-user-id", "does not say who has published"),
        ({"uri": "mqtt://a", "consumer-tag": ""}, "consumer-tag", "text"),
        ({"uri": "mqtt://a", "consumer-tag": "a\0"}, "consumer-tag", "control"),
        ({"uri": "mqtt://a", "consumer-tag": "\ud800"}, "consumer-tag", "surrogate"),
        ({"uri": "mqtt://a", "exchange": "name"}, "exchange", "UPSTREAM -> LOCAL"),
        ({"uri": "mqtt://a", "exchange": []}, "exchange", "1..100"),
        ({"uri": "mqtt://a", "exchange": ["a -> b", 1]}, "exchange[1]", "text"),
        ({"uri": "mqtt://a", "exchange": ["a -> b", "c -> b"]}, "exchange", "b"),
        ({"uri": "mqtt://a", "tls": "no"}, "tls", "not an object"),
        ({"uri": "mqtts://a", "tls": {"verify": True}}, "tls.verify", "verify_peer"),
        ({"uri": "mqtts://a", "tls": {"cafile": "/a"}}, "tls.cafile", "nearest known one is"),
        ({"uri": "mqtt://a", "tls": {"cacertfile": "/a"}}, "tls", "no URI has TLS"),
        ({"uri": "mqtts://a", "tls": {"certfile": "/a"}}, "tls", "belong together"),
        ({"uri": "mqtts://a", "tls": {"server-name-indication": ".a"}}, "tls.server-name-indication", "name of a host"),
        ({"uri": "mqtts://a?server_name_indication=a..b"}, "uri?server_name_indication", "name of a host"),
        ({"uri": "mqtts://a?auth_mechanism=external"}, "uri", "needs certfile"),
        ({"uri": ["mqtt://b", "mqtts://a?auth_mechanism=external"]}, "uri[1]", "needs certfile"),
        ({"uri": "mqtt://a", "direction": "out", "queue": "$share/g/f"}, "queue", "direction out"),
    ],
)
def test_a_bad_upstream_is_refused_with_its_key(value: object, key: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_upstream("origin", value)
    assert caught.value.key == key
    assert part in caught.value.text


@pytest.mark.parametrize("name", [None, "", "a/b", "a+", "#", " a", "a\n", "ä" * 65])
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_upstream(name, {"uri": "mqtt://a"})
    assert caught.value.key == "name"


def test_keys_of_rabbitmq_without_a_counterpart_are_ignored_with_a_warning() -> None:
    value = {
        "uri": "mqtt://a",
        "queue-type": "quorum",
        "ha-policy": "all",
        "bind-nowait": True,
        "channel-use-mode": "single",
    }
    assert parse_upstream("origin", value) == Upstream("origin", (URI,))
    assert [text.split()[0] for text in ignored_keys(value)] == [
        "queue-type",
        "bind-nowait",
        "channel-use-mode",
        "ha-policy",
    ]


def test_a_member_of_a_set_overrides_keys() -> None:
    upstream = parse_upstream("origin", {"uri": "mqtt://a", "max-hops": 3, "prefetch-count": 9})
    made = upstream.with_overrides(parse_upstream_keys("[0]", {"max-hops": 2, "uri": "mqtt://b"}))
    assert made == Upstream("origin", (parse_uri("mqtt://b"),), max_hops=2, prefetch_count=9)


def test_overrides_that_do_not_fit_are_refused() -> None:
    upstream = parse_upstream("origin", {"uri": "mqtts://a", "tls": {"cacertfile": "/a"}})
    with pytest.raises(DefinitionError, match="no URI has TLS"):
        upstream.with_overrides(parse_upstream_keys("[0]", {"uri": "mqtt://b"}))


def test_the_query_of_a_uri_overrides_the_tls_options_of_the_upstream() -> None:
    upstream = parse_upstream(
        "origin",
        {
            "uri": ["mqtts://a?verify=verify_none&cacertfile=/other", "mqtts://b"],
            "tls": {"cacertfile": "/ca", "server-name-indication": "n"},
        },
    )
    assert upstream.tls_of(upstream.uris[0]) == TlsOptions("/other", verify=False, server_name="n")
    assert upstream.tls_of(upstream.uris[1]) == TlsOptions("/ca", server_name="n")


def test_a_set_has_members_with_overrides() -> None:
    value = [{"upstream": "a", "max-hops": 2, "exchange": "# -> x/{#}"}, {"upstream": "b"}, {"upstream": "a"}]
    assert parse_upstream_set("s", value) == UpstreamSet(
        "s", (("a", (("exchange", ("# -> x/{#}",)), ("max_hops", 2))), ("b", ()), ("a", ()))
    )


@pytest.mark.parametrize(
    ("name", "value", "key", "part"),
    [
        ("all", [{"upstream": "a"}], "name", "exists by itself"),
        ("a/b", [{"upstream": "a"}], "name", "no name"),
        ("s", [], "", "1..1000"),
        ("s", {"upstream": "a"}, "", "is a list"),
        ("s", None, "", "is a list"),
        ("s", ["a"], "[0]", "key upstream"),
        ("s", [{"upstream": "a"}, {}], "[1]", "key upstream"),
        ("s", [{"upstream": ""}], "[0].upstream", "text"),
        ("s", [{"upstream": "a", "max-hops": 0}], "[0].max-hops", "1..255"),
        ("s", [{"upstream": "a", "uri": "x"}], "[0].uri", "mqtt://"),
        ("s", [{"upstream": "a"}, {"upstream": "a"}], "[1]", "twice"),
        ("s", [{"upstream": "a"}] * 1001, "", "1..1000"),
    ],
)
def test_a_bad_set_is_refused_with_its_key(name: str, value: object, key: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_upstream_set(name, value)
    assert caught.value.key == key
    assert part in caught.value.text
