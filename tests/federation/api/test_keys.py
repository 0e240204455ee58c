"""Keys of the gossip over the API and `gmqttctl keys`, on members over loopback sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from structlog.testing import capture_logs

from federation.gossip.keyring import key_text
from federation.serf.key_queries import QUERY_INSTALL_KEY, QUERY_LIST_KEYS
from federation.shell.keyring_file import KeyringFile
from gmqttctl.cli import main
from keyed_member import KeyedMember, running
from waiting import DEADLINE, eventually

A, B, C = b"a" * 16, b"b" * 24, b"c" * 32


async def all_see_all(*members: KeyedMember) -> None:
    for member in members:
        await eventually(lambda: member.serf.alive_others() == len(members) - 1, "it sees all")  # noqa: B023


async def test_a_rotation_over_rest_ends_in_the_files(tmp_path: Path) -> None:
    first = KeyedMember("a", A, path=tmp_path / "a.json")
    second = KeyedMember("b", A, path=tmp_path / "b.json")
    third = KeyedMember("c", A)
    async with running(first, second, third):
        await all_see_all(first, second, third)
        done = {"num_nodes": 3, "num_responses": 3, "num_errors": 0, "messages": {}, "keys": {}, "primary_keys": {}}
        assert await first.call("POST", "keys/install", key=key_text(C)) == (200, done)
        assert first.kept() == second.kept() == [key_text(A), key_text(C)]
        assert await second.call("POST", "keys/use", key=key_text(C)) == (200, done)
        status, found = await third.call("GET", "keys")
        both = {key_text(C): 3, key_text(A): 3}
        assert (status, found) == (200, done | {"keys": both, "primary_keys": {key_text(C): 3}})
        status, found = await third.call("POST", "keys/remove", key=key_text(C))
        assert (status, found["num_errors"], sorted(found["messages"])) == (200, 3, ["a", "b", "c"])
        assert await third.call("POST", "keys/remove", key=key_text(A)) == (200, done)
        assert first.kept() == second.kept() == [key_text(C)]
        assert first.keys == second.keys == third.keys == (C,)
        assert KeyringFile(str(first.path), "keyring_file").read() == (C,)  # as after a restart
        assert first.serf.counters.drops == second.serf.counters.drops == third.serf.counters.drops == 0


@pytest.mark.parametrize(
    ("path", "key", "status", "code", "words"),
    [
        ("keys/install", "", 400, 3, "0 bytes"),
        ("keys/install", "?", 400, 3, "base64"),
        ("keys/use", "YWJj", 400, 3, "16, 24 or 32"),
        ("keys/remove", "YWJj", 400, 3, "16, 24 or 32"),
    ],
)
async def test_what_is_no_key_is_refused(path: str, key: str, status: int, code: int, words: str) -> None:
    member = KeyedMember("a", A)
    async with running(member):
        found, body = await member.call("POST", path, key=key)
        assert (found, body["code"]) == (status, code)
        assert words in body["message"]
        assert member.serf.counters.queries_sent == 0


async def test_a_node_without_keys_and_one_that_does_not_run() -> None:
    member = KeyedMember("a")
    async with running(member):
        status, body = await member.call("GET", "keys")
        assert (status, body["code"]) == (400, 9)
        assert "encrypt_keys" in body["message"]
    await member.api.start()
    try:
        status, body = await member.call("POST", "keys/use", key=key_text(A))
        assert (status, body["code"]) == (503, 14)
    finally:
        await member.api.stop()


async def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = KeyedMember("a", A)
    second = KeyedMember("b", A, path=folder / "b.json")
    async with running(first, second):
        await all_see_all(first, second)
        folder.rename(tmp_path / "elsewhere")
        status, found = await first.call("POST", "keys/install", key=key_text(B))
        assert (status, found["num_responses"], found["num_errors"]) == (200, 2, 1)
        assert "cannot be written" in found["messages"]["b"]
        assert second.keys == (A, B)
        (tmp_path / "elsewhere").rename(folder)
        status, found = await first.call("POST", "keys/install", key=key_text(B))  # repeated, it is kept
        assert (found["num_responses"], found["num_errors"]) == (2, 0)
        assert second.kept() == [key_text(A), key_text(B)]


async def test_a_key_query_that_changes_nothing_is_neither_logged_nor_written(tmp_path: Path) -> None:
    member = KeyedMember("a", A, path=tmp_path / "a.json")
    async with running(member):
        assert (await member.call("POST", "keys/install", key=key_text(B)))[1]["num_errors"] == 0
        assert member.path is not None
        before = member.path.stat().st_ino
        with capture_logs() as lines:
            for path, key in (("keys/install", B), ("keys/use", A), ("keys/remove", C)):
                assert (await member.call("POST", path, key=key_text(key)))[1]["num_errors"] == 0
        assert [line["event"] for line in lines if "changed" in line["event"]] == []
        assert member.path.stat().st_ino == before
        await member.call("POST", "keys/use", key=key_text(B))
        assert member.path.stat().st_ino != before


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    member = KeyedMember("a", A, path=tmp_path / "a.json")
    keys = [bytes((number,)) * 16 for number in range(8)]
    async with running(member):
        counts = await asyncio.gather(*(member.membership.keys.ask(QUERY_INSTALL_KEY, key_text(key)) for key in keys))
        assert [count.errors for count in counts] == [0] * 8
        assert member.keys == (A, *keys)
        assert member.kept() == [key_text(key) for key in member.keys]


async def test_a_query_ends_with_the_node() -> None:
    """The other member is gone without a word, so the query waits for it."""
    first, second = KeyedMember("a", A), KeyedMember("b", A)
    async with running(first, second):
        await all_see_all(first, second)
        await second.membership.stop()
        asked = asyncio.ensure_future(first.call("GET", "keys"))
        await eventually(lambda: first.serf.counters.queries_sent == 1, "it asks")
        await first.membership.stop()
        status, body = await asyncio.wait_for(asked, DEADLINE)
        assert (status, body["code"]) == (503, 14)


async def test_a_member_that_does_not_answer_is_not_counted() -> None:
    first, second = KeyedMember("a", A), KeyedMember("b", A)
    async with running(first, second):
        await all_see_all(first, second)
        await second.membership.stop()
        counts = await first.membership.keys.ask(QUERY_LIST_KEYS, "")
        assert (counts.nodes, counts.responses, counts.keys) == (2, 1, {key_text(A): 1})


async def gmqttctl(member: KeyedMember, *arguments: str, stdin: str = "") -> Result:
    environment = {"GMQTTCTL_SERVERS": member.api.grpc_addresses[0]}
    with capture_logs():  # of the members, which the runner would take for the command's output
        return await asyncio.to_thread(
            CliRunner().invoke, main, ["keys", *arguments], input=stdin, env=environment, catch_exceptions=False
        )


async def test_the_commands() -> None:
    first, second = KeyedMember("a", A), KeyedMember("b", A)
    async with running(first, second):
        await all_see_all(first, second)
        for arguments, stdin in (
            (["install", key_text(B)], ""),
            (["use", "-"], f"{key_text(B)}\n"),
            (["remove", "--yes", key_text(A)], ""),
        ):
            found = await gmqttctl(first, *arguments, stdin=stdin)
            assert (found.exit_code, found.stdout.startswith("2 of 2 members")) == (0, True), found.output
        assert first.keys == second.keys == (B,)
        found = await gmqttctl(second, "list")
        assert found.exit_code == 0
        _, line, end = found.stdout.splitlines()
        assert line.split() == [key_text(B), "2", "of", "2", "2"]
        assert end.startswith("2 of 2")
        assert f'"{key_text(B)}": 2' in (await gmqttctl(first, "list", "--json")).stdout
        found = await gmqttctl(first, "remove", "--yes", key_text(B))
        assert found.exit_code == 1
        assert "0 of 2 members" in found.stderr
        assert found.stdout.count("primary") == 2
        found = await gmqttctl(first, "use", "--force", "YWJj")
        assert found.exit_code == 1
        assert "16, 24 or 32" in found.stderr
        assert second.serf.keyring is not None
        second.serf.keyring.install(C)  # the first one has missed it
        found = await gmqttctl(first, "use", key_text(C))
        assert found.exit_code == 1
        assert "1 of 2 members" in found.stderr
        assert first.keys == second.keys[:1] == (B,)
        await second.membership.stop()
        found = await gmqttctl(first, "install", key_text(C))
        assert found.exit_code == 1
        assert "1 of 2 members" in found.stderr
