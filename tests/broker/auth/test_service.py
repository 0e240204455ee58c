"""AccountService over REST and gRPC, as clients of the Go broker call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest

from api_calls import Rest, api_settings
from broker.api.server import ApiServer
from broker.auth.check_queue import CheckPool
from broker.auth.files import AccountFile
from broker.auth.passwords import Passwords
from broker.auth.pb import account_pb2 as pb
from broker.auth.pb.account_pb2_grpc import AccountServiceStub
from broker.auth.service import AccountService
from broker.auth.settings import AuthSettings
from broker.server.logging import get_logger


class Node:
    def __init__(self, path: Path) -> None:
        self.removed: set[str] = set()
        self.path = path
        self.pool = CheckPool(1)
        file = AccountFile(str(path), "md5")
        self.passwords = Passwords(file, "md5", self.pool, self.remove)
        log = get_logger("api")
        self.api = ApiServer(api_settings(["tcp://127.0.0.1:0"], ["tcp://127.0.0.1:0"]), {}, log)
        service = AccountService(self.passwords, AuthSettings(new_hash="md5"), log)
        self.api.register(pb.DESCRIPTOR.services_by_name["AccountService"], service)

    async def remove(self, usernames: Set[str]) -> None:
        self.removed |= usernames


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path / "accounts.yml")
    await made.api.start()
    yield made
    await made.api.stop()
    made.pool.stop()


@pytest.fixture
async def rest(node: Node) -> AsyncIterator[Rest]:
    async with aiohttp.ClientSession() as session:
        yield Rest(session, f"http://{node.api.http_addresses[0]}")


async def test_accounts_over_rest(node: Node, rest: Rest) -> None:
    """The file has them after each answer; no answer has a password or its hash."""
    assert await rest.get("/v1/accounts") == {"accounts": [], "total_count": 0}
    for name in ("alice", "b%2Fob", "m%C3%BCller"):
        assert await rest.post(f"/v1/accounts/{name}", {"password": "secret"}) == {}
    account = {"username": "b/ob", "password": "", "role": ""}
    assert await rest.get("/v1/accounts/b%2Fob") == {"account": account}
    found = await rest.get("/v1/accounts?page=2&page_size=1")
    assert found == {"accounts": [account], "total_count": 3}
    assert node.path.read_text().count("5ebe2294ecd0e0f08eab7690d2a6ee69") == 3
    assert (await rest.call("DELETE", "/v1/accounts/alice"))[0] == 200
    assert (await rest.call("DELETE", "/v1/accounts/alice"))[0] == 200
    assert "alice" not in node.path.read_text()
    assert list(node.passwords.accounts) == ["b/ob", "müller"]
    assert node.removed == {"alice"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/v1/accounts/nobody", None, 404, 'no account "nobody"'),
        ("POST", "/v1/accounts/alice", {}, 400, "the password is empty"),
        ("POST", "/v1/accounts/alice", {"password": ""}, 400, "the password is empty"),
        ("POST", "/v1/accounts/a%0Ab", {"password": "secret"}, 400, "control character"),
        ("POST", "/v1/accounts/alice", {"role": "link"}, 400, "the password is empty"),
        ("POST", "/v1/accounts/alice", {"password": "secret", "role": "king"}, 400, '"king" is not "link"'),
    ],
)
async def test_faults_of_a_request(
    node: Node, rest: Rest, method: str, path: str, body: Any, status: int, words: str
) -> None:
    got, answer = await rest.call(method, path, body)
    assert got == status
    assert words in answer["message"]
    assert "secret" not in answer["message"]
    assert node.passwords.accounts == {}


async def test_the_role_of_an_account_over_rest(node: Node, rest: Rest) -> None:
    """A new password keeps the role, a new role the password."""
    await rest.post("/v1/accounts/alice", {"password": "one", "role": "link"})
    assert (await rest.get("/v1/accounts/alice"))["account"]["role"] == "link"
    await rest.post("/v1/accounts/alice", {"password": "two"})
    assert node.passwords.role_of("alice") == "link"
    stored = node.passwords.accounts["alice"].password
    node.removed.clear()
    await rest.post("/v1/accounts/alice", {"role": ""})
    assert node.passwords.role_of("alice") == ""
    assert node.passwords.accounts["alice"].password == stored
    assert node.removed == {"alice"}
    assert node.passwords.role_of("nobody") == ""


async def test_a_file_that_cannot_be_written_changes_nothing(node: Node, rest: Rest) -> None:
    await rest.post("/v1/accounts/alice", {"password": "secret"})
    node.path.write_text("damaged")
    for method, body in (("POST", {"password": "other"}), ("DELETE", None)):
        status, answer = await rest.call(method, "/v1/accounts/alice", body)
        assert status == 500
        assert "not a list of accounts" in answer["message"]
        assert str(node.path) not in answer["message"]
    assert list(node.passwords.accounts) == ["alice"]
    assert node.path.read_text() == "damaged"


async def test_changes_at_the_same_time_are_all_kept(node: Node, rest: Rest) -> None:
    names = [f"user{number}" for number in range(20)]
    await asyncio.gather(*(rest.post(f"/v1/accounts/{name}", {"password": "secret"}) for name in names))
    assert sorted(node.passwords.accounts) == sorted(names)
    assert sorted(node.passwords.file.read()) == sorted(names)


async def test_accounts_over_grpc(node: Node) -> None:
    async with grpc.aio.insecure_channel(node.api.grpc_addresses[0]) as channel:
        stub: Any = AccountServiceStub(channel)
        await stub.Update(pb.UpdateAccountRequest(username="alice", password="secret"))
        found = await stub.List(pb.ListAccountsRequest())
        assert [account.username for account in found.accounts] == ["alice"]
        await stub.Delete(pb.DeleteAccountRequest(username="alice"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Get(pb.GetAccountRequest(username="alice"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
