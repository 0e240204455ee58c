"""Links that log in by certificate; certificates that expire or are revoked while a link is up, and new ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.auth.passwd import set_password
from certificates import Authority, Pair
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes

SERVER, LINK = "server", "link"  # names of the files


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@dataclass
class Secured:
    """A node with a link over TLS to another node, which asks for the certificate of the link."""

    upstream: Node
    node: Node
    own: Pair

    async def row(self) -> dict[str, Any]:
        status, answer = await self.node.rest("GET", "/v1/federation-links")
        assert status == 200, answer
        (row,) = answer["links"]
        assert isinstance(row, dict)
        return row

    async def becomes(self, status: str) -> dict[str, Any]:
        """Wait until the link has this status."""

        async def found() -> dict[str, Any] | None:
            row = await self.row()
            return row if row["status"] == status else None

        row: dict[str, Any] = await eventually(found, f"the link is {status}")
        return row

    async def connects_anew(self) -> None:
        """End the connection of the link, which tries another one at once."""
        status, answer = await self.node.rest("POST", f"/v1/federation-links/{(await self.row())['id']}/restart", {})
        assert status == 200, answer


def api(nodes: Nodes) -> dict[str, Any]:
    return {"http": [{"address": f"tcp://127.0.0.1:{nodes.free_port()}"}]}


async def start(
    nodes: Nodes,
    authority: Authority,
    reconnect_delay: float,
    subject: str = LINK,
    query: str = "",
    of_upstream: dict[str, Any] | None = None,
) -> Secured:
    """`subject`: of the certificate of the link. `query`: of the URI. `of_upstream`: further sections of its configuration."""
    server, own = authority.pair(SERVER), authority.pair(subject)
    port = nodes.free_port()
    plain = {"address": f"127.0.0.1:{nodes.free_port()}"}
    tls = {
        "cert": server.cert,
        "key": server.key,
        "cacert": authority.cacert,
        "verify": True,
        "crl": authority.revocation_list(),
    }
    listeners = [plain, {"address": f"127.0.0.1:{port}", "tls": tls, "each_worker": True}]
    config = {"listeners": listeners, "mqtt": {"session_expiry": "1h"}, **(of_upstream or {})}
    upstream = await nodes.start(config, name="upstream")
    keys = {"cacertfile": authority.cacert, "certfile": own.cert, "keyfile": own.key}
    north = {"uri": f"mqtts://localhost:{port}{query}", "reconnect-delay": reconnect_delay, "tls": keys}
    links = {
        "domain": "berlin",
        "upstreams": {"north": north},
        "policies": {"all": {"pattern": "a", "definition": {"federation-upstream": "north"}}},
    }
    own_config = {"plugin_order": ["links"], "plugins": {"links": links}, "api": api(nodes)}
    node = await nodes.start(own_config, name="downstream")
    return Secured(upstream, node, own)


@pytest.mark.parametrize(("subject", "domain"), [("berlin", "berlin"), ("paris", "")])
async def test_a_link_logs_in_by_its_certificate(
    nodes: Nodes, clients: Clients, authority: Authority, tmp_path: Path, subject: str, domain: str
) -> None:
    """Its subject is the user name at the upstream. It is a link there where the account of that name has the role."""
    accounts = tmp_path / "passwords.yml"
    set_password(str(accounts), "berlin", b"nobody knows it", "argon2id", False, True, "link")
    config = {
        "plugin_order": ["auth", "admin"],
        "plugins": {"auth": {"password_file": str(accounts), "use_identity_as_username": True}},
        "api": api(nodes),
    }
    secured = await start(nodes, authority, 0.3, subject, "?auth_mechanism=external", config)
    reader = await clients.connect(secured.node.port, "reader")
    await reader.subscribe("a", qos=1)
    await secured.becomes("running")
    status, answer = await secured.upstream.rest("GET", f"/v1/clients?username={subject}&connected=true")
    assert status == 200, answer
    assert [client["link_domain"] for client in answer["clients"]] == [domain]
    message = {"topic_name": "a", "payload": "over the link", "qos": 1}
    assert (await secured.upstream.rest("POST", "/v1/publish", message))[0] == 200
    assert (await reader.message()).payload == b"over the link"


async def test_a_certificate_of_the_upstream_that_has_expired_and_a_new_one(
    nodes: Nodes, clients: Clients, authority: Authority
) -> None:
    secured = await start(nodes, authority, 0.3)
    reader = await clients.connect(secured.node.port, "reader")
    await reader.subscribe("a", qos=1)
    await secured.becomes("running")
    writer = await clients.connect(secured.upstream.port, "writer")
    authority.pair(SERVER, age_days=5)
    await secured.upstream.reload()
    await writer.publish("a", b"the connection stays", qos=1)
    assert (await reader.message()).payload == b"the connection stays"
    assert (await secured.row())["status"] == "running"
    await secured.connects_anew()
    row = await secured.becomes("error")
    assert row["error"] == "TLS: the certificate of the upstream is refused: certificate has expired"
    for number in range(10):
        await writer.publish("a", b"%d" % number, qos=1)
    authority.pair(SERVER)
    await secured.upstream.reload()
    came: list[bytes] = []
    while not came or came[-1] != b"9":
        came.append((await reader.message()).payload)
    if came[0] == b"the connection stays":  # its acknowledgement had not left before the connection ended
        del came[0]
    assert came == [b"%d" % number for number in range(10)]
    row = await secured.becomes("running")
    assert (row["sessions_lost"], row["reconnects"]) == ("0", "1")


@pytest.mark.slow
async def test_a_certificate_of_the_link_that_is_revoked_and_a_new_one(
    nodes: Nodes, clients: Clients, authority: Authority
) -> None:
    """A reload of the link's node tries the new certificate at once, whatever the delay."""
    secured = await start(nodes, authority, 300.0)
    reader = await clients.connect(secured.node.port, "reader")
    await reader.subscribe("a", qos=1)
    await secured.becomes("running")
    authority.revocation_list(secured.own)
    await secured.upstream.reload()
    assert (await secured.row())["status"] == "running"
    await secured.connects_anew()
    row = await secured.becomes("error")
    assert row["error"] == "TLS: the upstream refuses the certificate of the link (tls.certfile): certificate revoked"
    writer = await clients.connect(secured.upstream.port, "writer")
    for number in range(10):
        await writer.publish("a", b"%d" % number, qos=1)
    authority.pair(LINK)
    await secured.node.reload()
    assert [message.payload for message in await reader.take(10)] == [b"%d" % number for number in range(10)]
    row = await secured.becomes("running")
    assert (row["sessions_lost"], row["reconnects"]) == ("0", "1")
    assert "3.1.1" not in " ".join(row["notes"])
