"""A store in one Redis database: a hash of records, changed in one MULTI/EXEC for each batch, owned by one node."""

# not a core: talks to Redis
from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, WatchError
from redis.retry import Retry

from broker.config.settings import RedisSettings
from broker.store.store import VERSION, LostCommits, OwnerLost, Store, StoreFault

SECONDS_MAX: Final = 5.0  # for a connection, and for each answer
FIELDS_MAX: Final = 1_000  # of one command
SCAN_COUNT: Final = 1_000
PROMISE: Final = "with appendonly yes and appendfsync always a message that was acknowledged outlives a crash of redis"

Item = TypeVar("Item")


class RedisStore(Store):
    """Keys below the prefix: `records` (a hash by record number), `version`, `commits` (number of commits so far) and `owner`.

    The owner is a token. The node that has it names its connection by it, so that a token without a connection is of a node
    that has ended.
    """

    def __init__(self, settings: RedisSettings, version: int = VERSION) -> None:
        super().__init__()
        self._place = f"redis {settings.addr}, database {settings.database}, keys {settings.key_prefix}:*"
        self._records = f"{settings.key_prefix}:records"
        self._version_key = f"{settings.key_prefix}:version"
        self._commits_key = f"{settings.key_prefix}:commits"
        self._owner = f"{settings.key_prefix}:owner"
        self._version = version
        self._token = f"gmqttd-{secrets.token_hex(8)}"
        self._commits = 0
        self._may_have_committed = False  # the answer to the last EXEC is missing
        self._settings = settings
        self._client: Any = None

    def _connect(self) -> Any:
        settings = self._settings
        return redis.Redis(
            host=settings.addr.host or "127.0.0.1",
            port=settings.addr.port,
            db=settings.database,
            password=settings.password or None,
            socket_timeout=SECONDS_MAX,
            socket_connect_timeout=SECONDS_MAX,
            client_name=self._token,
            retry=Retry(NoBackoff(), 0),  # the writer tries again, with the owner looked at before
        )

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise StoreFault for errors of the client."""
        try:
            yield
        except AuthenticationError as error:
            raise StoreFault(f"{self._place}: the password is not accepted") from error
        except RedisError as error:
            raise StoreFault(f"{self._place}: {error}") from error

    def open(self, create: bool = True) -> None:
        with self._faults():
            self._open(create)

    def _open(self, create: bool) -> None:
        client = self._client = self._connect()
        found = client.get(self._version_key)
        if found is None and not create:
            raise StoreFault(f"{self._place}: there is no store")
        self.is_new = found is None
        version = int(found or self._version)
        if version > self._version:
            raise StoreFault(
                f"{self._place}: version {version}, this gmqttd knows {self._version}: start a newer gmqttd"
            )
        with client.pipeline() as pipe:
            pipe.watch(self._owner)
            owner = (pipe.get(self._owner) or b"").decode()
            if owner and any(found["name"] == owner for found in client.client_list()):
                raise StoreFault(
                    f"{self._place}: another node uses it; give each node a key_prefix or database of its own"
                )
            pipe.multi()
            pipe.set(self._owner, self._token)
            pipe.set(self._version_key, self._version)
            try:
                pipe.execute()
            except WatchError:
                raise StoreFault(f"{self._place}: another node has just begun to use it") from None
        self._commits = int(client.get(self._commits_key) or 0)
        self._look_at_settings()

    def _look_at_settings(self) -> None:
        client = self._client
        try:
            found = {**client.config_get("append*"), **client.config_get("maxmemory-policy")}
        except RedisError:
            self.warnings.append(f"{self._place}: its settings cannot be read; {PROMISE}")
            return
        if found.get("appendonly") != "yes" or found.get("appendfsync") != "always":
            self.warnings.append(
                f"{self._place}: appendonly is {found.get('appendonly')}, appendfsync is {found.get('appendfsync')}; {PROMISE}"
            )
        if found.get("maxmemory-policy", "noeviction") != "noeviction":
            self.warnings.append(f"{self._place}: maxmemory-policy is {found['maxmemory-policy']}; use noeviction")

    def records(self) -> Iterator[tuple[int, bytes]]:
        try:
            with self._faults():
                fields = self._client.hscan_iter(self._records, count=SCAN_COUNT)
                found = {int(field): value for field, value in fields}
        except ValueError as error:
            raise StoreFault(f"{self._place}: {error}") from None
        for number in sorted(found):
            yield number, found[number]

    def _write(self, batch: Sequence[tuple[int, bytes | None]], is_whole: bool) -> None:
        client = self._client
        with self._faults(), client.pipeline() as pipe:
            pipe.watch(self._owner)
            owner, commits = pipe.mget(self._owner, self._commits_key)
            if (owner or b"").decode() not in ("", self._token):
                raise OwnerLost(f"{self._place}: another node has taken it while it was out of reach")
            known = int(commits or 0)
            if not is_whole:
                if known != self._commits and not (self._may_have_committed and known == self._commits + 1):
                    raise LostCommits(f"{self._place}: it has {known} commits, {self._commits} were written")
                self._commits = known
            self._add(pipe, batch, is_whole, known + 1)
            self._may_have_committed = True
            try:
                pipe.execute()
            except WatchError:
                raise StoreFault(f"{self._place}: its owner changes") from None
        self._may_have_committed = False
        self._commits = known + 1

    def _add(self, pipe: Any, batch: Sequence[tuple[int, bytes | None]], is_whole: bool, commits: int) -> None:
        pipe.multi()
        pipe.set(self._owner, self._token)
        pipe.set(self._version_key, self._version)
        pipe.set(self._commits_key, commits)
        if is_whole:
            pipe.delete(self._records)
        written = iter([(number, value) for number, value in batch if value is not None])
        while some := dict(islice(written, FIELDS_MAX)):
            pipe.hset(self._records, mapping=some)
        deleted = iter([number for number, value in batch if value is None])
        while fields := list(islice(deleted, FIELDS_MAX)):
            pipe.hdel(self._records, *fields)

    def compact(self) -> None:
        with self._faults():
            self._client.bgrewriteaof()

    def close(self) -> None:
        client = self._client
        if client is None:
            return
        try:
            if (client.get(self._owner) or b"").decode() == self._token:
                client.delete(self._owner)
        except RedisError:
            pass  # the connection ends with the process, and frees the token
        client.close()
