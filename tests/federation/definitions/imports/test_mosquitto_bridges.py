"""Bridges of mosquitto as upstreams and policies: every key of a bridge, and what has no meaning here."""

from __future__ import annotations

import pytest

from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.mosquitto_bridges import import_bridges


def bridge(*lines: str, name: str = "cloud", address: str = "address broker.example.com:1884") -> str:
    return "\n".join([f"connection {name}", address, *lines]) + "\n"


def warnings_of(found: Imported) -> str:
    return "\n".join(found.warnings)


def test_a_bridge_for_both_directions() -> None:
    found = import_bridges(
        "persistence true\n"
        + bridge(
            "topic sensors/# out 1",
            "topic commands/# in 1 site/ eu/",
            "remote_username user",
            "remote_password pass word",
            "remote_clientid site-7",
            "local_username bridge",
            "keepalive_interval 30",
            "restart_timeout 10",
        )
    )
    common = {
        "uri": "mqtt://user:pass%20word@broker.example.com:1884?heartbeat=30",
        "reconnect-delay": 10,
        "local-username": "bridge",
    }
    assert found.upstreams == {
        "cloud": {**common, "consumer-tag": "site-7", "exchange": "eu/commands/# -> site/commands/{#}"},
        "cloud-out": {**common, "consumer-tag": "site-7-out", "direction": "out"},
    }
    assert found.policies == {
        "cloud-1": {
            "pattern": "site/commands/#",
            "apply-to": "topics",
            "priority": 0,
            "definition": {"federation-upstream": "cloud"},
        },
        "cloud-2": {
            "pattern": "sensors/#",
            "apply-to": "topics",
            "priority": 0,
            "definition": {"federation-upstream": "cloud-out"},
        },
    }
    assert found.warnings == []


def test_a_bridge_out_has_one_upstream() -> None:
    found = import_bridges(bridge("topic a out 1"))
    assert found.upstreams == {"cloud": {"uri": "mqtt://broker.example.com:1884", "direction": "out"}}
    assert found.policies["cloud"]["definition"] == {"federation-upstream": "cloud"}


def test_topics_of_several_bridges_belong_to_all_of_them() -> None:
    found = import_bridges(bridge("topic # in 1", name="a") + bridge("topic x/# both 1 here/ there/", name="b"))
    assert {name: (value["pattern"], value["priority"]) for name, value in found.policies.items()} == {
        "a": ("#", 0),
        "b": ("here/x/#", 1),
    }
    assert found.policies["b"]["definition"] == {"federation-upstream-set": "b"}
    assert found.sets == {"b": [{"upstream": "a"}, {"upstream": "b"}, {"upstream": "b-out"}]}


@pytest.mark.parametrize(
    ("lines", "ack_mode"),
    [(["topic a in"], "no-ack"), (["topic a in 1"], None), (["topic a in 0", "topic b in 1"], None)],
)
def test_qos_0_is_received_without_acknowledgement(lines: list[str], ack_mode: str | None) -> None:
    assert import_bridges(bridge(*lines)).upstreams["cloud"].get("ack-mode") == ack_mode


def test_several_addresses() -> None:
    found = import_bridges(bridge("addresses b:1 ::1:1885", "topic a in 1", "round_robin true", address="address a"))
    assert found.upstreams["cloud"]["uri"] == ["mqtt://a:1883", "mqtt://b:1", "mqtt://[::1]:1885"]
    assert found.warnings == []
    found = import_bridges(bridge("topic a in 1", "round_robin false", address="address a b"))
    assert "the first address is not preferred" in warnings_of(found)
    assert "round_robin has no effect" in warnings_of(found)


def test_tls() -> None:
    found = import_bridges(
        bridge("topic a in 1", "bridge_cafile /ca.pem", "bridge_certfile /c.pem", "bridge_keyfile /k.pem")
    )
    assert found.upstreams["cloud"] == {
        "uri": "mqtts://broker.example.com:1884",
        "tls": {"cacertfile": "/ca.pem", "certfile": "/c.pem", "keyfile": "/k.pem"},
    }


def test_a_clean_session_expires_at_once() -> None:
    assert import_bridges(bridge("topic a in 1", "cleansession true")).upstreams["cloud"]["expires"] == 1000
    assert "expires" not in import_bridges(bridge("topic a in 1", "cleansession false")).upstreams["cloud"]


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("bridge_insecure true", "the name in the certificate is verified here"),
        ("bridge_capath /certs", "bridge_capath has no effect"),
        ("try_private true", "try_private has no effect: origin and path"),
        ("notifications true", "notifications has no effect"),
        ("notification_topic x", "notification_topic has no effect"),
        ("start_type lazy", "start_type has no effect"),
        ("restart_timeout 5 30", "the second number has no effect"),
        ("bridge_outgoing_retain false", "retained messages stay retained"),
        ("bridge_protocol_version mqttv311", "a link speaks MQTT 5"),
        ("local_clientid x", "local_clientid has no effect"),
        ("log_type all", "log_type is left out: it is no key of a bridge"),
        ("topic b in 2", "QoS 2 crosses a link as QoS 1"),
        ("topic b in 0", "messages keep the QoS they have"),
        ("topic b both 1", "sends back what it got"),
    ],
)
def test_lines_that_warn_name_line_and_bridge(line: str, warning: str) -> None:
    (found,) = import_bridges(bridge("topic a in 1", line)).warnings
    assert found.startswith('line 4 (connection "cloud"): ')
    assert warning in found


@pytest.mark.parametrize(
    "line", ["round_robin true", "start_type automatic", "notifications false", "bridge_insecure false"]
)
def test_settings_of_a_link_are_silent(line: str) -> None:
    assert import_bridges(bridge("topic a in 1", line)).warnings == []


def test_other_lines_of_the_file_are_ignored() -> None:
    found = import_bridges(
        "include_dir /etc/x\nuser mosquitto\n" + bridge("topic a in 1") + "listener 1\nsocket_domain ipv4\n"
    )
    assert found.warnings == ["line 1: include_dir: the files there are not read; import them one by one"]


def test_a_bridge_without_topics_warns() -> None:
    found = import_bridges(bridge())
    assert list(found.upstreams) == ["cloud"]
    assert "it has no topic" in warnings_of(found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("listener 1883", "the file has no bridge"),
        ("connection a\ntopic b in", 'line 1: connection "a" has no address'),
        (bridge(address="address host:port"), "line 2: address is HOST or HOST:PORT"),
        (bridge(address="address host:99999"), 'upstream "cloud": uri: host and port cannot be read'),
        (bridge("bridge_psk 00"), "line 3: bridge_psk: TLS with a pre-shared key is not possible"),
        (bridge("restart_timeout soon"), "line 3: restart_timeout is not a whole number of seconds"),
        (bridge("keepalive_interval x"), "line 3: keepalive_interval is not a whole number of seconds"),
        (bridge("remote_username"), "line 3: remote_username has no value"),
        (bridge("topic $SYS/# in"), "topics that begin with $, which are not federated"),
    ],
)
def test_faults_name_the_place(text: str, fault: str) -> None:
    with pytest.raises(ImportFault) as caught:
        import_bridges(text)
    assert fault in str(caught.value)
