"""The old federation section of a rabbitmq.config: every key of the plugin's guide."""

from __future__ import annotations

import pytest

from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.rabbitmq_config import import_config
from rabbitmq_guide import GUIDE
from wording import check_each_named, check_named


def section(connections: str = '{"up", [{host, "h"}, {username, "u"}, {password, "p"}]}', rest: str = "") -> str:
    return f"[{{rabbit, []}}, {{rabbitmq_federation, [{{connections, [{connections}]}}{rest}]}}]."


def warnings_of(found: Imported) -> str:
    return "\n".join(found.warnings)


def test_the_example_of_the_guide() -> None:
    found = import_config(GUIDE)
    assert found.upstreams == {
        "upstream-server": {
            "uri": "mqtts://myusername:secret@upstream-server?heartbeat=1",
            "prefetch-count": 1000,
            "reconnect-delay": 5,
            "expires": 30000,
            "message-ttl": 10000,
            "tls": {
                "cacertfile": "/path/to/cacert.pem",
                "certfile": "/path/to/cert.pem",
                "keyfile": "/path/to/key.pem",
                "verify": "verify_peer",
            },
            "local-username": "myusername",
        },
        "another-server": {
            "uri": "mqtt://guest:guest@another-server",
            "reconnect-delay": 1,
            "local-username": "myusername",
        },
    }
    assert found.sets == {
        "my-upstreams": [
            {"upstream": "upstream-server", "max-hops": 2, "exchange": "my-upstream-x/# -> my-exchange/{#}"},
            {"upstream": "another-server"},
        ]
    }
    assert found.policies == {
        "my-exchange": {
            "pattern": "my-exchange/#",
            "apply-to": "topics",
            "priority": 0,
            "definition": {"federation-upstream-set": "my-upstreams"},
        }
    }
    for warning, (line, word) in zip(
        found.warnings,
        [(29, "ha_policy"), (35, "fail_if_no_peer_cert"), (38, "no username"), (41, "plugins.links.domain: my-server")],
        strict=True,
    ):
        assert warning.startswith(f"line {line}: ")
        assert word in warning


def test_a_password_is_in_no_warning() -> None:
    assert "secret" not in warnings_of(import_config(GUIDE))


def test_login_by_certificate() -> None:
    options = '{ssl_options, [{cacertfile, "ca"}, {certfile, "c"}, {keyfile, "k"}, {verify, verify_none}]}'
    found = import_config(
        section(f'{{"up", [{{host, "h"}}, {{protocol, "amqps"}}, {{mechanism, \'EXTERNAL\'}}, {options}]}}')
    )
    assert found.upstreams["up"]["uri"] == "mqtts://h?auth_mechanism=external"
    assert found.upstreams["up"]["tls"]["verify"] == "verify_none"
    assert found.warnings == []


def test_the_atom_none_leaves_a_key_out() -> None:
    keys = ", ".join(
        f"{{{key}, none}}" for key in ("heartbeat", "expires", "message_ttl", "ha_policy", "prefetch_count")
    )
    found = import_config(section(f'{{"up", [{{host, "h"}}, {{username, "u"}}, {{password, "p"}}, {keys}]}}'))
    assert found.upstreams["up"] == {"uri": "mqtt://u:p@h", "reconnect-delay": 1}


def test_virtual_hosts_become_prefixes() -> None:
    found = import_config(
        section(
            '{"up", [{host, "h"}, {username, "u"}, {password, "p"}, {virtual_host, "/remote"}]}',
            ', {upstream_sets, [{"s", [[{connection, "up"}]]}]}'
            ', {exchanges, [[{exchange, "x"}, {virtual_host, "local"}, {upstream_set, "s"}]]}',
        )
    )
    assert found.policies["x"]["pattern"] == "local/x/#"
    assert found.sets["s"] == [{"upstream": "up", "exchange": "remote/x/# -> local/x/{#}"}]


def test_exchanges_with_other_mappings_have_sets_of_their_own() -> None:
    found = import_config(
        section(
            rest=', {upstream_sets, [{"s", [[{connection, "up"}, {exchange, "far"}]]}]}'
            ', {exchanges, [[{exchange, "x"}, {upstream_set, "s"}], [{exchange, "y"}, {upstream_set, "s"}]]}',
        )
    )
    assert found.sets == {
        "s": [{"upstream": "up", "exchange": "far/# -> x/{#}"}],
        "s:y": [{"upstream": "up", "exchange": "far/# -> y/{#}"}],
    }
    assert found.policies["y"]["definition"] == {"federation-upstream-set": "s:y"}


def test_the_topics_of_one_exchange_below_those_of_another_have_the_higher_priority() -> None:
    exchanges = ", ".join(f'[{{exchange, "{name}"}}, {{upstream_set, "s"}}]' for name in ("amq.topic", "a", "a.b"))
    found = import_config(
        section(rest=f', {{upstream_sets, [{{"s", [[{{connection, "up"}}]]}}]}}, {{exchanges, [{exchanges}]}}')
    )
    assert [(policy["pattern"], policy["priority"]) for policy in found.policies.values()] == [
        ("#", 0),
        ("a/#", 1),
        ("a/b/#", 2),
    ]


@pytest.mark.parametrize(
    ("exchange", "parts"),
    [
        ('{type, "direct"}', ["type", "direct", "topic"]),
        ("{durable, false}", ["durable"]),
        ("{internal, true}", ["internal"]),
        ("{auto_delete, true}", ["auto_delete"]),
        ("{typ, 1}", ["typ ", "type"]),
    ],
)
def test_keys_of_exchanges_that_warn(exchange: str, parts: list[str]) -> None:
    found = import_config(
        section(
            rest=', {upstream_sets, [{"s", [[{connection, "up"}]]}]}'
            f', {{exchanges, [[{{exchange, "x"}}, {{upstream_set, "s"}}, {exchange}]]}}'
        )
    )
    check_each_named(found.warnings, [['line 1: exchange "x": ', *parts]])


def test_a_set_that_exchanges_name_at_run_time_keeps_its_members() -> None:
    found = import_config(section(rest=', {upstream_sets, [{"s", [[{connection, "up"}, {exchange, "far"}]]}]}'))
    assert found.sets == {"s": [{"upstream": "up"}]}
    check_each_named(found.warnings, [('"s"', "no exchange")])


def test_options_of_tls_without_tls_warn() -> None:
    found = import_config(section('{"up", [{host, "h"}, {username, "u"}, {ssl_options, [{cacertfile, "ca"}]}]}'))
    assert "tls" not in found.upstreams["up"]
    check_named(found.warnings[1], ('"up"', "ssl_options", "amqp"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[{rabbit, []}].", ["line 1", "rabbitmq_federation"]),
        (section('{"up", []}'), ['line 1: connection "up"', "host"]),
        (section('{"up", [{host, "h"}, {protocol, "http"}]}'), ['"up"', "protocol", "amqp, amqps"]),
        (section('{"up", [{host, "h"}, {port, 70000}]}'), ['"up"', "port", "1..65535"]),
        (section('{"up", [{host, "h"}, {mechanism, odd}]}'), ['"up"', "mechanism", "default", "'EXTERNAL'"]),
        (section(rest=', {upstream_sets, [{"s", [[{connection, "no"}]]}]}'), ['"s"', 'connection "no"']),
        (section(rest=', {upstream_sets, [{"s", [[{max_hops, 1}]]}]}'), ['"s"', "connection"]),
        (section(rest=', {exchanges, [[{exchange, "x"}, {upstream_set, "no"}]]}'), ['"x"', 'set "no"']),
        (section(rest=', {exchanges, [[{exchange, "x"}]]}'), ['"x"', "upstream_set"]),
        (section(rest=', {exchanges, [[{upstream_set, "s"}]]}'), ["exchange", "missing"]),
        (section('{"up", [{host, "h"}, {prefetch_count, 0}]}'), ['upstream "up"', "prefetch-count", "0"]),
    ],
)
def test_faults_name_the_place(text: str, parts: list[str]) -> None:
    with pytest.raises(ImportFault) as caught:
        import_config(text)
    check_named(str(caught.value), parts)
