"""`gmqttctl set_parameter` and its neighbours against a real API."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.api.guard import ApiGuard
from broker.api.tokens import Role, Token, hash_token, write_tokens
from definitions_node import definitions_node
from federation.definitions.commands import FILE_BYTES_MAX
from federation.definitions.entry import UPSTREAM
from gmqttctl.cli import main
from gmqttctl.errors import EXIT_NO_ANSWER, EXIT_NOT_ALLOWED, EXIT_NOT_FOUND
from rabbitmq_guide import GUIDE

Run = Callable[..., Awaitable[Result]]


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    """Runs `gmqttctl` with these arguments; a client of gRPC would block the loop of the node."""
    async with definitions_node(declared={(UPSTREAM, "declared"): {"uri": "mqtt://file"}}) as (_, host):

        async def invoke(*arguments: str, text: str | None = None, servers: str = "{}") -> Result:
            environment = {"GMQTTCTL_SERVERS": servers.format(host.api.grpc_addresses[0])}
            return await asyncio.to_thread(
                CliRunner().invoke, main, list(arguments), input=text, env=environment, catch_exceptions=False
            )

        yield invoke


async def done(found: Awaitable[Result]) -> str:
    result = await found
    assert result.exit_code == 0, result.output
    return result.output


async def test_definitions_are_written_listed_and_deleted(run: Run) -> None:
    await done(
        run("set_parameter", "federation-upstream", "u", '{"uri": "mqtt://a:secret@127.0.0.1:1", "max-hops": 2}')
    )
    await done(run("set_parameter", "federation-upstream-set", "s", '[{"upstream": "u"}]'))
    await done(run("set_policy", "p", "a/#", '{"federation-upstream-set": "s"}', "--priority", "3"))
    listed = (await done(run("list_parameters"))).splitlines()
    assert [line.split()[0] for line in listed] == ["name", "declared", "u", "s"]
    assert listed[1].endswith("file")
    assert "mqtt://***@127.0.0.1:1" in listed[2]
    assert [item["name"] for item in json.loads(await done(run("list_parameters", "--json")))["parameters"]] == [
        "declared",
        "u",
        "s",
    ]
    listed = (await done(run("list_policies"))).splitlines()
    assert listed[1].split() == ["p", "a/#", "topics", "3", '{"federation-upstream-set":"s"}', "-"]
    assert json.loads(await done(run("policies", "-o", "json")))["policies"][0]["apply-to"] == "topics"
    explained = await done(run("policy", "explain", "a/b"))
    assert "applies" in explained
    assert "mqtt://127.0.0.1:1" in explained
    assert json.loads(await done(run("policy", "explain", "a/b", "--json")))["links"][0]["upstream"] == "u"
    assert "not federated" in await done(run("policies", "explain", "x"))
    definition = '{"federation-upstream-set": "absent"}'
    await done(run("set_policy", "q", "q/#", definition))
    explained = await done(run("policy", "explain", "q/1"))
    assert 'missing: definition.federation-upstream-set: no upstream set "absent"' in explained
    await done(run("clear_policy", "p"))
    await done(run("clear_parameter", "federation-upstream-set", "s"))
    await done(run("upstreams", "delete", "u", "--yes"))
    *listed, warning = (await done(run("upstreams"))).splitlines()
    assert '"absent"' in warning
    assert len(listed) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["set_parameter", "federation-upstream", "u", "{"], 2, "is not JSON"),
        (["set_parameter", "shovel", "u", "{}"], 2, "federation-upstream"),
        (
            ["set_parameter", "federation-upstream", "u", '{"uri": "h"}'],
            1,
            "gmqttctl: value.uri: the URI does not begin",
        ),
        (["set_parameter", "federation-upstream", "declared", '{"uri": "mqtt://h"}'], 1, "configuration file"),
        (["set_policy", "p", "a", "[]"], 2, "not an object"),
        (["set_policy", "p", "a+", '{"federation-upstream-set": "all"}'], 1, "[MQTT-4.7.1-2]"),
        (["clear_policy", "p"], EXIT_NOT_FOUND, 'gmqttctl: there is no policy "p"'),
        (["policy", "explain", "#"], 1, "gmqttctl: topic:"),
        (
            ["list_policies", "--servers", "127.0.0.1:1"],
            EXIT_NO_ANSWER,
            "gmqttctl: node 127.0.0.1:1: no answer: Connection refused; --",
        ),
    ],
)
async def test_a_refusal_is_one_line(run: Run, arguments: list[str], status: int, words: str) -> None:
    result = await run(*arguments)
    assert result.exit_code == status
    assert words in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "the node asks for a token: --token-file"), (["--token", "other"], "the token is not known")],
)
async def test_a_call_without_a_token_that_is_known_is_refused(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "tokens").write_bytes(write_tokens([Token("t", Role.READ, "2026-01-01", hash_token("secret"))]))
    guard = ApiGuard(str(tmp_path / "tokens"))
    guard.load()
    async with definitions_node(guard=guard) as (_, host):
        command = ["list_policies", "--servers", host.api.grpc_addresses[0], *arguments]
        result = await asyncio.to_thread(CliRunner().invoke, main, command, catch_exceptions=False)
    assert result.exit_code == EXIT_NOT_ALLOWED
    assert result.output.startswith(f"gmqttctl: {words}")


async def test_the_next_server_is_asked_when_one_does_not_answer(run: Run) -> None:
    result = await run("list_policies", servers="127.0.0.1:1,{}")
    assert result.exit_code == 0


async def test_a_warning_goes_to_standard_error(run: Run) -> None:
    result = await run("set_policy", "p", "a", '{"federation-upstream": "later"}')
    assert result.exit_code == 0
    assert result.stderr == 'warning: definition.federation-upstream: no upstream "later"\n'


async def test_a_definition_is_read_from_standard_input(run: Run) -> None:
    await done(run("set_parameter", "federation-upstream", "u", "-", text='{"uri": "mqtt://a:secret@127.0.0.1:1"}'))
    assert "mqtt://a:secret@127.0.0.1:1" in await done(run("definitions", "export"))
    result = await run("set_parameter", "federation-upstream", "u", "-", text="{")
    assert result.exit_code == 2
    assert "JSON" in result.output
    result = await run("set_parameter", "federation-upstream", "u", "-", text=" " * (FILE_BYTES_MAX + 1))
    assert result.exit_code == 1
    assert str(FILE_BYTES_MAX) in result.output


async def test_an_export_is_imported(run: Run, tmp_path: Path) -> None:
    await done(run("set_parameter", "federation-upstream", "u", '{"uri": "mqtt://a:secret@127.0.0.1:1"}'))
    await done(run("set_policy", "p", "a/#", '{"federation-upstream-set": "all"}'))
    file = tmp_path / "definitions.json"
    await done(run("definitions", "export", "-o", str(file)))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    exported = json.loads(file.read_text())
    assert exported["parameters"][0] == {
        "component": "federation-upstream",
        "name": "u",
        "value": {"uri": "mqtt://a:secret@127.0.0.1:1"},
    }
    assert exported["policies"][0]["apply-to"] == "topics"
    await done(run("clear_policy", "p"))
    result = await run("definitions", "import", str(file))
    assert (result.exit_code, result.stderr) == (0, "1 parameters, 1 policies\n")
    assert json.loads(await done(run("definitions", "export"))) == exported
    assert (await run("definitions", "import", "-", text=file.read_text())).exit_code == 0


async def test_definitions_of_rabbitmq_and_mosquitto_are_taken_by_a_node(run: Run, tmp_path: Path) -> None:
    """Everything that the importers write, a node takes and has afterwards."""
    rabbitmq, mosquitto = tmp_path / "rabbitmq.config", tmp_path / "mosquitto.conf"
    rabbitmq.write_text(GUIDE)
    mosquitto.write_text(
        "connection cloud\naddress h\nremote_password secret\nremote_username u\ntopic # both 2 a/ b/\ntopic c in\n"
    )
    # Two upstreams of the guide have one exchange here. The bridge becomes two links, which need a broker with MQTT 5.
    expected = {"import-rabbitmq": ("different topics one name", 1), "import-mosquitto": ("comes back over", 2)}
    for (command, (warning, count)), file in zip(expected.items(), (rabbitmq, mosquitto), strict=True):
        text = (await run(command, str(file))).stdout
        result = await run("definitions", "import", "-", text=text)
        assert result.exit_code == 0
        assert result.stderr.count("warning:") == result.stderr.count(warning) == count
        document = json.loads(text)
        exported = json.loads(await done(run("definitions", "export")))
        for kind in ("parameters", "policies"):
            assert all(item in exported[kind] for item in document[kind]), (document, exported)


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("{", 2, "is not JSON"),
        ("[]", 1, "not a file of"),
        ('{"rabbit_version": "3.8"}', 1, "from-rabbitmq"),
        ('{"policies": [{"name": "p"}]}', 1, 'policy "p".'),
        ('{"policies": [{"name": "p", "priority": "high"}]}', 1, "policies[0].priority"),
    ],
)
async def test_a_file_that_is_no_export_is_refused(run: Run, text: str, status: int, words: str) -> None:
    result = await run("definitions", "import", "-", text=text)
    assert result.exit_code == status
    assert words in result.output
