"""The plugin `auth` puts the sources of users together, and reads their files."""

# not a core: begins tasks
from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Iterator, Set
from typing import TYPE_CHECKING, Final

from broker.auth.acl import Acl
from broker.auth.attempt import Anonymous, CertificateNames, Source
from broker.auth.check_queue import CheckPool
from broker.auth.decider import AuthDecider, no_role
from broker.auth.failed_logins import FailedLogins
from broker.auth.files import AccountFile, read_token_keys
from broker.auth.passwords import Passwords
from broker.auth.scram_logins import ScramLogins
from broker.auth.settings import AuthSettings
from broker.codec.reason_codes import NOT_AUTHORIZED
from broker.hooks import AuthenticationRequest
from broker.metrics.metric import Metric, counters, gauge
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.start_error import StartError

if TYPE_CHECKING:
    from broker.api.server import ApiServer
    from broker.auth.tokens import Tokens
    from broker.auth.webhook import Webhook
    from broker.server.host import Host
    from broker.session.output import Output

KEY: Final = "plugins.auth"
THREADS_MAX: Final = 4  # without the setting
SESSIONS_A_TURN: Final = 2_000  # that are looked at when accounts have changed


class AuthPlugin(Plugin):
    """Puts the sources of users together and asks them about each client."""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self.settings: AuthSettings = server.settings.plugins.auth
        self._log = get_logger("auth")
        self._failed = FailedLogins(self.settings.failures_per_user, self.settings.failures_per_address)
        self._pool: CheckPool | None = None
        self._passwords: Passwords | None = None
        self._decider: AuthDecider | None = None
        self._tokens: Tokens | None = None
        self._logins_ended = 0
        self._webhook: Webhook | None = None
        self._acl: Acl | None = None
        self._sources: list[Source] = []

    async def prepare(self) -> None:
        settings = self.settings
        server = self.server
        scram = None
        if settings.use_identity_as_username:
            self._sources.append(CertificateNames())
        if settings.password_file:
            self._pool = CheckPool(settings.threads or default_threads())
            file = AccountFile(server.path_of(settings.password_file), settings.hash)
            self._passwords = Passwords(file, settings.hash, self._pool, self._disconnect)
            await self._load_accounts(self._passwords)
            self._sources.append(self._passwords)
            if settings.scram:
                scram = ScramLogins(self._passwords)
        if settings.jwt.algorithms:
            from broker.auth.tokens import Tokens

            self._tokens = Tokens(settings.jwt, time.time, server.now)
            await self._load_keys(self._tokens)
            self._sources.append(self._tokens)
        if settings.webhook.url:
            from broker.auth.webhook import open_webhook

            self._webhook = open_webhook(
                server, settings.webhook, settings.allow_anonymous, f"{KEY}.webhook", self._log
            )
            self._sources.append(self._webhook)
        self._sources.append(Anonymous(settings.allow_anonymous))
        if settings.acl_file or settings.jwt.algorithms or settings.webhook.url:
            path = server.path_of(settings.acl_file) if settings.acl_file else ""
            self._acl = Acl(server, f"{KEY}.acl_file", path)
            await self._acl.load()
        if server.api is not None:
            self._serve(server.api)
        role_of = no_role if self._passwords is None else self._passwords.role_of
        self._decider = AuthDecider(server, self._sources, self._failed, scram, self._log, role_of)
        server.broker.add_connect_decider(self._decider)

    def _serve(self, api: ApiServer) -> None:
        from broker.auth.access_service import AccessService
        from broker.auth.pb.account_pb2 import DESCRIPTOR
        from broker.auth.service import AccountService

        services = DESCRIPTOR.services_by_name
        if self._passwords is not None:
            api.register(services["AccountService"], AccountService(self._passwords, self.settings, self._log))
        rules = (lambda: None) if self._acl is None else self._acl.current
        api.register(services["AccessService"], AccessService(self._failed, rules, self.server.now))

    async def _load_accounts(self, passwords: Passwords) -> None:
        """Raises StartError for a file that cannot be used; the former accounts then stay."""
        key = f"{KEY}.password_file"
        await passwords.load(key)
        file = passwords.file
        self._log.info("accounts read", file=file.path, accounts=len(passwords.accounts))
        if not passwords.accounts:
            self._log.warning("there are no accounts: `gmqttd passwd -c FILE USER` makes one", key=key, file=file.path)
        elif file.is_readable_by_others():
            self._log.warning("other users of this machine can read the file: chmod 600", key=key, file=file.path)

    async def _load_keys(self, tokens: Tokens) -> None:
        """Raises StartError for a file that cannot be used; the former keys then stay."""
        tokens.keys = await asyncio.to_thread(read_token_keys, self.settings.jwt, f"{KEY}.jwt", self.server.path_of)

    async def _disconnect(self, usernames: Set[str]) -> None:
        """End the connections of users whose accounts have changed or are gone. Logins that are checked now may be judged by
        the former ones."""
        broker = self.server.broker
        if self._decider is not None:
            self._decider.withdraw(usernames)
        for connection in list(broker.connecting):
            request = connection.answer
            proved = request.username if isinstance(request, AuthenticationRequest) else ""
            if connection.username in usernames or proved in usernames:
                self._end(connection)
        for number, session in enumerate(list(broker.sessions.values()), 1):
            if session.connection is not None and session.username in usernames:
                self._end(session.connection)
            if number % SESSIONS_A_TURN == 0:
                self.server.flush_soon()
                await asyncio.sleep(0)
        self.server.flush_soon()

    def _end(self, connection: Output) -> None:
        self._logins_ended += 1
        text = "the account was changed or deleted"
        self.server.broker.close_connection(connection, NOT_AUTHORIZED, text, self.server.now())

    async def reload(self) -> None:
        faults = []
        for load in self._loads():
            try:
                await load
            except StartError as fault:
                faults.append(str(fault))
        if faults:
            raise StartError("; ".join(faults))

    def _loads(self) -> Iterator[Awaitable[None]]:
        """Read each file again. The fault of one keeps no other from being read."""
        if self._passwords is not None:
            yield self._load_accounts(self._passwords)
        if self._tokens is not None:
            yield self._load_keys(self._tokens)
        if self._acl is not None:
            yield self._acl.load()

    async def stop(self) -> None:
        if self._decider is not None:
            self.server.broker.remove_connect_decider(self._decider)
            self._decider.stop()
        if self._pool is not None:
            self._pool.stop()
        if self._webhook is not None:
            await self._webhook.stop()
        if self._acl is not None:
            self._acl.stop()

    def metrics(self) -> list[Metric]:
        refused = self.refused_input().items()
        passwords = 0 if self._pool is None else self._pool.queue.waiting
        webhook = 0 if self._webhook is None else self._webhook.queue.waiting
        return [
            counters(
                "gmqtt_auth_events_total",
                "Logins that were refused, not checked, or ended by a change of the account.",
                "event",
                refused,
            ),
            gauge("gmqtt_auth_passwords_waiting", "Passwords that wait for a thread that checks them.", passwords),
            gauge("gmqtt_auth_webhook_waiting", "Logins that wait until the web service can be asked.", webhook),
        ]

    def refused_input(self) -> dict[str, int]:
        if self._decider is None:
            return {}
        found = {
            "logins_refused": self._decider.refused,
            "logins_slowed": self._failed.slowed,
            "logins_busy": sum(source.queue.refused for source in self._sources if source.queue is not None),
            "logins_ended": self._logins_ended,
        }
        for source in self._sources:
            found.update(source.refused())
        return found


def default_threads() -> int:
    return min(max(1, (os.cpu_count() or 2) - 1), THREADS_MAX)
