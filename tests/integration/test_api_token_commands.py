"""`gmqttctl` with tokens, and `gmqttctl tokens`, against a node in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.api.tokens import Role, Token, hash_token, write_tokens
from ctl_runs import Ctl
from gmqttctl.errors import EXIT_NOT_ALLOWED, EXIT_NOT_FOUND
from wording import check_named

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]


async def test_tokens_and_what_they_may_do(start_server: StartServer, tmp_path: Path) -> None:
    tokens = {
        role: Token(role.name.lower(), role, "2026-01-01", hash_token(role.name)) for role in (Role.READ, Role.WRITE)
    }
    (tmp_path / "tokens").write_bytes(write_tokens(list(tokens.values())))
    server = await start_server(
        {
            "plugin_order": ["admin"],
            "api": {"grpc": [{"address": "127.0.0.1:0"}], "token_file": str(tmp_path / "tokens")},
        }
    )
    ctl = Ctl(server)
    (tmp_path / "token").write_text("WRITE\n")
    assert (await ctl.run("clients")).exit_code == EXIT_NOT_ALLOWED
    assert (await ctl.run("clients", "--token", "wrong")).exit_code == EXIT_NOT_ALLOWED
    assert (await ctl.run("clients", GMQTTCTL_TOKEN="READ")).exit_code == 0
    assert (await ctl.run("retained", "--token-file", str(tmp_path / "token"))).exit_code == 0
    result = await ctl.run("retained", "--token", "READ")
    assert result.exit_code == EXIT_NOT_ALLOWED
    check_named(result.output, ["read", "write", "--token-file"])
    assert (await ctl.run("tokens", "--token", "WRITE")).exit_code == EXIT_NOT_ALLOWED


async def test_tokens_are_made_listed_and_deleted(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(write_tokens([Token("first", Role.ADMIN, "2026-01-01", hash_token("FIRST"))]))
    api = {"grpc": [{"address": "127.0.0.1:0"}], "token_file": str(tmp_path / "tokens")}
    ctl = Ctl(await start_server({"plugin_order": ["admin"], "api": api}))
    admin = ("--token", "FIRST")
    token = (await ctl.run("tokens", "create", "--role", "read", "--expires", "90d", *admin)).stdout.split()[-1]
    assert (await ctl.run("clients", "--token", token)).exit_code == 0
    lines = [line.split() for line in (await ctl.done("tokens", *admin)).splitlines()]
    assert [line[:2] for line in lines[1:]] == [["first", "admin"], ["read1", "read"]]
    assert (lines[1][3], lines[2][3][:2]) == ("-", "20")
    again = await ctl.run("tokens", "create", "--role", "read", "--name", "read1", *admin)
    assert (again.exit_code, '"read1" already' in again.output) == (1, True)
    await ctl.done("tokens", "delete", "read1", "--yes", *admin)
    assert (await ctl.run("clients", "--token", token)).exit_code == EXIT_NOT_ALLOWED
    assert (await ctl.run("tokens", "delete", "read1", "--yes", *admin)).exit_code == EXIT_NOT_FOUND
    open_node = Ctl(await start_server({"plugin_order": ["admin"], "api": {"grpc": [{"address": "127.0.0.1:0"}]}}))
    result = await open_node.run("tokens")
    assert (result.exit_code, "api.token_file" in result.output) == (1, True)
