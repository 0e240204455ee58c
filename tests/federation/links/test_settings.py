"""What `gmqttd check` tells of the plugin `links`: as a start does, which reads the written definitions, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog.testing
from click.testing import CliRunner, Result

from broker.config.loader import load
from broker.server.cli import main
from definitions_node import definitions_node
from federation.definitions.entry import POLICY, UPSTREAM, Entry, canonical
from federation.definitions.shell.stored import FILE, NOT_KEPT
from federation.links.settings import shares_secrets
from wording import check_each_named

DEFINITIONS = """
    upstreams:
      north: {uri: mqtt://user:hunter2@north.example.com, exchange: "eu/# -> {#}"}
      south: {uri: mqtt://south.example.com, exchange: "us/# -> {#}"}
      push: {uri: mqtt://north.example.com, direction: out}
      back: {uri: mqtt://north.example.com}
    policies:
      sensors: {pattern: sensors/#, definition: {federation-upstream-pattern: north|south}}
      gone: {pattern: gone, definition: {federation-upstream: nowhere}}
      both: {pattern: both, definition: {federation-upstream-pattern: push|back}}
      jobs: {pattern: $share/workers/sensors/jobs, definition: {federation-upstream: back}}
"""
KINDS = [
    "a definition has no full effect",
    "a link gets back what it pushes",
    "jobs of a federated queue come as copies, too",
    "topic mappings collide",
]


def check(folder: Path, links: str, rest: str = "") -> Result:
    config = folder / "a.yml"
    config.touch(0o600)  # it has a secret
    config.write_text(f"plugin_order: [links]\nplugins:\n  links:\n    domain: berlin\n{links}\n{rest}")
    return CliRunner().invoke(main, ["check", "-c", str(config)], catch_exceptions=False)


def told(result: Result) -> list[str]:
    return sorted(line.removeprefix("warning: plugins.links: ") for line in result.stderr.splitlines())


async def test_check_and_a_start_warn_of_the_same(tmp_path: Path) -> None:
    result = check(tmp_path, DEFINITIONS)
    settings = load(tmp_path / "a.yml").settings
    assert settings is not None
    with structlog.testing.capture_logs() as lines:
        async with definitions_node(tmp_path / "state", settings.plugins.links.declared()):
            pass
    assert told(result) == sorted(f"{line['event']}: {line['reason']}" for line in lines if "reason" in line)
    assert [text.partition(": ")[0] for text in told(result)] == KINDS
    assert "hunter2" not in result.output
    assert result.exit_code == 0


async def test_check_reads_the_definitions_that_were_written(tmp_path: Path) -> None:
    async with definitions_node(tmp_path / "state") as (service, _):
        value = {"pattern": "a", "definition": {"federation-upstream": "nowhere"}}
        await service.put(POLICY, "written", value)
        service.definitions.merge([Entry("shovel", "s", 1 << 40, "n2", canonical({}))], service.unix_time())
        await service.put(POLICY, "written", value | {"priority": 1})
    expected = [('policy "written": definition.federation-upstream: ', '"nowhere"'), ('shovel "s": ', "kind")]
    check_each_named(told(check(tmp_path, "", "data_dir: state")), expected)


@pytest.mark.parametrize("rest", ["data_dir: state", ""])
def test_check_refuses_a_damaged_file_of_definitions(tmp_path: Path, rest: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / FILE).write_bytes(b"{")
    result = check(tmp_path, "" if rest else "    dir: state", rest)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"gmqttd: plugins.links: {folder / FILE}: ")
    assert (folder / FILE).read_bytes() == b"{"


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("api: {http: [{address: '127.0.0.1:8083'}]}", [NOT_KEPT]),
        ("api: {http: [{address: '127.0.0.1:8083'}]}\ndata_dir: state", []),
        ("", []),
    ],
)
def test_check_tells_where_written_definitions_are_not_kept(tmp_path: Path, rest: str, expected: list[str]) -> None:
    assert told(check(tmp_path, "", rest)) == expected


def test_check_names_the_files_of_tls_that_a_link_cannot_use(tmp_path: Path) -> None:
    links = """
    upstreams:
      north: {uri: [mqtts://a.example.com, mqtts://b.example.com], tls: {cacertfile: /no/such/file}}
      south: {uri: mqtt://south.example.com}
      unused: {uri: mqtts://unused.example.com, tls: {cacertfile: /no/such/file}}
    policies:
      sensors: {pattern: sensors/#, definition: {federation-upstream-pattern: north|south}}
"""
    (line,) = told(check(tmp_path, links))
    assert line.startswith('upstream "north": tls.cacertfile: /no/such/file ')


@pytest.mark.parametrize(
    ("federation", "shares", "warns"),
    [
        ("{fed_addr: '127.0.0.1:8901'}", True, False),
        ("{fed_addr: '[::1]:8901', allow_plain_secrets: true}", True, False),
        ("{fed_addr: ':8901'}", False, False),
        ("{fed_addr: '192.168.0.10:8901'}", False, False),
        ("{fed_addr: '127.0.0.1:8901', advertise_fed_addr: '192.168.0.10:8901'}", False, False),
        ("{fed_addr: '192.168.0.10:8901', allow_plain_secrets: true}", True, True),
        ("{fed_addr: '192.168.0.10:8901', tls: {cert: a, key: b, cacert: c}}", True, False),
        ("{tls: {cert: a, key: b, cacert: c}, require_tls: true, allow_plain_secrets: true}", True, False),
        (None, True, False),
    ],
)
async def test_secrets_leave_a_node_on_loopback_or_where_the_file_allows_it(
    tmp_path: Path, federation: str | None, shares: bool, warns: bool
) -> None:
    async with definitions_node(tmp_path / "state") as (service, _):
        await service.put(UPSTREAM, "u", {"uri": "mqtt://user:hunter2@127.0.0.1:1"})
    order = "links" if federation is None else "federation, links"
    config = tmp_path / "a.yml"
    config.write_text(
        f"plugin_order: [{order}]\ndata_dir: state\nplugins:\n  federation: {federation or {}}\n  links: {{domain: berlin}}\n"
    )
    found = load(config).settings
    assert found is not None
    assert shares_secrets(found) is shares
    warnings = CliRunner().invoke(main, ["check", "-c", str(config)], catch_exceptions=False).stderr.splitlines()
    assert any('"u"' in line and "allow_plain_secrets" in line for line in warnings) is not shares
    assert any("allow_plain_secrets: whoever reaches" in line for line in warnings) is warns
    assert "hunter2" not in str(warnings)
