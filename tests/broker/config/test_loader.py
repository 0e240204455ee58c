"""The loader: every kind of bad file gets a fault with line, key and what would be right."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.addresses import Address
from broker.config.loader import FAULTS_MAX, FILE_BYTES_MAX, LoadResult, load, load_bytes
from broker.config.printer import HIDDEN, changed_keys, effective_yaml
from broker.config.settings import LogSettings, Settings
from broker.config.settings_listeners import ListenerSettings
from wording import check_each_named, check_named

MINIMUM = "log: {level: info}\n"


def read(text: str, allow_missing: bool = False) -> LoadResult:
    return load_bytes(text.encode(), "x.yml", allow_missing)


def good(text: str) -> Settings:
    result = read(text)
    assert [str(fault) for fault in result.faults] == []
    assert result.settings is not None
    return result.settings


def faults(text: str) -> list[str]:
    result = read(text)
    assert result.settings is None
    return [str(fault) for fault in result.faults]


def warnings(text: str, allow_missing: bool = False) -> list[str]:
    result = read(text, allow_missing)
    assert result.settings is not None, result.faults
    return [str(warning) for warning in result.warnings]


def test_keys_that_are_not_set_have_their_default() -> None:
    assert good(MINIMUM) == Settings()


def test_a_fault_cannot_steer_a_terminal() -> None:
    (fault,) = faults('"\\e[31mred\\a": 1\n')
    assert fault.isprintable()
    assert fault.startswith(r"x.yml:1: \x1b[31mred\x07: unknown key")


def test_keys_without_a_value_are_not_set() -> None:
    text = (
        "mqtt:\nlisteners:\napi: ~\nplugins:\n  federation:\n    node_name:\n    snapshot_path: null\nlog:\n  level:\n"
    )
    assert good(text) == Settings()


# The file; the line and the key that are at fault; the value, and what would be right.
FAULTS: Final = [
    ("mqtt:\n  max_inflight: abc\n", "2: mqtt.max_inflight", '"abc"', "1..65535"),
    ("mqtt:\n\n  max_inflight: 0\n", "3: mqtt.max_inflight", '"0"', "1..65535"),
    ("mqtt: {max_inflight: 1.5}\n", "1: mqtt.max_inflight", '"1.5"', "whole number"),
    ("mqtt: {maximum_qos: 3}\n", "1: mqtt.maximum_qos", '"3"', "0..2"),
    ("mqtt: {session_expiry: 5}\n", "1: mqtt.session_expiry", '"5"', '"5s"'),
    ("mqtt: {session_expiry: -5s}\n", "1: mqtt.session_expiry", '"-5s"', "2h"),
    ("mqtt: {retain_available: 1}\n", "1: mqtt.retain_available", '"1"', "true or false"),
    ("mqtt: {delivery_mode: OnlyOnce}\n", "1: mqtt.delivery_mode", '"OnlyOnce"', "onlyonce, overlap"),
    (
        "mqtt: {shared_subscription_strategy: sticky}\n",
        "1: mqtt.shared_subscription_strategy",
        '"sticky"',
        "local_first, round_robin, least_inflight, hash_topic, hash_clientid",
    ),
    ("mqtt: {max_queued_bytes: lots}\n", "1: mqtt.max_queued_bytes", '"lots"', "64KiB"),
    ("mqtt: {max_queued_bytes: 1}\n", "1: mqtt.max_queued_bytes", '"1"', "1KiB"),
    ("mqtt: {max_inflght: 3}\n", "1: mqtt.max_inflght", "unknown", "mqtt.max_inflight"),
    ("node_name: a\n", "1: node_name", "unknown", "plugins.federation.node_name"),
    ("mqtt: 5\n", "1: mqtt", '"5"', "session_expiry"),
    ("log: [a]\n", "1: log", "a list", "level, format"),
    ("log:\n  level: {a: b}\n", "2: log.level", "a mapping", "debug, info"),
    ("listeners: ':1883'\n", "1: listeners", '":1883"', '"- "'),
    ("listeners:\n  - :1883\n", "2: listeners[0]", '":1883"', 'address: ":1883"'),
    ("listeners:\n  - {}\n", "2: listeners[0].address", "missing", 'address: ":1883"'),
    ("listeners: [null]\n", "1: listeners[0]", '"null"', 'address: ":1883"'),
    ("listeners:\n  - address: ':x'\n", "2: listeners[0].address", '"x"', "0..65535"),
    ("plugins: {federation: {fed_addr: 'unix:///a'}}\n", "1: plugins.federation.fed_addr", "unix", "HOST:PORT"),
    ("plugins: {federation: {fed_addr: 8901}}\n", "1: plugins.federation.fed_addr", "8901", '":8901"'),
    ("plugins: {federation: {retry_join: 'a:1'}}\n", "1: plugins.federation.retry_join", '"a:1"', "list"),
    ("plugins: {federation: {retry_join: ['a:0']}}\n", "1: plugins.federation.retry_join[0]", "a:0", "port 0"),
    ('plugins: {federation: {node_name: "a\\nb"}}\n', "1: plugins.federation.node_name", "a", "128 bytes"),
    ("plugins: {federation: {node_name: ' '}}\n", "1: plugins.federation.node_name", '" "', "128 bytes"),
    ("plugin_order: [admn]\n", "1: plugin_order[0]", '"admn"', "admin"),
    ("plugin_order:\n- zz\n", "2: plugin_order[0]", '"zz"', "admin, auth"),
    ("plugins: {zz: {a: 1}}\n", "1: plugins.zz", "unknown", "auth, event_log"),
    ("listeners: []\n", "1: listeners", "empty", 'address: ":1883"'),
    ("plugin_order:\n- admin\n- admin\n", "3: plugin_order[1]", '"admin"', "already"),
    (
        "api:\n  http:\n  - address: 127.0.0.1:1\n    allowed_hosts: [a.example, 'http://b.example:1']\n",
        "4: api.http[0].allowed_hosts",
        '"http://b.example:1"',
        "host name",
    ),
    ("mqtt:\n  max_inflight: 5\n  max_inflight: 6\n", "3: mqtt.max_inflight", "already", "line 2"),
    ("mqtt:\n  max_queued_messages: 5\n  max_inflight: 6\n", "3: mqtt.max_inflight", "6", "more than"),
    (
        "listeners:\n  - address: ':1883'\n  - address: '127.0.0.1:1883'\n",
        "3: listeners[1].address",
        '"127.0.0.1:1883"',
        "listeners[0].address",
    ),
    (
        "plugin_order: [federation]\nplugins:\n  federation:\n    gossip_addr: :8901\n",
        "4: plugins.federation.gossip_addr",
        '":8901"',
        "plugins.federation.fed_addr",
    ),
]


@pytest.mark.parametrize(("text", "key", "value", "right"), FAULTS)
def test_a_fault_names_line_key_and_remedy(text: str, key: str, value: str, right: str) -> None:
    (found,) = faults(text)
    assert found.startswith(f"x.yml:{key}: ")
    assert value in found
    assert right in found


@pytest.mark.parametrize("text", ["? [a]\n: b\n", "<<: 5\nlog: {}\n"])
def test_a_key_that_is_none_is_named_by_its_line(text: str) -> None:
    (found,) = faults(text)
    assert found.startswith("x.yml:1: ")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "x.yml: the file sets nothing"),
        (b"# only a comment\n", "x.yml: the file sets nothing"),
        (b"\xef\xbb\xbf", "x.yml: the file sets nothing"),
        (b"just text\n", "x.yml:1: this is not a mapping of keys"),
        (b"- a\n", "x.yml:1: this is not a mapping of keys"),
        (b"a: [1, 2\nb: 3\n", "x.yml:2: this is not YAML"),
        (b"log:\n\tlevel: info\n", "x.yml:2: this is not YAML: column 1: a tab stands where YAML takes only spaces"),
        (b"a: 1\n---\nb: 2\n", "this is not YAML"),
        (b"a: *nobody\n", "x.yml:1: this is not YAML"),
        (b"a: 1\nb: \xff\n", "x.yml:2: the byte 0xff is not UTF-8 text"),
        (b"a: 1\nb: \x00\n", "x.yml:2: this is not YAML: the character U+0000"),
        (b"\x7fELF\x02\x01", "x.yml:1: this is not YAML"),
        (b"[" * 5000, "x.yml"),
        (b"a: " * 3, "x.yml:1: this is not YAML"),
        (b" " * (FILE_BYTES_MAX + 1), "has more than"),
    ],
)
def test_a_file_that_is_no_configuration(data: bytes, fault: str) -> None:
    result = load_bytes(data, "x.yml")
    assert result.settings is None
    assert len(result.faults) == 1
    assert fault in str(result.faults[0])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def only_fault(path: Path) -> str:
        result = load(path)
        assert result.settings is None
        (fault,) = result.faults
        return str(fault)

    check_named(only_fault(tmp_path / "none.yml"), [f"{tmp_path}/none.yml: ", "no such file", "-c FILE"])
    assert "this is a directory" in only_fault(tmp_path)
    (tmp_path / "file").write_text("")
    assert "cannot be read" in only_fault(tmp_path / "file" / "below.yml")
    assert "cannot be read" in str(load("nul\0.yml").faults[0])
    secret = tmp_path / "secret.yml"
    secret.write_text(MINIMUM)
    secret.chmod(0)
    if not os.access(secret, os.R_OK):  # root reads it all the same
        assert "may not read" in only_fault(secret)


def test_all_faults_are_told_in_the_order_of_their_lines() -> None:
    found = faults("mqtt:\n  max_inflight: a\nlog:\n  level: b\n  nothing: c\nlisteners: 5\n")
    assert [fault.split(":")[1] for fault in found] == ["2", "4", "5", "6"]


def test_the_number_of_faults_is_bounded() -> None:
    found = faults("".join(f"wrong{i}: 1\n" for i in range(FAULTS_MAX + 7)))
    assert len(found) == FAULTS_MAX + 1
    assert found[-1] == "x.yml: and 7 more"


def test_aliases_that_multiply_are_bounded() -> None:
    text = "api:\n  grpc: &a [" + ", ".join(["{address: ':0'}"] * 1000) + "]\n  http: *a\n"
    assert len(good(text).api.http) == 1000
    listener = "&l {address: ':0'}"
    many = f"listeners: [{listener}" + ", *l" * 1000 + "]\n"
    assert "at most 1000" in faults(many)[0]


def test_anchors_and_merges_work() -> None:
    text = "mqtt: &m {max_inflight: 7}\nlog: {<<: {level: debug, format: json}, level: warn}\n"
    assert good(text).log == LogSettings(level="warn", format="json")


def test_scalars_are_read_as_their_key_wants_them() -> None:
    settings = good(
        "plugins:\n  federation:\n    node_name: 007\n    fed_addr: 127.0.0.1\n    gossip_addr: '[::1]'\n"
        "    advertise_fed_addr: ''\n    retry_join: [':8912', other]\n    outbox_bytes_max: 1MiB\n"
        "mqtt:\n  max_packet_size: 0x1000\n  max_queued_messages: 1_000\n  queue_qos0_messages: off\n"
        "  session_expiry: 1h30m\n  connect_timeout: 500ms\n"
    )
    federation = settings.plugins.federation
    assert federation.node_name == "007"
    assert federation.fed_addr == Address("tcp", "127.0.0.1", 8901)
    assert federation.gossip_addr == Address("tcp", "::1", 8902)
    assert federation.advertise_fed_addr is None
    assert federation.retry_join == (Address("tcp", "127.0.0.1", 8912), Address("tcp", "other", 8902))
    assert federation.outbox_bytes_max == 2**20
    assert settings.mqtt.max_packet_size == 4096
    assert settings.mqtt.max_queued_messages == 1000
    assert settings.mqtt.queue_qos0_messages is False
    assert settings.mqtt.session_expiry == 5400.0
    assert settings.mqtt.connect_timeout == 0.5


def test_seeds_are_addresses_names_and_srv_records() -> None:
    text = "plugin_order: [federation]\nplugins: {federation: {retry_join: [10.0.0.2, 'n2:9', 'srv+_gossip._tcp.x']}}\n"
    seeds = good(text).plugins.federation.retry_join
    assert [str(seed) for seed in seeds] == ["10.0.0.2:8902", "n2:9", "srv+_gossip._tcp.x"]
    refused = faults(text.replace("_gossip._tcp.x", "a b"))
    assert "retry_join[2]" in refused[0]


def test_an_empty_node_name_is_the_host_name() -> None:
    assert good("plugins: {federation: {node_name: ''}}\n") == Settings()


def test_both_spellings_of_the_session_timer() -> None:
    assert good("mqtt: {session_expiry_check_interval: 7s}\n").mqtt.session_expiry_check_timer == 7.0
    text = "mqtt: {session_expiry_check_interval: 7s, session_expiry_check_timer: 8s}\n"
    assert "already set" in faults(text)[0]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("plugins: {prometheus: {path: /m}}\n", "plugins.prometheus: plugin_order does not name prometheus"),
        ("plugins: {auth: {hash: bcrypt}}\n", "plugins.auth: plugin_order does not name auth"),
        ("config_dir: /etc/gmqtt\n", "config_dir: this key has no effect, here as in the Go broker"),
        ("mqtt: {max_awaiting_rel: 100}\n", "mqtt.max_awaiting_rel: this key has no effect"),
        ("plugins: {admin: {http: {enable: true}}}\n", "plugins.admin: this key has no effect"),
        (
            "plugins:\n  federation: {node_name: a}\n",
            "x.yml:2: plugins.federation: plugin_order does not name federation, so these keys have no effect",
        ),
    ],
)
def test_missing_features_are_accepted_with_a_warning(text: str, warning: str) -> None:
    (found,) = warnings(text)
    assert warning in found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("plugins: {auth: {hash: argon2}}", 'plugins.auth.hash: "argon2" is not one of'),
        (
            "plugins: {auth: {new_hash: md5, hash: sha256}}",
            "plugins.auth.new_hash: md5 does not name itself in the file",
        ),
    ],
)
def test_hashes_of_passwords_must_be_readable_again(text: str, fault: str) -> None:
    (found,) = faults(f"plugin_order: [auth]\n{text}\n")
    assert fault in found


def test_a_node_does_not_start_without_a_plugin_that_its_file_asks_for() -> None:
    text, fault = "plugin_order: [quota]\n", 'plugin_order[0]: no plugin "quota" is installed'
    (found,) = faults(text)
    assert fault in found
    assert found.endswith("; --allow-missing starts without it")
    (warning,) = warnings(text, allow_missing=True)
    assert fault in warning
    assert "--allow-missing" not in warning


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["mqtt", "log", "listeners", "address", "level", "x"]), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_any_tree_is_settings_or_faults(tree: object) -> None:
    import yaml

    result = load_bytes(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass"), "x.yml")
    assert (result.settings is None) == bool(result.faults)


@given(st.binary(max_size=200))
def test_any_bytes_are_settings_or_faults(data: bytes) -> None:
    result = load_bytes(data, "x.yml")
    assert (result.settings is None) == bool(result.faults)


def test_printed_settings_are_read_as_the_same_ones() -> None:
    settings = good(
        "listeners:\n- address: '[::1]:0'\n- {address: ':1884', websocket: {path: /c}}\n"
        "api: {grpc: [{address: unix:///run/a.sock}], http: [{address: ':8083', map: 'tcp://127.0.0.1:8084'}]}\n"
        "mqtt: {session_expiry: 1.5h, publisher_hold_max: 0, max_queued_bytes: 12345}\n"
        "plugins: {federation: {node_name: 'true', retry_join: ['a:1', '[::1]:2'], advertise_fed_addr: 'x:3'}}\n"
        "plugin_order: [federation]\npid_file: /tmp/x y.pid\nlog: {dump_packet: true}\n"
    )
    assert good(effective_yaml(settings)) == settings
    assert good(effective_yaml(Settings())) == Settings()


def test_secrets_are_neither_printed_nor_told_in_faults() -> None:
    text = effective_yaml(good("persistence: {redis: {password: hunter2}}\n"))
    assert "hunter2" not in text
    assert f"password: '{HIDDEN}'" in text
    (fault,) = faults('persistence: {redis: {password: "hunter2\\n"}}\n')
    assert "hunter2" not in fault


@pytest.mark.parametrize(
    "url", ["https://u.example.com/a", "https://u.example.com/a?code=hunter2&x=1", "http://h?hunter2"]
)
def test_the_query_of_a_url_is_not_printed(url: str) -> None:
    settings = good(f"plugin_order: [auth]\nplugins: {{auth: {{webhook: {{url: '{url}'}}}}}}\n")
    text = effective_yaml(settings)
    assert "hunter2" not in text
    begin = url.partition("?")[0]
    assert good(text).plugins.auth.webhook.url == (url if url == begin else f"{begin}?{HIDDEN}")


def test_changed_keys() -> None:
    old = Settings()
    new = replace(
        old,
        mqtt=replace(old.mqtt, max_inflight=5),
        log=LogSettings(level="debug"),
        listeners=(*old.listeners, ListenerSettings(Address("tcp", "", 0))),
    )
    assert changed_keys(old, old) == []
    assert changed_keys(old, new) == ["listeners", "mqtt.max_inflight", "log.level"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mqtt: {maximum_qos: 2}\n", "memory"),
        ("data_dir: /var/lib/gmqttd\n", "sqlite"),
        ("data_dir: /var/lib/gmqttd\npersistence: {type: memory}\n", "memory"),
        ("data_dir: /var/lib/gmqttd\npersistence: {type: redis}\n", "redis"),
        ("persistence: {type: redis, redis: {addr: '127.0.0.1:6379', max_idle: 1000}}\n", "redis"),
    ],
)
def test_the_type_of_the_store_follows_the_data_folder(text: str, expected: str) -> None:
    assert good(text).store_type == expected
    assert warnings(text) == []


def test_sqlite_needs_a_data_folder() -> None:
    (fault,) = faults("persistence: {type: sqlite}\n")
    check_named(fault, ["persistence.type: ", "sqlite", "data_dir: "])


ENTRIES = """\
plugin_order: [links]
plugins:
  links:
    domain: berlin
    upstreams:
      north: {uri: "mqtts://user:sesame@north.example.com", max-hops: 2, queue-type: quorum}
      south:
        uri: [mqtt://a.example.com, mqtt://b.example.com]
    sets: {near: [{upstream: north, max-hops: 1}]}
    policies:
      sensors: {pattern: sensors/#, definition: {federation-upstream-set: near}}
"""


def test_entries_are_plain_data_by_their_names() -> None:
    links = good(ENTRIES).plugins.links
    upstreams = dict(links.upstreams)
    assert upstreams["north"]["max-hops"] == 2
    assert upstreams["south"] == {"uri": ["mqtt://a.example.com", "mqtt://b.example.com"]}
    assert dict(links.sets) == {"near": [{"upstream": "north", "max-hops": 1}]}
    check_each_named(warnings(ENTRIES), [("x.yml:6: plugins.links.upstreams.north: ", "queue-type", "no effect")])


def test_entries_are_printed_without_their_secrets() -> None:
    text = effective_yaml(good(ENTRIES))
    assert "sesame" not in text
    assert f"uri: '{HIDDEN}'" in text
    assert "max-hops: 2" in text


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (
            "upstreams: [a]",
            "x.yml:1: plugins.links.upstreams: a list is not a mapping of names to upstreams; for example {north: ",
        ),
        ("upstreams: {a: 1}", "plugins.links.upstreams.a: "),
        ("upstreams: {a: {}}", "plugins.links.upstreams.a.uri: this key is missing"),
        (
            "upstreams: {a: {uri: mqtt://h, max-hop: 1}}",
            "plugins.links.upstreams.a.max-hop: unknown key; the nearest known one",
        ),
        ("upstreams: {a: {uri: mqtt://h}, a: {uri: mqtt://h}}", "plugins.links.upstreams.a: this name is already set"),
        ("upstreams: {a: !!python/name:os.system ''}", "plugins.links.upstreams.a: this is not plain YAML"),
        ("upstreams: {a/b: {uri: mqtt://h}}", 'plugins.links.upstreams.a/b.name: "a/b" is no name'),
        ("sets: {all: [{upstream: a}]}", "plugins.links.sets.all.name: "),
        ("policies: {p: {pattern: a/#/b, definition: {federation-upstream: a}}}", "plugins.links.policies.p.pattern: "),
        (
            "policies: {p: {pattern: '$SYS/#', definition: {federation-upstream: a}}}",
            "plugins.links.policies.p.pattern: ",
        ),
    ],
)
def test_faulty_entries_are_named_with_their_key(body: str, fault: str) -> None:
    (found,) = faults(f"plugins: {{links: {{{body}}}}}\n")
    assert fault in found


def test_a_domain_that_no_header_can_have_is_a_fault() -> None:
    (found,) = faults("plugin_order: [links]\nplugins: {links: {domain: a/b}}\n")
    assert "plugins.links.domain: domain name 'a/b': 1 to 64 letters" in found


def test_a_set_of_the_file_names_upstreams_of_the_file() -> None:
    text = ENTRIES.replace(
        "[{upstream: north, max-hops: 1}]", "[{upstream: north, tls: {certfile: /a}}, {upstream: gone}]"
    )
    near = "x.yml:9: plugins.links.sets.near: "
    check_each_named(faults(text), [(f"{near}[0].tls: ", "certfile", "keyfile"), (f"{near}[1].upstream: ", '"gone"')])


def test_policies_for_queues_have_keys_of_their_own() -> None:
    shared = ENTRIES.replace("pattern: sensors/#", "pattern: $share/g/a")
    assert read(shared.replace("definition: {", "definition: {max-length: 10, ")).settings is not None
    (found,) = faults(ENTRIES.replace("definition: {", "definition: {max-length: 10, "))
    assert found.startswith("x.yml:11: plugins.links.policies.sensors.definition.max-length: unknown key")
