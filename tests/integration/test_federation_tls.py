"""Nodes with certificates as processes: messages, definitions with passwords, jobs; certificates that are renewed; what a start
and `check` say."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Final

import pytest

from broker.codec.properties import RECEIVE_MAXIMUM
from certificates import Authority
from mqtt_client import Clients
from node_process import LANE_WORKERS, Node, Nodes, free_port, merged
from waiting import eventually

GROUP: Final = "$share/workers/jobs/#"
POLICY: Final = {"pattern": "sensors/#", "definition": {"federation-upstream-set": "all"}}
LINKS: Final[dict[str, Any]] = {
    "plugin_order": ["admin", "federation", "links"],
    "plugins": {"links": {"domain": "berlin", "policies": {"jobs": {"pattern": GROUP, "definition": {}}}}},
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def federated(nodes: Nodes, authority: Authority, join: list[Node], **federation: Any) -> Node:
    """A node with a certificate, whose files the configuration names by relative paths."""
    name = f"node{len(nodes.all) + 1}"
    pair = authority.node(name)
    tls = {"cert": Path(pair.cert).name, "key": Path(pair.key).name, "cacert": Path(authority.cacert).name}
    section = {"node_name": name, "tls": {**tls, "addr": f"127.0.0.1:{free_port()}"}, "require_tls": True, **federation}
    node = nodes.make_federated(join, merged(LINKS, {"plugins": {"federation": section}}))
    if section["require_tls"]:
        del node.config["plugins"]["federation"]["fed_addr"]
    return node


def lines_with(node: Node, text: str) -> list[str]:
    """The lines of the log with it: at most one of each worker about each worker of another node."""
    lines = [line for line in node.log().splitlines() if text in line]
    assert 1 <= len(lines) <= LANE_WORKERS**2, lines
    return lines


async def peers(node: Node) -> dict[str, dict[str, Any]]:
    status, answer = await node.rest("GET", "/v1/federation/peers")
    assert status == 200, answer
    return {peer["node_name"]: peer for peer in answer["peers"]}


async def streams_with_tls(node: Node, *names: str) -> bool:
    found = await peers(node)
    return all(name in found and found[name]["state"] == "streaming" and found[name]["tls"] for name in names)


async def test_everything_between_nodes_goes_over_tls(
    nodes: Nodes, clients: Clients, authority: Authority, tmp_path: Path
) -> None:
    """Messages both ways, event logs, a definition with a password at a node that is not on loopback for others, and jobs."""
    one = federated(nodes, authority, [])
    other = federated(nodes, authority, [one])
    for node in (one, other):
        node.config["plugin_order"].append("event_log")
        node.config["plugins"]["event_log"] = {"dir": str(tmp_path / f"log-{node.name}")}
    upstream = nodes.make_federated()
    for node in (upstream, one, other):
        await node.start()
    await eventually(lambda: streams_with_tls(one, "node2"), "a stream with TLS")
    await eventually(lambda: streams_with_tls(other, "node1"), "a stream with TLS")
    for source, target in ((one, other), (other, one)):
        reader = await clients.connect(target.port)
        before = await events_of(source, target)
        await reader.subscribe(f"from/{source.name}", qos=1)
        await eventually(lambda s=source, t=target, n=before: has_more(s, t, n), "the interest")
        writer = await clients.connect(source.port)
        await writer.publish(f"from/{source.name}", b"hello", qos=1)
        assert (await reader.message()).payload == b"hello"
    reader = await clients.connect(one.port)
    await reader.subscribe("$stream/earliest/from/#", qos=1)
    assert [message.topic for message in await reader.take(2)] == [b"from/node1", b"from/node2"]
    for node in (one, other):
        tags = (await node.members())["node1"]["tags"]
        assert "fed_addr" not in tags
        assert tags["fed_tls"] == one.config["plugins"]["federation"]["tls"]["addr"]

    uri = f"mqtt://user:hunter2@127.0.0.1:{upstream.port}"
    status, answer = await one.rest("PUT", "/v1/parameters/federation-upstream/north", {"value": {"uri": uri}})
    assert status == 200
    assert not any("allow_plain_secrets" in text for text in answer["warnings"])
    await other.logged("definition changed")
    assert (await one.rest("PUT", "/v1/policies/p", POLICY))[0] == 200
    status, text = await other.rest_text("GET", "/v1/parameters")
    assert status == 200
    assert "north" in text

    worker = await clients.connect(one.port, properties={RECEIVE_MAXIMUM: 1})
    await worker.subscribe(GROUP, qos=1)
    writer = await clients.connect(other.port)
    holder = await clients.connect(other.port, properties={RECEIVE_MAXIMUM: 1})
    holder.acknowledges = False
    await holder.subscribe(GROUP, qos=1)
    await eventually(lambda: jobs_run(one), "the links for jobs run")
    for number in range(3):
        await writer.publish("jobs/a", b"%d" % number, qos=1)
    done = {(await holder.message()).payload, (await worker.message()).payload, (await worker.message()).payload}
    assert done == {b"0", b"1", b"2"}
    for node in (one, other):
        assert "hunter2" not in node.log()
        assert "refused a" not in node.log()


async def events_of(node: Node, other: Node) -> int:
    return int((await peers(node))[other.name]["events_received"])


async def has_more(node: Node, other: Node, events: int) -> bool:
    return await events_of(node, other) > events


async def jobs_run(node: Node) -> bool:
    status, answer = await node.rest("GET", "/v1/federation-links")
    assert status == 200, answer
    jobs = [link for link in answer["links"] if link["type"] == "queues"]
    return bool(jobs) and all(
        link["status"] in ("running", "paused") and link["uri"].startswith("mqtts://") for link in jobs
    )


async def test_certificates_are_renewed_without_a_restart(nodes: Nodes, clients: Clients, authority: Authority) -> None:
    """The certificate of one node has expired: it serves its own clients, and is a peer again after SIGHUP."""
    one = federated(nodes, authority, [])
    other = federated(nodes, authority, [one])
    authority.node("node2", age_days=5)
    await one.start()
    await other.start()
    await other.logged("other nodes refuse this certificate: certificate has expired")
    await one.logged("certificate has expired")
    await other.logged("it refuses the certificate of this node: certificate expired")
    assert not await streams_with_tls(one, "node2")
    client = await clients.connect(other.port)
    await client.ping()
    authority.node("node2")
    assert other.process is not None
    other.process.send_signal(signal.SIGHUP)
    await eventually(lambda: streams_with_tls(one, "node2"), "a stream to the node with the new certificate")
    await eventually(lambda: streams_with_tls(other, "node1"), "a stream from it")


async def test_files_that_cannot_be_used_at_a_reload_leave_the_former_ones(nodes: Nodes, authority: Authority) -> None:
    one = federated(nodes, authority, [])
    other = federated(nodes, authority, [one])
    await one.start()
    await other.start()
    await eventually(lambda: streams_with_tls(one, "node2"), "a stream")
    authority.pair("node2", dns_names=("node9",))
    assert other.process is not None
    other.process.send_signal(signal.SIGHUP)
    await other.logged("a file was not read again")
    for line in lines_with(other, "a file was not read again"):
        assert "plugins.federation.tls.cert" in line
        assert "node9" in line
    assert await streams_with_tls(one, "node2")


@pytest.mark.parametrize("fault", ["name", "authority", "missing"])
async def test_a_start_with_files_that_no_node_would_trust_is_refused(
    nodes: Nodes, authority: Authority, tmp_path: Path, fault: str
) -> None:
    node = federated(nodes, authority, [])
    if fault == "name":
        authority.pair("node1", dns_names=("node2",))
    elif fault == "authority":
        foreign = Authority(tmp_path / "foreign", "another").node("node1")
        for source, file in ((foreign.cert, "node1.cert.pem"), (foreign.key, "node1.key.pem")):
            (tmp_path / file).write_bytes(Path(source).read_bytes())  # noqa: ASYNC240
    else:
        (tmp_path / "node1.key.pem").unlink()
    node.spawn()
    assert await node.wait_ended() == 1
    key = "plugins.federation.tls.key" if fault == "missing" else "plugins.federation.tls.cert"
    checked = node.command("check")
    assert checked.returncode == 1
    for text in (node.log(), checked.stderr):
        assert key in text
        assert {"name": "node2", "authority": "cacert", "missing": "node1.key.pem"}[fault] in text.replace(
            Path(authority.cacert).name, "cacert"
        )


async def test_a_member_without_tls_is_named_where_tls_is_required(nodes: Nodes, authority: Authority) -> None:
    one = federated(nodes, authority, [])
    plain = nodes.make_federated([one])
    await one.start()
    await plain.start()
    await one.logged("refused a member")
    await plain.logged("refused a member")
    for line in lines_with(one, "refused a member"):
        assert "node=node2" in line
        assert "require_tls" in line
    for node, other in ((one, plain), (plain, one)):
        assert not [name for name in await peers(node) if name.startswith(other.name)]
