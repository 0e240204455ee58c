"""ClientService on a real broker, over REST."""

from __future__ import annotations

from typing import Any

import pytest

from api_calls import ErrorCase
from broker.api.pb.admin_pb2 import Client
from broker.codec.properties import USER_PROPERTY
from broker.origin import NAME
from federation.links.bridging.bridging import bridging_of


async def test_a_client_is_shown_with_all_fields(node: Any, rest: Any) -> None:
    client = node.world.connect("c1", keep_alive=30, expiry=60)
    client.subscribe(b"a/#")
    node.world.advance(5)
    answer = await rest.get("/v1/clients/c1")
    shown = answer["client"]
    assert list(answer) == ["client"]
    # A connected client has no disconnected_at; all else is there, zero or not.
    fields = set(Client.DESCRIPTOR.fields_by_name)
    assert set(shown) == fields - {"disconnected_at"}
    assert (shown["client_id"], shown["keep_alive"], shown["version"], shown["session_expiry"]) == ("c1", 30, 5, 60)
    assert shown["remote_addr"] == "127.0.0.1:1"
    assert shown["connected_at"] == "2023-11-14T22:30:00Z"
    assert (shown["subscriptions_current"], shown["subscriptions_total"]) == (1, 1)
    assert shown["packets_received_nums"] == "2"  # 64 bits: text in JSON
    assert int(shown["packets_send_bytes"]) > 0


async def test_a_client_that_is_away_has_the_time_of_its_end(node: Any, rest: Any) -> None:
    client = node.world.connect("c1", expiry=60)
    node.world.advance(2)
    client.cut()
    shown = (await rest.get("/v1/clients/c1"))["client"]
    assert shown["disconnected_at"] == "2023-11-14T22:30:02Z"


async def test_clients_come_in_pages(node: Any, rest: Any) -> None:
    for index in range(25):
        node.world.connect(f"c{index}")
    names = [f"c{index}" for index in range(25)]
    for query, wanted in [
        ("", names[:20]),
        ("?page=2", names[20:]),
        ("?page=3&page_size=4", names[8:12]),
        ("?page=3&pageSize=4", names[8:12]),
        ("?page=7&page_size=4", names[24:]),
        ("?page=8&page_size=4", []),
        ("?page=4294967295&page_size=1000", []),
    ]:
        answer = await rest.get(f"/v1/clients{query}")
        assert [client["client_id"] for client in answer["clients"]] == wanted, query
        assert answer["total_count"] == 25


async def test_clients_are_found_by_their_attributes(node: Any, rest: Any) -> None:
    for name, version in (("pump-1", 5), ("pump-2", 4), ("door", 5)):
        node.world.connect(name, version, username="site" if name == "door" else "pumps")
    node.world.connect("pump-9", expiry=60).cut()
    for query, wanted in [
        ("?client_id=pump-", ["pump-1", "pump-2", "pump-9"]),
        ("?username=pumps", ["pump-1", "pump-2"]),
        ("?version=5&connected=true", ["pump-1", "door"]),
        ("?connected=false", ["pump-9"]),
        ("?remote_addr=127.0.0.1:&client_id=d", ["door"]),
        ("?remote_addr=10.", []),
    ]:
        answer = await rest.get(f"/v1/clients{query}")
        assert [client["client_id"] for client in answer["clients"]] == wanted, query
        assert answer["total_count"] == len(wanted)
    answer = await rest.get("/v1/clients?client_id=pump-&page_size=2&page=2")
    assert ([client["client_id"] for client in answer["clients"]], answer["total_count"]) == (["pump-9"], 3)


@pytest.mark.parametrize("client_id", ["a/b", "100%", "ü b", "..", "?x=1"])
async def test_a_client_id_in_the_path_is_percent_encoded(node: Any, rest: Any, client_id: str) -> None:
    node.world.connect(client_id)
    encoded = "".join(f"%{byte:02X}" for byte in client_id.encode())
    assert (await rest.get(f"/v1/clients/{encoded}"))["client"]["client_id"] == client_id


async def test_links_are_shown_with_their_domain(node: Any, rest: Any) -> None:
    bridging_of(node.broker)
    node.world.connect("c1")
    node.world.connect("l1", properties={USER_PROPERTY: [(NAME.decode(), "1 domain=oslo max-hops=2")]})
    found = (await rest.get("/v1/clients"))["clients"]
    assert [client["link_domain"] for client in found] == ["", "oslo"]
    for query, names in (("true", ["l1"]), ("false", ["c1"])):
        found = (await rest.get(f"/v1/clients?link={query}"))["clients"]
        assert [client["client_id"] for client in found] == names


async def test_delete_disconnects_and_ends_the_session_only_when_asked(node: Any, rest: Any) -> None:
    for query, stays in (("", True), ("?clean_session=false", True), ("?clean_session=true", False)):
        client = node.world.connect("c1", expiry=60)
        assert await rest.call("DELETE", f"/v1/clients/c1{query}") == (200, {})
        assert client.closed
        assert ("c1" in node.broker.sessions) is stays
    assert await rest.call("DELETE", "/v1/clients/nobody") == (200, {})


async def test_a_session_of_a_link_is_released(node: Any, rest: Any) -> None:
    bridging_of(node.broker)
    node.world.connect("l1", properties={USER_PROPERTY: [(NAME.decode(), "1 domain=oslo max-hops=2")]})
    assert await rest.call("POST", "/v1/clients/l1/release") == (200, {})
    assert node.broker.sessions["l1"].bridge_end.is_released


ERRORS: list[ErrorCase] = [
    # method, path, body, HTTP status, gRPC code, words of the message
    ("GET", "/v1/clients/nobody", None, 404, 5, 'client "nobody" has no session'),
    ("POST", "/v1/clients/nobody/release", None, 404, 5, 'client "nobody" has no session'),
    ("POST", "/v1/clients/c1/release", None, 400, 9, '"c1" is of no link'),
    ("GET", "/v1/clients/%ff", None, 400, 3, "client_id in the path is not UTF-8"),
    ("GET", "/v1/clients?page=x", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=-1", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=4294967296", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=1&page=2", None, 400, 3, '"page" is given 2 times'),
    ("GET", "/v1/clients?page_size=1&pageSize=2", None, 400, 3, '"page_size" is given 2 times'),
    ("GET", "/v1/clients", "{}", 400, 3, "takes no body"),
    ("DELETE", "/v1/clients/c1?clean_session=maybe", None, 400, 3, '"clean_session" is "maybe", must be true or false'),
]


@pytest.mark.parametrize("case", ERRORS, ids=[f"{case[0]} {case[1]} {case[5]}"[:70] for case in ERRORS])
async def test_errors(node: Any, rest: Any, case: ErrorCase) -> None:
    node.world.connect("c1")
    await rest.fails(case)
