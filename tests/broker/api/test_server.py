"""ApiServer: addresses, faults of starting, the end; with a service that does what a test wants."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from api_calls import PUBLISH, REQUEST, publish_grpc, publish_rest
from broker.api.pb import admin_pb2 as pb
from broker.server.start_error import StartError


async def test_every_address_serves_every_service(make_api: Any, tmp_path: Path) -> None:
    paths = [f"unix://{tmp_path}/{name}" for name in ("grpc", "http")]
    api, service = make_api(["127.0.0.1:0", "127.0.0.1:0", paths[0]], ["127.0.0.1:0", "tcp://127.0.0.1:0", paths[1]])
    await api.start()
    assert len(set(api.grpc_addresses)) == len(set(api.http_addresses)) == 3
    for address in api.grpc_addresses:
        await publish_grpc(address.replace("unix://", "unix:"))
    for address in api.http_addresses:
        assert await publish_rest(address) == (200, "{}")
    assert service.requests == [REQUEST] * 6
    await api.stop()
    assert os.listdir(tmp_path) == []


async def test_all_interfaces(make_api: Any) -> None:
    api, service = make_api([":0"], [":0"])
    await api.start()
    await publish_grpc(f"127.0.0.1{api.grpc_addresses[0]}")
    assert api.grpc_addresses[0].startswith(":")
    assert api.http_addresses[0].startswith(":")
    assert len(service.requests) == 1


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_two_nodes_do_not_share_a_port(make_api: Any, kind: str) -> None:
    first, _ = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
    await first.start()
    taken = first.grpc_addresses if kind == "grpc" else first.http_addresses
    second, _ = make_api(*((taken, []) if kind == "grpc" else ([], taken)))
    with pytest.raises(StartError, match=rf"^api\.{kind}\[0\]\.address: .* is in use .*give another port"):
        await second.start()
    await first.stop()
    await second.start()  # what failed has left nothing open


async def test_a_service_is_registered_once(make_api: Any) -> None:
    api, service = make_api([], [])
    with pytest.raises(ValueError, match=r"gmqtt\.admin\.api\.PublishService is registered already"):
        api.register(PUBLISH, service)
    with pytest.raises(AttributeError):
        api.register(pb.DESCRIPTOR.services_by_name["ClientService"], service)


async def test_stop_waits_for_calls_but_not_for_ever(make_api: Any) -> None:
    for release in (True, False):
        api, service = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
        await api.start()
        service.release.clear()
        calls = [
            asyncio.create_task(publish_rest(api.http_addresses[0])),
            asyncio.create_task(publish_grpc(api.grpc_addresses[0])),
        ]
        while len(service.requests) < 2:
            await service.entered.wait()
            service.entered.clear()
        stopping = asyncio.create_task(api.stop())
        if release:
            asyncio.get_running_loop().call_later(0.05, service.release.set)
        async with asyncio.timeout(10):
            await stopping
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert (results == [(200, "{}"), None]) is release
        service.release.set()
        await api.stop()  # again: nothing happens
