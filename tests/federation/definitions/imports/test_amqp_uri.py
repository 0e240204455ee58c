"""URIs of RabbitMQ as URIs of MQTT."""

from __future__ import annotations

import pytest

from federation.definitions.imports.amqp_uri import from_amqp, login_of, mqtt_uri
from federation.definitions.imports.imported import ImportFault
from federation.definitions.uri import parse_uri


@pytest.mark.parametrize(
    ("text", "uri", "vhost"),
    [
        ("amqp://host", "mqtt://host", None),
        ("amqp://host:5672/", "mqtt://host", None),
        ("amqps://host:5671/%2f", "mqtts://host", "/"),
        ("amqp://u:p%40w@host/sales?heartbeat=10", "mqtt://u:p%40w@host?heartbeat=10", "sales"),
        ("amqp://[::1]:5672", "mqtt://[::1]", None),
        (
            "amqps://h?cacertfile=/ca%20x.pem&verify=verify_none",
            "mqtts://h?cacertfile=%2Fca%20x.pem&verify=verify_none",
            None,
        ),
        ("amqps://u@h?auth_mechanism=EXTERNAL", "mqtts://u@h?auth_mechanism=external", None),
        ("amqp://u:p@h?auth_mechanism=plain", "mqtt://u:p@h", None),
    ],
)
def test_uris(text: str, uri: str, vhost: str | None) -> None:
    found = from_amqp(text, "upstream")
    assert (found.uri, found.vhost, found.warnings) == (uri, vhost, [])
    parse_uri(found.uri)


def test_a_port_that_is_not_the_default_is_kept_with_a_warning() -> None:
    found = from_amqp("amqp://host:5673", "upstream")
    assert found.uri == "mqtt://host:5673"
    assert found.warnings == ["port 5673 is kept, but it speaks AMQP: set the MQTT port of the upstream in its uri"]


def test_keys_without_meaning_warn() -> None:
    found = from_amqp("amqp://host?channel_max=10&depth=2&odd=1&cacertfile=x", "upstream")
    assert found.uri == "mqtt://host"
    assert [warning.split(" ")[0] for warning in found.warnings] == ["channel_max", "depth", "odd", "cacertfile"]


@pytest.mark.parametrize("text", ["http://host", "amqp://", "amqp://h:x", 7, "amqp://u:secret@", "amqp://[secret"])
def test_faults_name_the_upstream_and_no_secret(text: object) -> None:
    with pytest.raises(ImportFault, match=r"^upstream: ") as caught:
        from_amqp(text, "upstream")
    assert "secret" not in str(caught.value)


def test_user_names_and_passwords_are_quoted() -> None:
    assert login_of("a:b", "c@d/e") == "a%3Ab:c%40d%2Fe@"
    assert login_of("a", None) == "a@"
    assert login_of(None, None) == ""
    uri, warnings = mqtt_uri("mqtt", "h", 5672, "a:b", "c@d", [("heartbeat", "5")])
    assert warnings == []
    assert (parse_uri(uri).username, parse_uri(uri).password, parse_uri(uri).heartbeat) == ("a:b", "c@d", 5)
