"""Metrics and health checks over HTTP, of a node that runs in this process."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.codec.packets import Connect
from broker.codec.writer import encode_packet
from broker.config.addresses import Address, parse_address
from broker.config.loader import load
from broker.config.settings import Settings
from broker.config.settings_listeners import TlsSettings
from broker.metrics.settings import PrometheusSettings
from broker.server.lifecycle import Server
from broker.server.start_error import StartError
from certificates import Authority
from waiting import eventually

TEXT = """
listeners: [{{address: "127.0.0.1:0"}}]
api: {{http: [{{address: "tcp://127.0.0.1:0"}}]}}
plugin_order: [prometheus]
plugins: {{prometheus: {{listen_address: "127.0.0.1:0", path: {path}}}}}
"""


def settings_with(tmp_path: Path, path: str) -> Settings:
    file = tmp_path / "node.yml"
    file.write_text(TEXT.format(path=path))
    found = load(file).settings
    assert found is not None
    return found


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(settings_with(tmp_path, "/numbers"))
    await server.start()
    yield server
    await server.stop()


async def fetched(address: str, path: str, method: str = "GET") -> tuple[int, str, str]:
    """(status, content type, body)"""
    async with aiohttp.ClientSession() as session, session.request(method, f"http://{address}{path}") as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


def metrics_address(server: Server) -> str:
    (plugin,) = server.plugins
    return plugin.addresses[0]  # type: ignore[attr-defined,no-any-return]


async def test_the_library_of_prometheus_reads_the_text(server: Server) -> None:
    status, content_type, text = await fetched(metrics_address(server), "/numbers")
    assert status == 200
    assert content_type.startswith("text/plain; version=")
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert found["gmqtt_sessions_active_current"].samples[0].value == 0
    dropped = found["gmqtt_messages_dropped"]
    assert dropped.type == "counter"
    assert {"qos": "1", "reason": "queue_full"} in [sample.labels for sample in dropped.samples]
    assert "gmqtt_loop_lag_seconds" in found
    assert found["process_open_fds"].samples[0].value > 3


async def test_the_rest_api_has_metrics_and_health_checks_too(server: Server) -> None:
    assert server.api is not None
    address = parse_address(server.api.http_addresses[0]).host_port
    assert "gmqtt_sessions_active_current 0.0" in (await fetched(address, "/metrics"))[2]
    for base in (address, metrics_address(server)):
        assert await fetched(base, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
        assert await fetched(base, "/readyz") == (200, "application/json", '{"ready": true, "reasons": []}\n')
        assert (await fetched(base, "/readyz", "HEAD"))[0] == 200
        assert (await fetched(base, "/readyz", "POST"))[0] == 405


async def test_clients_are_counted_by_listener_and_version(server: Server) -> None:
    """A session that another connection takes over counts once; a reload begins no new count."""
    (listener,) = server.listeners.addresses

    def counted() -> dict[tuple[str, ...], float]:
        (metric,) = [metric for metric in server.metrics() if metric.name == "gmqtt_clients_current"]
        assert metric.labels == ("listener", "version")
        return {labels: value for labels, value in metric.samples.items() if value}

    name = str(server.settings.listeners[0].address)
    async with asyncio.timeout(30):
        writers = []
        for client_id, version in (("a", 3), ("b", 4), ("c", 5), ("c", 5)):
            reader, writer = await asyncio.open_connection(*listener.split(":"))
            writer.write(encode_packet(Connect(client_id, version), version))
            await reader.read(1)
            writers.append(writer)
        assert await server.reload(server.settings) == []
        assert counted() == {(name, "3.1"): 1, (name, "3.1.1"): 1, (name, "5.0"): 1}
        writers.pop().transport.abort()
        await eventually(lambda: counted() == {(name, "3.1"): 1, (name, "3.1.1"): 1}, "one has left")
        for writer in writers:
            writer.transport.abort()


async def test_an_obstacle_of_a_plugin_makes_a_node_not_ready(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    (plugin,) = server.plugins
    monkeypatch.setattr(plugin, "not_ready", lambda: ["the disk is full"])
    status, _, text = await fetched(metrics_address(server), "/readyz")
    assert (status, text) == (503, '{"ready": false, "reasons": ["the disk is full"]}\n')


async def test_other_paths_of_the_metrics_address_are_named(server: Server) -> None:
    status, _, text = await fetched(metrics_address(server), "/v1/clients")
    assert status == 404
    assert "this address has /healthz, /readyz, /numbers" in text


async def test_a_node_that_starts_or_stops_is_not_ready(tmp_path: Path) -> None:
    server = Server(settings_with(tmp_path, "/metrics"))
    assert server.not_ready() == ["the node is starting"]
    await server.start()
    assert server.not_ready() == []
    await server.stop()
    assert server.not_ready() == ["the node is stopping"]


@pytest.mark.parametrize("path", ["metrics", "/readyz"])
def test_a_path_that_cannot_be_served_is_refused(path: str) -> None:
    ((key, text),) = PrometheusSettings(path=path).broken_rules()
    assert key == "path"
    assert text.endswith("; /metrics is the usual one")


async def test_an_address_in_use_is_named(server: Server, tmp_path: Path) -> None:
    taken = metrics_address(server)
    settings = settings_with(tmp_path, "/metrics")
    second = Server(settings)
    (plugin,) = [settings.plugins.prometheus]
    assert isinstance(plugin, PrometheusSettings)
    host, _, port = taken.rpartition(":")
    wanted = replace(plugin, listen_address=Address("tcp", host, int(port)))
    second.settings = replace(settings, plugins=replace(settings.plugins, prometheus=wanted))
    with pytest.raises(StartError, match=r"plugins\.prometheus\.listen_address"):
        await second.start()
    await second.stop()


async def test_metrics_by_tls(tmp_path: Path) -> None:
    """With certificates that are read again at a reload; a file that cannot be used is named and changes nothing."""
    authority = Authority(tmp_path)
    pair = authority.pair("localhost")
    settings = settings_with(tmp_path, "/metrics")
    wanted = replace(settings.plugins.prometheus, tls=TlsSettings(cert=pair.cert, key=pair.key))
    server = Server(replace(settings, plugins=replace(settings.plugins, prometheus=wanted)))
    await server.start()
    try:
        address = metrics_address(server)
        first = await served_certificate(address, authority)
        authority.pair("localhost")
        (plugin,) = server.plugins
        await plugin.reload()
        second = await served_certificate(address, authority)
        assert second != first
        shutil.copy(pair.cert, pair.key)
        with pytest.raises(StartError, match=r"^plugins\.prometheus\.tls\.cert: .* are not PEM files"):
            await plugin.reload()
        assert await served_certificate(address, authority) == second
        with pytest.raises(aiohttp.ClientError):
            await fetched(address, "/metrics")
    finally:
        await server.stop()


async def served_certificate(address: str, authority: Authority) -> bytes:
    """The certificate of an address that answers with metrics."""
    context = ssl.create_default_context(cafile=authority.cacert)
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"https://{address}/metrics") as answer,
    ):
        assert answer.status == 200
        assert "gmqtt_sessions_active_current" in await answer.text()
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.transport.abort()
    assert isinstance(certificate, bytes)
    return certificate


def test_the_rules_of_tls_are_those_of_a_listener(tmp_path: Path) -> None:
    file = tmp_path / "node.yml"
    text = TEXT.format(path="/metrics").replace("prometheus: {", "prometheus: {tls: {cert: c}, ", 1)
    file.write_text(text)
    (fault,) = load(file).faults
    assert "plugins.prometheus.tls: key is missing" in str(fault)
