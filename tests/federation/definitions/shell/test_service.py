"""Definitions of a running node: their file, and who is told of a change."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from broker.api.errors import ApiError
from broker.server.start_error import StartError
from definitions_node import definitions_node
from federation.definitions.entry import POLICY, UPSTREAM, Entry, canonical
from federation.definitions.shell.stored import FILE

URI = {"uri": "mqtt://user:secret@127.0.0.1:1"}
ALL = {"pattern": "a/#", "definition": {"federation-upstream-set": "all"}}


async def test_definitions_are_there_after_a_restart(tmp_path: Path) -> None:
    async with definitions_node(tmp_path) as (service, host):
        await service.put(UPSTREAM, "u", URI)
        await service.put(UPSTREAM, "gone", URI)
        await service.put(POLICY, "p", ALL)
        assert await service.delete(UPSTREAM, "gone")
        assert [len(resolution.links()) for resolution in host.resolutions] == [0, 0, 2, 1]
        before = set(service.definitions.entries())
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    async with definitions_node(tmp_path) as (service, host):
        assert set(service.definitions.entries()) == before
        assert [link.upstream.name for link in service.resolution().links()] == ["u"]
        assert host.resolutions == []


async def test_definitions_of_another_node_are_stored_too(tmp_path: Path) -> None:
    async with definitions_node(tmp_path) as (service, host):
        entry = Entry(UPSTREAM, "u", 1 << 40, "n2", canonical(URI))
        for _ in range(2):
            service.definitions.merge([entry], service.unix_time())
            service.merged("n2")
        assert len(host.resolutions) == 1
    assert json.loads((tmp_path / FILE).read_bytes())["entries"][0]["node"] == "n2"


async def test_a_change_is_in_effect_when_it_cannot_be_stored(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    async with definitions_node(folder) as (service, host):
        folder.rmdir()
        with pytest.raises(ApiError, match="in effect, but not stored on this node: No such file"):
            await service.put(UPSTREAM, "u", URI)
        with pytest.raises(ApiError, match="in effect, but not stored"):
            await service.put(UPSTREAM, "u", URI)
        assert len(host.resolutions) == 1
        folder.mkdir()
        await service.put(UPSTREAM, "v", URI)
    names = [entry["name"] for entry in json.loads((folder / FILE).read_bytes())["entries"]]
    assert names == ["u", "v", "u", "v"]  # the keys of their links, too


async def test_a_definition_without_full_effect_is_told_once() -> None:
    with structlog.testing.capture_logs() as lines:
        async with definitions_node() as (service, _):
            for name, value in (("p", {"federation-upstream": "gone"}), ("q", {"federation-upstream-set": "all"})):
                await service.put(POLICY, name, {"pattern": "a", "definition": value})
            await service.put(UPSTREAM, "u", URI)
            await service.delete(UPSTREAM, "u")
    told = [line["reason"].split(":")[0] for line in lines if line["event"] == "a definition has no full effect"]
    assert told == ['policy "p"', 'policy "q"', 'policy "q"']
    assert "secret" not in str(lines)


@pytest.mark.parametrize("data", [b"{", b'{"format": 9, "entries": []}', b'{"format": 1, "entries": [{}]}'])
async def test_a_damaged_file_stops_the_start_and_stays(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(StartError) as caught:
        async with definitions_node(tmp_path):
            pass
    assert str(caught.value).startswith(f"plugins.links: {tmp_path / FILE}: ")
    assert "left as it is" in str(caught.value)
    assert (tmp_path / FILE).read_bytes() == data


async def test_changes_at_one_time_are_all_stored(tmp_path: Path) -> None:
    async with definitions_node(tmp_path) as (service, _):
        await asyncio.gather(*(service.put(UPSTREAM, f"u{index}", URI) for index in range(50)))
        stored: Any = json.loads((tmp_path / FILE).read_bytes())
        assert len([entry for entry in stored["entries"] if entry["component"] == UPSTREAM]) == 50


async def test_files_and_addresses_that_are_not_there_are_warnings(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (tmp_path / "ca").write_bytes(b"")
    tls = {"cacertfile": str(tmp_path / "ca"), "certfile": str(tmp_path / "c"), "keyfile": str(tmp_path / "c")}
    async with definitions_node() as (service, _):
        there = {"uri": [f"mqtts://127.0.0.1:{port}", "mqtts://u:secret@127.0.0.1:1"], "tls": tls}
        assert await service.put(UPSTREAM, "u", there) == [
            "uri: mqtts://127.0.0.1:1 does not answer from this node: Connection refused",
            f"tls: {tmp_path / 'c'} cannot be read on this node: No such file or directory",
        ]
    server.close()
    await server.wait_closed()


async def test_what_is_stamped_anew_is_told_once(tmp_path: Path) -> None:
    async with definitions_node(tmp_path) as (service, host):
        now = service.own_time()
        host.skew = 1e9
        await service.put(UPSTREAM, "u", URI)
        told: list[int] = []
        service.made_here = lambda: told.append(service.definitions.counters.stamped_anew)
        service.clock.set_members(["n2", "n3"])
        for node in ("n2", "n3", "n2", "n3"):
            service.heard_clock(node, now)
        assert told == [2], "the upstream and its link, at once"
