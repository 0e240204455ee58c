"""URIs of upstreams: what is read, what is refused with which key, and that no error has a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.definitions.error import DefinitionError
from federation.definitions.uri import LinkUri, parse_uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mqtt://host", LinkUri("mqtt", "host", 1883)),
        ("mqtt://host/", LinkUri("mqtt", "host", 1883)),
        ("MQTTS://Host.example.com", LinkUri("mqtts", "host.example.com", 8883)),
        ("mqtt://10.0.0.1:2883", LinkUri("mqtt", "10.0.0.1", 2883)),
        ("mqtt://[::1]:1884", LinkUri("mqtt", "::1", 1884)),
        ("mqtt://user@host", LinkUri("mqtt", "host", 1883, username="user")),
        ("mqtt://us%40er:p%3Aw%2F%23@host", LinkUri("mqtt", "host", 1883, username="us@er", password="p:w/#")),
        ("mqtt://vhost:user:pw@host", LinkUri("mqtt", "host", 1883, username="vhost", password="user:pw")),
        ("ws://host", LinkUri("ws", "host", 80, "/mqtt")),
        ("wss://host/", LinkUri("wss", "host", 443, "/mqtt")),
        ("ws://host:15675/ws", LinkUri("ws", "host", 15675, "/ws")),
        ("mqtt://host?heartbeat=30", LinkUri("mqtt", "host", 1883, query=(("heartbeat", "30"),))),
    ],
)
def test_a_uri_is_read(text: str, expected: LinkUri) -> None:
    assert parse_uri(text) == expected


@pytest.mark.parametrize(
    ("text", "key", "part"),
    [
        (None, "uri", "not a URI"),
        (5, "uri", "not a URI"),
        ("", "uri", "not a URI"),
        ("host:1883", "uri", "mqtt://"),
        ("http://host", "uri", "mqtt://"),
        ("amqp://host", "uri", "use mqtt://"),
        ("amqps://host", "uri", "use mqtts://"),
        ("mqtt://", "uri", "host is missing"),
        ("mqtt://user@", "uri", "host is missing"),
        ("mqtt://a_b..c", "uri", "neither a name nor"),
        ("mqtt://host:", "uri", "port behind the colon"),
        ("mqtt://host:0", "uri", "port is 0"),
        ("mqtt://host:65536", "uri", "cannot be read"),
        ("mqtt://host:port", "uri", "cannot be read"),
        ("mqtt://[::1", "uri", "cannot be read"),
        ("mqtt://host/vhost", "uri", "no path"),
        ("mqtt://host#a", "uri", "fragment"),
        ("mqtt://ho st", "uri", "blanks"),
        ("mqtt://host\n", "uri", "blanks"),
        ("ws://host/\ud800", "uri", "surrogate"),
        ("mqtt://%ff@host", "uri", "UTF-8"),
        ("mqtt://a:%00@host", "uri", "U+0000"),
        ("mqtt://" + "a" * 3000, "uri", "bytes"),
        ("mqtt://host?heartbeat", "uri", "KEY=VALUE"),
        ("mqtt://host?colour=red", "uri?colour", "unknown key"),
        ("mqtt://host?heartbeat=1&heartbeat=2", "uri?heartbeat", "twice"),
        ("mqtt://host?heartbeat=", "uri?heartbeat", "empty"),
        ("mqtt://host?heartbeat=65536", "uri?heartbeat", "0..65535"),
        ("mqtt://host?connection_timeout=0", "uri?connection_timeout", "1..600000"),
        ("mqtt://host?verify=verify_peer", "uri?verify", "use mqtts://"),
        ("ws://host?cacertfile=/a", "uri?cacertfile", "use wss://"),
        ("mqtts://host?verify=yes", "uri?verify", "verify_none"),
        ("mqtts://host?auth_mechanism=token", "uri?auth_mechanism", "plain, external"),
        ("mqtt://host?auth_mechanism=external", "uri?auth_mechanism", "use mqtts://"),
        ("mqtts://a:b@host?auth_mechanism=external", "uri?auth_mechanism", "no password"),
    ],
)
def test_a_bad_uri_is_refused_with_its_key(text: object, key: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_uri(text)
    assert caught.value.key == key
    assert part in caught.value.text


def test_a_redacted_uri_has_no_user_password_and_query() -> None:
    uri = parse_uri("wss://user:secret@[::1]:444/path?keyfile=/k&certfile=/c")
    assert uri.redacted() == "wss://[::1]:444/path"
    assert "secret" not in repr(uri)


def test_a_uri_for_readers_hides_the_login_and_cannot_be_written_back() -> None:
    shown = parse_uri("wss://user:secret@[::1]:444/path?keyfile=/k&certfile=/c").shown()
    assert shown == "wss://***@[::1]:444/path?keyfile=/k&certfile=/c"
    with pytest.raises(DefinitionError, match="not shown; write them"):
        parse_uri(shown)
    assert parse_uri("mqtt://host").shown() == "mqtt://host:1883"


@given(st.text(max_size=60), st.sampled_from(["mqtt://", "mqtts://u:SECRETWORD@", "ws://SECRETWORD@", "wss://"]))
def test_a_refused_uri_is_not_quoted(rest: str, start: str) -> None:
    try:
        told = parse_uri(start + rest).redacted()
    except DefinitionError as error:
        told = str(error)
    assert "SECRETWORD" not in told


def test_options_of_the_query_have_units() -> None:
    uri = parse_uri("mqtts://host?heartbeat=7&connection_timeout=2500&auth_mechanism=external")
    assert (uri.heartbeat, uri.connection_timeout, uri.is_external) == (7, 2.5, True)
    plain = parse_uri("mqtts://host")
    assert (plain.heartbeat, plain.connection_timeout, plain.is_external) == (None, None, False)
