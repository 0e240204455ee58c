"""Each line of gmqttctl in the documentation against a node in this process, with a token of the role write: it does what it
says, or the node refuses what needs the role admin before anything changes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from auth_plugin import port_of
from broker.api.tokens import Role, Token, hash_token, write_tokens
from broker.codec.properties import SESSION_EXPIRY_INTERVAL
from ctl_runs import LIVE, Ctl
from documented_lines import lines_of
from gmqttctl.errors import EXIT_NOT_ALLOWED, EXIT_USAGE
from repository import ROOT

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mqtt_client import Clients

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

ELSEWHERE: Final = {
    "pipeline": "asks the folder of its jobs; tests/pipeline",
    "replay": "needs Spark; tests/pipeline",
    "restore": "of a backup, to a stopped node; test_gmqttctl.py",
    "upgrade": "of several nodes; test_upgrade_under_load.py",
}
BRIDGE: Final = "connection cloud\naddress broker.example.com\ntopic sensors/# out 1\n"
DEFINITIONS: Final = json.dumps(
    {
        "parameters": [
            {"component": "federation-upstream", "name": "eu", "vhost": "/", "value": {"uri": "amqp://eu.example.com"}}
        ],
        "policies": [],
    }
)
ERLANG: Final = '[{rabbitmq_federation, [{exchanges, []}, {connections, []}, {local_username, "guest"}]}].\n'
FILES: Final = {
    "mosquitto.conf": BRIDGE,
    "definitions.json": DEFINITIONS,
    "links.json": '{"parameters": [], "policies": []}',
    "rabbitmq.config": ERLANG,
    "gmqttd.yml": "{}\n",
    "token": "WRITE\n",
}
INPUTS: Final = {"from-mosquitto": BRIDGE, "from-rabbitmq": DEFINITIONS}
REFUSED: Final = {EXIT_NOT_ALLOWED: "needs admin", EXIT_USAGE: "Give --yes"}  # what destroys asks


def documented() -> list[list[str]]:
    """The words of each line once; what deletes comes last."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    found = (line.partition(" && ")[0] for page in pages for line in lines_of(page.read_text(encoding="utf-8")))
    once = {tuple(shlex.split(line)[1:]) for line in found if line.startswith("gmqttctl ")}
    return sorted((list(words) for words in once), key=lambda words: ("delete" in words, words))


@pytest.fixture
async def server(start_server: StartServer, tmp_path: Path) -> Server:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "accounts.yml").write_text("- {username: alice, password: a}\n")
    (tmp_path / "acl").write_text("topic readwrite #\n")
    tokens = [Token(role.name.lower(), role, "2026-01-01", hash_token(role.name)) for role in (Role.WRITE, Role.ADMIN)]
    (tmp_path / "tokens").write_bytes(write_tokens(tokens))
    auth = {"hash": "plain", "password_file": str(tmp_path / "accounts.yml"), "acl_file": str(tmp_path / "acl")}
    return await start_server(
        {
            "plugin_order": ["admin", "auth", "federation", "links", "event_log"],
            "api": {"grpc": [{"address": "127.0.0.1:0"}], "token_file": str(tmp_path / "tokens")},
            "plugins": {
                "auth": {**auth, "allow_anonymous": True},
                "event_log": {"dir": str(tmp_path / "log")},
                "federation": {"node_name": "node1", "fed_addr": "127.0.0.1:0", "gossip_addr": "127.0.0.1:0"},
            },
        }
    )


async def test_each_documented_line_does_what_it_says_or_needs_an_admin(
    server: Server, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("sensor-1", "sensor-17", "reader"):
        client = await clients.connect(port_of(server), name, properties={SESSION_EXPIRY_INTERVAL: 100})
        await client.subscribe("sensors/#")
        await client.publish("sensors/1/temperature", b"21", qos=1, retain=True)
    ctl = Ctl(server)
    wrong = {}
    for words in documented():
        if words[0] in ELSEWHERE:
            continue
        line = [word for word in words if word not in ("--watch", "-w", "--tls")]
        if "--tls-ca-file" in line:
            place = line.index("--tls-ca-file")
            del line[place : place + 2]
        for option, value in (("--server", ctl.address), ("--token", "WRITE"), ("--token-file", "token")):
            if option in line:
                line[line.index(option) + 1] = value
        live = LIVE.get(" ".join(line[:2]), LIVE.get(line[0], ()))
        text = INPUTS.get(line[1] if len(line) > 1 else "", "{}")
        result = await ctl.run(*line, *live, text=text, GMQTTCTL_TOKEN="WRITE")
        if result.exit_code != 0 and not any(
            (result.exit_code, reason in result.output) == (status, True) for status, reason in REFUSED.items()
        ):
            wrong[" ".join(line)] = result.output
    assert wrong == {}
