"""Commands of `gmqttctl` against one node in this process: what they show for people and as JSON, and what they change."""

from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import json
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from click.testing import CliRunner

from auth_plugin import passwd, port_of
from broker.codec.properties import SESSION_EXPIRY_INTERVAL
from ctl_runs import LIVE, Ctl
from gmqttctl.cli import main
from gmqttctl.errors import EXIT_FAILED, EXIT_NO_ANSWER, EXIT_NOT_FOUND, EXIT_NOT_HEALTHY
from waiting import eventually
from wording import check_named

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

HOSTILE = "c \x1b[31m\u202ered\n[bold]"


@pytest.fixture
async def server(start_server: StartServer, tmp_path: Path) -> Server:
    (tmp_path / "acl").write_text(
        "topic readwrite #\ntopic deny secret/#\npattern read own/%c\nuser site\ntopic read a/#\ntopic write a/b\n"
    )
    return await start_server(
        {
            "plugin_order": ["admin", "auth", "federation"],
            "api": {"grpc": [{"address": "127.0.0.1:0"}]},
            "plugins": {
                "auth": {
                    "acl_file": str(tmp_path / "acl"),
                    "password_file": str(tmp_path / "accounts.yml"),
                    "allow_anonymous": True,
                },
                "federation": {"node_name": "n1", "fed_addr": "127.0.0.1:0", "gossip_addr": "127.0.0.1:0"},
            },
        }
    )


@pytest.fixture
def ctl(server: Server) -> Ctl:
    return Ctl(server)


async def test_status_and_health_of_a_node_that_is_well(ctl: Ctl) -> None:
    shown = await ctl.done("status")
    check_named(shown, ["n1", "alive", "all is well"])
    found = await ctl.values("status")
    assert (found["node"]["node_name"], found["alarms"]) == ("n1", [])
    assert [member["name"] for member in found["members"]["members"]] == ["n1"]
    assert await ctl.done("health", "--wait", "5") == "ok\n"


async def test_what_is_wrong_is_the_exit_status(ctl: Ctl) -> None:
    await ctl.done("members", "leave", "--yes")
    result = await ctl.run("status")
    assert result.exit_code == EXIT_NOT_HEALTHY, result.output
    assert "left the federation" in result.output
    result = await ctl.run("health")
    assert (result.exit_code, "left" in result.output) == (EXIT_NOT_HEALTHY, True)


async def test_retained_messages_are_listed_shown_and_deleted(ctl: Ctl) -> None:
    assert "no retained" in await ctl.done("retained")
    await ctl.done("publish", "a/1", "21.5", "--retain", "--qos", "1")
    await ctl.done("publish", "a/2", "--retain", "--expiry", "100", text=b"\xff\x00")
    await ctl.done("publish", "b/\u202e", "x" * 300, "--retain")
    lines = (await ctl.done("retained")).splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["a/1", "21.5"], ["a/2", "0xff00"]]
    assert lines[3].startswith(r"b/\u202e")
    found = await ctl.values("retained", "list", "a/+")
    assert [message["topic_name"] for message in found["messages"]] == ["a/1", "a/2"]
    assert (await ctl.done("retained", "list", "-o", "name")).splitlines()[:2] == ["a/1", "a/2"]
    cut = (await ctl.values("retained", "list", "b/#"))["messages"][0]
    assert (len(cut["payload"]), cut["payload_bytes"]) == (256, "300")
    assert len((await ctl.values("retained", "get", "b/\u202e"))["payload"]) == 300
    raw = await ctl.values("retained", "get", "a/2")
    assert base64.b64decode(raw["payload_raw"]) == b"\xff\x00"
    assert 0 < raw["expires_seconds"] <= 100
    await ctl.done("retained", "delete", "a/1", "--yes")
    assert (await ctl.run("retained", "get", "a/1")).exit_code == EXIT_NOT_FOUND
    assert (await ctl.run("retained", "delete", "a/1", "--yes")).exit_code == EXIT_NOT_FOUND
    assert (await ctl.run("retained", "list", "a/#/b")).exit_code == 1


async def test_a_retained_list_in_pages(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmqttctl.listing.PAGE_SIZE", 2)
    for number in range(5):
        await ctl.done("publish", f"a/{number}", "x", "--retain")
    for arguments in ([], ["a/#"]):
        found = await ctl.values("retained", "list", *arguments)
        assert [message["topic_name"] for message in found["messages"]] == [f"a/{number}" for number in range(5)]


async def test_who_gets_a_topic_and_by_which_rule(ctl: Ctl, server: Server, clients: Clients) -> None:
    reader = await clients.connect(port_of(server), HOSTILE.replace("\n", ""))
    await reader.subscribe("a/#", qos=1)
    member = await clients.connect(port_of(server), "member")
    await member.subscribe("$share/crew/a/b", "+/x")
    shown = await ctl.done("explain", "a/b", "--client", "x", "--user", "site")
    check_named(
        shown,
        [r"\x1b", "a/#", "$share/crew/a/b", "topic readwrite #", "may publish: allowed", "user site: topic write a/b"],
    )
    assert "\x1b" not in shown
    found = await ctl.values("explain", "a/b")
    assert [(each["topic_filter"], each["state"], each["read"]["allowed"]) for each in found["receivers"]] == [
        ("a/#", "connected", True),
        ("$share/crew/a/b", "connected", True),
    ]
    assert [group["group"] for group in found["groups"]] == ["$share/crew/a/b"]
    refused = (await ctl.values("explain", "secret/x"))["receivers"]
    assert [(each["client_id"], each["read"]["allowed"]) for each in refused] == [("member", False)]
    assert "topic deny secret/#" in refused[0]["read"]["reason"]
    assert "no client of" in await ctl.done("explain", "b")
    assert found["other_nodes"] == []


@pytest.mark.parametrize(
    ("arguments", "publish", "read"),
    [
        (["c", "a"], ("allowed", "topic readwrite #"), ("allowed", "topic readwrite #")),
        (["c", "secret/c"], ("refused", "topic deny secret/#"), ("refused", "topic deny secret/#")),
        (["c", "a/b", "--user", "site"], ("allowed", "topic write a/b"), ("allowed", "topic read a/#")),
        (["c", "b", "--user", "site"], ("refused", "no rule"), ("refused", "no rule")),
        (["c", "own/c", "--user", "site"], ("refused", "no rule"), ("allowed", "pattern read own/%c")),
    ],
)
async def test_the_rule_of_a_client(
    ctl: Ctl, arguments: list[str], publish: tuple[str, str], read: tuple[str, str]
) -> None:
    lines = (await ctl.done("acl", "test", *arguments)).splitlines()
    for line, (verdict, rule) in zip(lines[1:], (publish, read), strict=True):
        check_named(line, [verdict, rule])


async def test_traffic_is_counted_while_it_is_asked_for(ctl: Ctl, server: Server, clients: Clients) -> None:
    publisher = await clients.connect(port_of(server), "publisher")

    async def while_messages_come(asked: Awaitable[Any]) -> Any:
        """One runner at a time: it takes the output of the process."""
        task = asyncio.ensure_future(asked)
        await eventually(lambda: len(server.broker._taps) == 1, "it counts")
        for topic, count in (("a/b/1", 3), ("a/b/2", 2), ("c", 4)):
            for _ in range(count):
                await publisher.publish(topic, b"1234", qos=1)
        return await task

    found = await while_messages_come(ctl.values("topics", "--seconds", "1"))
    assert [(each["topic_name"], each["messages"], each["bytes"]) for each in found["topics"]] == [
        ("c", "4", "16"),
        ("a/b/1", "3", "12"),
        ("a/b/2", "2", "8"),
    ]
    assert [(each["client_id"], each["messages"]) for each in found["clients"]] == [("publisher", "9")]
    tree = await while_messages_come(ctl.done("topics", "a/#", "--seconds", "1", "--depth", "2"))
    lines = tree.splitlines()
    assert [line.split()[0] for line in lines] == ["topic", "a", "b"]
    assert lines[2].startswith("  b")
    assert lines[1].split()[-1] == "2"
    assert server.broker._taps == []


async def test_top_shows_rates_and_the_fullest_queues(ctl: Ctl, server: Server, clients: Clients) -> None:
    away = await clients.connect(port_of(server), "sleeper", properties={SESSION_EXPIRY_INTERVAL: 100})
    await away.subscribe("a", qos=1)
    await away.close()
    publisher = await clients.connect(port_of(server), "publisher")
    asked = asyncio.create_task(ctl.done("top", "-n", "1", "--seconds", "1"))
    await eventually(lambda: bool(server.broker._taps), "it counts")
    await publisher.publish("a", b"1", qos=1)
    check_named(await asked, ["n1", "publisher", "sleeper", "messages/s"])


async def test_the_configuration_of_the_node_and_of_a_file(ctl: Ctl, tmp_path: Path) -> None:
    text = await ctl.done("config")
    shown = yaml.safe_load(text)
    assert shown["plugins"]["federation"]["node_name"] == "n1"
    assert await ctl.values("config", "show") == shown
    file = tmp_path / "other.yml"
    file.write_text(text)
    assert (await ctl.run("config", "diff", str(file))).output == ""
    file.write_text(text.replace("node_name: n1", "node_name: n2"))
    result = await ctl.run("config", "diff", str(file))
    assert result.exit_code == 1
    assert {line.strip() for line in result.output.splitlines() if "node_name" in line} == {
        "-    node_name: n1",
        "+    node_name: n2",
    }
    assert "no fault" in await ctl.done("config", "check", str(file))
    file.write_text("mqtt: {max_inflight: many}\n")
    result = await ctl.run("config", "check", str(file))
    assert (result.exit_code, "max_inflight" in result.output) == (1, True)
    file.write_text("mqtt: {max_inflight: many, max_queued_messages: some}\n")
    lines = (await ctl.run("config", "check", str(file))).output.splitlines()
    assert [word in line for word, line in zip(("max_inflight", "max_queued"), lines, strict=True)] == [True, True]


async def test_a_trace_shows_packets(ctl: Ctl, server: Server, clients: Clients) -> None:
    asked = asyncio.create_task(ctl.done("trace", "--topic", "a/#", "--seconds", "2"))
    await eventually(lambda: server.traces is not None and bool(server.traces.by_id), "the trace runs")
    publisher = await clients.connect(port_of(server), "publisher")
    await publisher.publish("a/1", b"x", qos=1)
    check_named(await asked, ["publisher", "PUBLISH", "a/1"])
    assert (await ctl.run("trace")).exit_code == 2


async def test_the_archive_of_a_report_has_no_secret(ctl: Ctl, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    said = await ctl.done("doctor", "--file", str(file), "--server", f"{ctl.address},127.0.0.1:1")
    assert str(file) in said
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        names = archive.getnames()
        node = json.load(archive.extractfile(next(name for name in names if name.endswith("/node.json"))))  # type: ignore[arg-type]
    assert node["node_name"] == "n1"
    assert any(name.endswith("/configuration.json") for name in names)
    assert not any("keys" in name for name in names)
    assert (await ctl.run("doctor", "--file", str(file), "--server", "127.0.0.1:1")).exit_code == EXIT_NO_ANSWER


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["health"], ["retained"], ["explain", "a"], ["topics"], ["publish", "a", "x"], ["config"], ["top"]],
)
async def test_a_node_that_does_not_answer(arguments: list[str]) -> None:
    result = CliRunner().invoke(
        main, [*arguments, *(["-n", "1"] if arguments == ["top"] else []), "--server", "127.0.0.1:1"]
    )
    assert result.exit_code == EXIT_NO_ANSWER, result.output
    check_named(result.output, ["gmqttctl: node 127.0.0.1:1: no answer", "--server"])


async def test_what_a_node_cannot_do_now_is_its_answer(ctl: Ctl) -> None:
    result = await ctl.run("members", "join", "127.0.0.1:1")
    assert result.exit_code == EXIT_FAILED, result.output
    check_named(result.output, ["not now", "127.0.0.1:1"])
    assert "no answer" not in result.output


async def test_formats(ctl: Ctl) -> None:
    assert yaml.safe_load(await ctl.done("members", "-o", "yaml"))["members"][0]["name"] == "n1"
    assert (await ctl.done("members", "-o", "name")) == (await ctl.done("status", "-o", "name")) == "n1\n"
    head = (await ctl.done("members", "-o", "wide")).splitlines()[0]
    assert "gossip" in head
    assert "gossip" not in (await ctl.done("members")).splitlines()[0]


async def test_messages_are_watched_as_they_come(ctl: Ctl, server: Server, clients: Clients) -> None:
    """Also those that a rule keeps from clients, and runs of QoS 0."""
    await ctl.done("publish", "a/0", "kept", "--retain")
    publisher = await clients.connect(port_of(server), HOSTILE.replace("\n", ""))

    def is_watched() -> bool:
        return server.broker.router.tree.get(b"#") is not None

    async def while_messages_come(*arguments: str) -> str:
        task = asyncio.create_task(ctl.done("subscribe", "#", *arguments))
        await eventually(is_watched, "it subscribes")
        for number in range(3):
            await publisher.publish(
                f"a/{number}", b"\xff" if number == 2 else f"text \x1b{number}".encode(), qos=number % 2
            )
        text = await task
        await eventually(lambda: not is_watched(), "it unsubscribes")
        return text

    assert (await while_messages_come("-n", "4", "--retained")).splitlines() == [
        "a/0 kept",
        r"a/0 text \x1b0",
        r"a/1 text \x1b1",
        "a/2 0xff",
    ]
    found = [json.loads(line) for line in (await while_messages_come("-n", "3", "-o", "json")).splitlines()]
    assert [(each["topic_name"], each["payload"], each["qos"]) for each in found] == [
        ("a/0", "text \x1b0", 0),
        ("a/1", "text \x1b1", 1),
        ("a/2", "", 0),
    ]
    assert found[0]["client_id"].startswith("c ")
    assert len(server.broker.sessions) == 1
    result = await ctl.run("subscribe", "$share/g/a")
    assert (result.exit_code, "no plain one" in result.output) == (1, True)


async def test_a_backup_of_a_running_node_is_a_node_again(
    start_server: StartServer, clients: Clients, tmp_path: Path
) -> None:
    """With a session and what waits in it, retained messages, accounts and rules."""
    accounts, folder = tmp_path / "accounts.yml", tmp_path / "other"
    folder.mkdir()

    def config(place: Path) -> dict[str, Any]:
        return {
            "plugin_order": ["admin", "auth"],
            "data_dir": str(place / "state"),
            "api": {"grpc": [{"address": "127.0.0.1:0"}]},
            "plugins": {"auth": {"password_file": str(place / "accounts.yml"), "allow_anonymous": True}},
        }

    assert passwd("-c", "-b", str(accounts), "alice", "secret").returncode == 0
    server = await start_server(config(tmp_path))
    ctl = Ctl(server)
    away = await clients.connect(port_of(server), "away", properties={SESSION_EXPIRY_INTERVAL: 1000})
    await away.subscribe("a/#", qos=1)
    await away.close()
    publisher = await clients.connect(port_of(server), "publisher")

    async def publish_on() -> None:
        for number in itertools.count():
            await publisher.publish(f"a/{number % 10}", b"%d" % number, qos=1, retain=True)

    load = asyncio.create_task(publish_on())
    await eventually(lambda: len(server.broker.retained) == 10, "there is load")
    before = server.broker.sessions["away"].queue_length()
    file = tmp_path / "backup.tar.gz"
    file.write_text("")
    file.chmod(0o644)  # is not that of what is written in its place
    said = await ctl.done("backup", str(file))
    load.cancel()
    check_named(said, ["store.jsonl", "accounts.yml"])
    assert file.stat().st_mode & 0o777 == 0o600
    assert list((tmp_path / "state").glob(".store-copy-*")) == []
    node = folder / "gmqttd.yml"
    node.write_text(yaml.safe_dump(config(folder)))
    said = await ctl.done("restore", str(file), "-c", str(node))
    check_named(said, ["records", "accounts.yml"])
    assert (folder / "accounts.yml").read_bytes() == accounts.read_bytes()
    again = await ctl.run("restore", str(file), "-c", str(node))
    assert (again.exit_code, "--replace" in again.output) == (1, True)
    assert (await ctl.run("restore", str(file), "-c", str(node), "--replace", "--yes")).exit_code == 0
    other = await start_server(config(folder))
    assert len(other.broker.retained) == 10
    assert other.broker.sessions["away"].queue_length() >= before
    back = await clients.connect(port_of(other), "away", clean_start=False)
    assert (await back.message()).topic == b"a/0"


@pytest.mark.parametrize("content", [b"", b"text", gzip.compress(b"text"), b"\x1f\x8b" + bytes(40)])
def test_a_file_that_is_no_backup(tmp_path: Path, content: bytes) -> None:
    file, node = tmp_path / "backup.tar.gz", tmp_path / "gmqttd.yml"
    file.write_bytes(content)
    node.write_text("{}")
    result = CliRunner().invoke(main, ["restore", str(file), "-c", str(node)], catch_exceptions=False)
    assert (result.exit_code, str(file) in result.output) == (1, True), result.output


def commands_that_show(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Those with -o that need no argument, and that ask a node."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_that_show(command, (*words, name))
        else:
            names = {parameter.name for parameter in command.params}
            if {"output_format", "context_name"} <= names and not any(each.required for each in command.params):
                yield (*words, name)


async def test_each_command_that_shows_something_has_a_table_json_yaml_and_names(
    start_server: StartServer, clients: Clients, tmp_path: Path
) -> None:
    """Of a node with all plugins, a client with a hostile name, an account, and definitions."""
    (tmp_path / "accounts.yml").write_text("- {username: alice, password: a}\n")
    server = await start_server(
        {
            "plugin_order": ["admin", "auth", "federation", "links", "event_log"],
            "api": {"grpc": [{"address": "127.0.0.1:0"}]},
            "plugins": {
                "event_log": {"dir": str(tmp_path / "log")},
                "auth": {"hash": "plain", "password_file": str(tmp_path / "accounts.yml"), "allow_anonymous": True},
                "federation": {"node_name": "n1", "fed_addr": "127.0.0.1:0", "gossip_addr": "127.0.0.1:0"},
            },
        }
    )
    ctl = Ctl(server)
    client = await clients.connect(port_of(server), HOSTILE.replace("\n", ""))
    await client.subscribe("a/\u202e/#")
    await ctl.done("publish", "a/\u202e", "\x1b[2J", "--retain")
    await ctl.done("policies", "set", "p", "a/#", '{"federation-upstream-set": "all"}')
    found = [each for each in commands_that_show(main) if each[0] != "pipeline"]  # which asks the folder of its jobs
    words = {" ".join(each) for each in found}
    assert {"status", "members list", "clients list", "sessions list", "retained list", "policies list"} <= words
    live = {**LIVE, "drain": ("--status",)}
    refused = {"keys list", "tokens list"}  # the gossip is not encrypted, and there is no file of tokens
    for each in found:
        for output in ("table", "wide", "json", "yaml", "name"):
            if each == ("top",) and output != "json":
                continue
            result = await ctl.run(*each, *live.get(" ".join(each), ()), "-o", output)
            if " ".join(each) in refused:
                assert result.exit_code == 1
                break
            assert result.exit_code == 0, (each, output, result.output)
            text = result.stdout
            if output == "json":
                assert isinstance(json.loads(text), dict), each
            elif each == ("log", "tail"):
                assert HOSTILE not in text
            elif output == "yaml":
                assert isinstance(yaml.safe_load(text), dict), each
            else:
                assert all(line.isprintable() for line in text.splitlines()), (each, output)


async def test_accounts_are_made_listed_and_deleted(ctl: Ctl) -> None:
    assert await ctl.done("accounts") == "no accounts\n"
    await ctl.done("accounts", "set", "alice", text="secret\n")
    await ctl.done("accounts", "set", "site", "--password", "x", "--role", "link:oslo")
    lines = (await ctl.done("accounts")).splitlines()
    assert [line.split() for line in lines] == [["user", "role"], ["alice", "-"], ["site", "link:oslo"]]
    await ctl.done("accounts", "delete", "site", "--yes")
    assert (await ctl.run("accounts", "delete", "site", "--yes")).exit_code == EXIT_NOT_FOUND
    assert await ctl.done("accounts", "-o", "name") == "alice\n"


async def test_of_several_servers_the_one_that_knows_the_client_is_found(
    ctl: Ctl, start_server: StartServer, clients: Clients
) -> None:
    settings = {"node_name": "n2", "fed_addr": "127.0.0.1:0", "gossip_addr": "127.0.0.1:0"}
    other = await start_server(
        {
            "plugin_order": ["admin", "federation"],
            "api": {"grpc": [{"address": "127.0.0.1:0"}]},
            "plugins": {"federation": settings},
        }
    )
    there = Ctl(other).address
    servers = ("--server", f"{ctl.address},127.0.0.1:1,{there}")
    await clients.connect(port_of(other), "c")
    for words in (("clients", "show"), ("sessions", "show")):
        found = await ctl.run(*words, "c", "-o", "json", *servers)
        assert json.loads(found.stdout)["client_id"] == "c"
        check_named(found.stderr, [there, ctl.address])
    assert "n2" in (await ctl.run("sessions", "show", "c", *servers)).stdout
    unknown = await ctl.run("sessions", "show", "d", *servers)
    assert "unknown" in unknown.stdout
    check_named(unknown.stderr, ["asked", there, "--server"])
    missing = await ctl.run("clients", "show", "d", *servers)
    assert missing.exit_code == EXIT_NOT_FOUND
    check_named(missing.output, ['"d"', "asked", there, "--server"])


async def test_clients_are_shown_and_kicked(ctl: Ctl, server: Server, clients: Clients) -> None:
    client = await clients.connect(port_of(server), "c", properties={SESSION_EXPIRY_INTERVAL: 100})
    await client.subscribe("a/#", qos=1)
    assert (await ctl.values("clients", "show", "c"))["client_id"] == "c"
    check_named(await ctl.done("sessions", "show", "c"), ["here", "n1"])
    check_named(await ctl.done("subscriptions", "matching", "a/1"), ["c", "a/#"])
    assert "no subscriptions" in await ctl.done("subscriptions", "of", "a/1")
    check_named(await ctl.done("subscriptions", "client", "c"), ["a/#"])
    await ctl.done("clients", "kick", "c", "--yes")
    await client.wait_closed()
    assert (await ctl.done("clients", "list", "--away", "-o", "name")) == "c\n"
    await ctl.done("clients", "kick", "c", "--clean", "--yes")
    assert (await ctl.run("clients", "show", "c")).exit_code == EXIT_NOT_FOUND
