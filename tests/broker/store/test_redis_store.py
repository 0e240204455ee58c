"""The Redis store: warnings of settings that keep less, an owner lock, a server that goes and comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.store.redis_store import RedisStore
from broker.store.store import VERSION, LostCommits, OwnerLost, StoreFault
from redis_process import REDIS_MISSING, REDIS_SERVER, RedisServer

pytestmark = pytest.mark.skipif(REDIS_SERVER is None, reason=REDIS_MISSING)

Start = Callable[..., RedisServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[RedisServer] = []

    def begin(*options: str) -> RedisServer:
        server = RedisServer(tmp_path, *options)
        servers.append(server)
        server.start()
        return server

    yield begin
    for server in servers:
        server.kill()


def opened(server: RedisServer) -> RedisStore:
    store = RedisStore(server.settings)
    store.open()
    return store


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), []),
        (("--appendfsync", "everysec"), ["appendfsync is everysec"]),
        (("--appendonly", "no"), ["appendonly is no"]),
        (("--maxmemory-policy", "allkeys-lru"), ["maxmemory-policy is allkeys-lru"]),
        (("--rename-command", "CONFIG", ""), ["cannot be read"]),
    ],
)
def test_settings_that_keep_less_draw_a_warning(start: Start, options: tuple[str, ...], expected: list[str]) -> None:
    store = opened(start(*options))
    assert len(store.warnings) == len(expected)
    assert all(text in warning for text, warning in zip(expected, store.warnings, strict=True))
    store.close()


def test_a_server_that_cannot_be_used_is_refused_without_the_password(start: Start) -> None:
    server = start("--requirepass", "right")
    for password in ("", "wrong-hunter2"):
        store = RedisStore(replace(server.settings, password=password))
        with pytest.raises(StoreFault) as caught:
            store.open()
        assert "hunter2" not in str(caught.value)
        store.close()
    store = RedisStore(replace(server.settings, password="right"))
    store.open()
    store.close()
    server.kill()
    with pytest.raises(StoreFault, match=str(server.port)):
        opened(server)


def test_a_server_that_was_killed_has_all_commits(start: Start) -> None:
    server = start()
    store = opened(server)
    store.commit([(1, b"a")])
    server.kill()
    with pytest.raises(StoreFault):
        store.commit([(2, b"b")])
    server.start()
    store.commit([(2, b"b")])
    store.close()
    assert list(opened(server).records()) == [(1, b"a"), (2, b"b")]


def test_a_server_that_forgot_commits_is_told_everything_again(start: Start) -> None:
    server = start("--appendonly", "no")
    store = opened(server)
    store.commit([(1, b"a")])
    server.kill()
    server.start()
    with pytest.raises(StoreFault):
        store.commit([(2, b"b")])  # the connection was lost
    with pytest.raises(LostCommits):
        store.commit([(2, b"b")])
    store.replace([(1, b"a"), (2, b"b")])
    store.commit([(3, b"c")])
    assert dict(store.records()) == {1: b"a", 2: b"b", 3: b"c"}
    store.close()


def test_a_node_whose_store_was_taken_writes_no_more(start: Start) -> None:
    server = start()
    first = opened(server)
    first.commit([(1, b"a")])
    server.kill()
    server.start()
    second = opened(server)
    with pytest.raises(StoreFault):
        first.commit([(1, b"b")])
    with pytest.raises(OwnerLost):
        first.commit([(1, b"b")])
    first.close()
    assert list(second.records()) == [(1, b"a")]
    second.commit([(2, b"c")])
    second.close()


def test_two_nodes_share_a_database_by_their_prefixes(start: Start) -> None:
    server = start()
    stores = [RedisStore(replace(server.settings, key_prefix=prefix)) for prefix in ("one", "two")]
    for number, store in enumerate(stores):
        store.open()
        store.commit([(number + 1, b"a")])
    assert [list(store.records()) for store in stores] == [[(1, b"a")], [(2, b"a")]]
    for store in stores:
        store.close()


def test_a_newer_store_is_refused(start: Start) -> None:
    server = start()
    newer = RedisStore(server.settings, version=VERSION + 1)
    newer.open()
    newer.commit([(1, b"a")])
    newer.close()
    with pytest.raises(StoreFault, match=f"version {VERSION + 1}"):
        opened(server)
