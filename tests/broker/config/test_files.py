"""The files of configs/, the default file of the Go broker, and the generated documentation."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from broker.config.document import configuration_markdown, default_yaml
from broker.config.loader import load, load_bytes
from broker.config.schema import walk
from broker.config.setting import Section, Sections
from broker.config.settings import Settings
from broker.config.settings_listeners import ApiListener

ROOT: Final = Path(__file__).resolve().parents[3]
CONFIGS: Final = sorted((ROOT / "configs").glob("*.yml"))

SECRETS: Final = {
    "plugins.auth.jwt.secret": "plugin_order: [auth]\nplugins: {auth: {jwt: {algorithms: [HS256], secret: '%s'}}}\n",
    "plugins.auth.webhook.url": "plugin_order: [auth]\nplugins: {auth: {webhook: {url: 'https://h/a?code=%s'}}}\n",
    "persistence.redis.password": "persistence: {redis: {password: '%s'}}\n",
    "plugins.federation.encrypt_keys": "plugin_order: [federation]\nplugins: {federation: {encrypt_keys: ['%s']}}\n",
    "plugins.links.upstreams.north": (
        "plugin_order: [links]\n"
        "plugins: {links: {domain: d, upstreams: {north: {uri: ['mqtt://u:%s@north.example.com']}}}}\n"
    ),
}
SECRET: Final = base64.b64encode(bytes(range(32, 64))).decode().replace("/", "a").replace("+", "a")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter; those of pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        if not all(each.stat().st_mode & 0o001 for each in folder.parents):
            pytest.skip(f"not everybody may enter {folder}: set TMPDIR to a folder that is open to all")
        yield folder


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_in_a_file_that_everybody_reads_draws_a_warning(
    key: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = open_folder / "gmqttd.yml"
    for variable, mode, folder_mode, is_warned in (
        *(("", 0o644, 0o755, True), ("", 0o640, 0o755, False), ("", 0o644, 0o750, False)),
        *(("${SOME_SECRET}", 0o644, 0o755, False), ("${SOME_OTHER:-%s}", 0o644, 0o755, True)),
    ):
        monkeypatch.setenv("SOME_SECRET", SECRET)
        path.write_text(SECRETS[key] % (variable.replace("%s", SECRET) or SECRET))
        path.chmod(mode)
        open_folder.chmod(folder_mode)
        found = load(path)
        assert found.settings is not None, [str(fault) for fault in found.faults]
        assert [each.key for each in found.warnings if "read this secret" in each.text] == ([key] if is_warned else [])
        assert SECRET not in " ".join(str(each) for each in found.warnings)


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [
        ("mqtt: {}\npersistence: {redis: {password: '${P}'}}\n", False),
        ('persistence: {redis: {password: "\\x6dqtt"}}\n', True),
        ("persistence:\n  redis:\n    password: >-\n      mqtt\n", True),
    ],
)
def test_a_secret_is_one_of_the_values_of_the_file(
    text: str, is_warned: bool, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a part of another one, nor of a key, and however it is written."""
    monkeypatch.setenv("P", "mqtt")
    path = open_folder / "gmqttd.yml"
    path.write_text(text)
    path.chmod(0o644)
    found = load(path)
    assert found.settings is not None, [str(fault) for fault in found.faults]
    assert any("read this secret" in each.text for each in found.warnings) is is_warned


# The default file of the Go broker without its comments.
GO_FILE: Final = """\
listeners:
  - address: ":1883"
  - address: ":8883"
    websocket: {path: "/"}
api:
  grpc:
    - address: "tcp://127.0.0.1:8084"
    - address: "unix:///var/run/gmqttd.sock"
  http:
    - {address: "tcp://127.0.0.1:8083", map: "tcp://127.0.0.1:8084"}
mqtt:
  session_expiry: 2h
  session_expiry_check_timer: 20s
  message_expiry: 2h
  inflight_expiry: 30s
  max_packet_size: 268435456
  server_receive_maximum: 100
  max_keepalive: 300
  topic_alias_maximum: 10
  subscription_identifier_available: true
  wildcard_subscription_available: true
  shared_subscription_available: true
  maximum_qos: 2
  retain_available: true
  max_queued_messages: 1000
  max_inflight: 100
  queue_qos0_messages: true
  delivery_mode: onlyonce
  allow_zero_length_clientid: true
persistence:
  type: memory
  redis: {addr: "127.0.0.1:6379", max_idle: 1000, max_active: 0, idle_timeout: 240s, password: "", database: 0}
topic_alias_manager:
  type: fifo
plugins:
  prometheus: {path: "/metrics", listen_address: ":8082"}
  auth: {hash: md5}
  federation:
    fed_addr: :8901
    advertise_fed_addr: :8901
    gossip_addr: :8902
    advertise_gossip_addr: :8902
    rejoin_after_leave: false
    snapshot_path:
plugin_order:
  - prometheus
  - admin
  - federation
log:
  level: info
  format: text
  dump_packet: false
"""


def test_all_files_are_there() -> None:
    names = {path.name for path in CONFIGS}
    assert names >= {
        "default_config.yml",
        "single.yml",
        "node1_config.yml",
        "node2_config.yml",
        "join_node3_config.yml",
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_file_of_the_project_loads_without_a_warning(path: Path) -> None:
    result = load(path)
    assert [str(fault) for fault in (*result.faults, *result.warnings)] == []
    assert result.settings is not None


def test_the_default_file_is_the_defaults() -> None:
    assert load(ROOT / "configs/default_config.yml").settings == Settings()


def test_the_default_file_has_every_key_that_is_commented_out() -> None:
    """Lines with "#" and two spaces are a part of the file that waits for a plugin or a feature."""
    text = re.sub(r"^#(?=  )", "", default_yaml(), flags=re.MULTILINE)
    result = load_bytes(text.encode(), "default_config.yml")
    assert {fault.key for fault in result.faults} == {"plugins.auth.password_file", "plugins.auth.allow_anonymous"}
    result = load_bytes(text.replace("plugin_order: []", "plugin_order: [auth]").encode(), "default_config.yml")
    assert result.faults == []
    assert result.settings == replace(Settings(), plugin_order=("auth",))
    assert {"plugins.federation", "plugins.prometheus"} <= {warning.key for warning in result.warnings}


@pytest.mark.parametrize(
    ("name", "node_name", "mqtt", "rest", "grpc", "federation", "gossip", "joins"),
    [
        ("node1_config.yml", "node1", 1883, 8083, 8084, 8901, 8902, ["127.0.0.1:8912"]),
        ("node2_config.yml", "node2", 1884, 8183, 8184, 8911, 8912, ["127.0.0.1:8902"]),
        ("join_node3_config.yml", "node3", 1885, 8283, 8284, 8931, 8932, []),
    ],
)
def test_the_nodes_of_the_walk_through(
    name: str, node_name: str, mqtt: int, rest: int, grpc: int, federation: int, gossip: int, joins: list[str]
) -> None:
    settings = load(ROOT / "configs" / name).settings
    assert settings is not None
    node = settings.plugins.federation
    assert settings.plugin_order == ("admin", "federation")
    assert node.node_name == node_name
    assert [str(listener.address) for listener in settings.listeners] == [f":{mqtt}"]
    assert [str(listener.address) for listener in settings.api.http] == [f"127.0.0.1:{rest}"]
    assert [str(listener.address) for listener in settings.api.grpc] == [f"127.0.0.1:{grpc}"]
    assert [listener.map for listener in settings.api.http] == [settings.api.grpc[0].address]
    assert str(node.fed_addr) == f"127.0.0.1:{federation}"
    assert str(node.gossip_addr) == f"127.0.0.1:{gossip}"
    assert [str(address) for address in node.retry_join] == joins


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("plugin_order: [admin]\n", ["127.0.0.1:1883"]),
        ("plugin_order: [auth]\nlisteners:\n", [":1883"]),
        ("listeners: [{address: ':1'}, {address: '127.0.0.1:2'}]\n", [":1", "127.0.0.1:2"]),
        ("plugin_order: [auth]\nlisteners: [{address: '127.0.0.1:1883'}]\n", ["127.0.0.1:1883"]),
    ],
)
def test_only_clients_of_this_machine_connect_unless_the_file_says_more(text: str, addresses: list[str]) -> None:
    settings = load_bytes(text.encode(), "x.yml").settings
    assert settings is not None
    assert [str(listener.address) for listener in settings.listeners] == addresses


def test_the_default_file_of_the_go_broker_loads_with_warnings_only() -> None:
    result = load_bytes(GO_FILE.encode(), "gmqttd.yml")
    assert result.faults == []
    assert {warning.key for warning in result.warnings} == {"plugins.auth"}
    assert result.settings is not None
    assert [str(listener.address) for listener in result.settings.listeners] == [":1883", ":8883"]
    assert result.settings.mqtt == Settings().mqtt
    assert result.settings.store_type == "memory"


def test_documentation_and_default_file_are_up_to_date() -> None:
    """Otherwise: scripts/build_docs."""
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == configuration_markdown()
    assert (ROOT / "configs/default_config.yml").read_text(encoding="utf-8") == default_yaml()


def test_every_key_is_documented() -> None:
    text = configuration_markdown()
    for path, key in walk(Settings):
        assert len(key.setting.doc) > 3, path
        assert f"| `{key.name}` |" in text
    for path, key in walk(Settings):
        if isinstance(key.setting.kind, Section | Sections) or not key.setting.is_extension:
            continue
        assert path.startswith(
            (
                "data_dir",
                "workers",
                "persistence.",
                "listeners[].",
                "mqtt.",
                "plugins.auth.",
                "plugins.event_log.",
                "plugins.federation.",
                "plugins.links.",
                "plugins.kafka.",
                "plugins.prometheus.tls.",
                "log.",
                "api.",
            )
        ), path


def test_an_address_of_the_api_is_required() -> None:
    with pytest.raises(TypeError):
        ApiListener()  # type: ignore[call-arg]
