"""Logins of consumers: SASL PLAIN and SCRAM-SHA-256, a client certificate, or none, judged as those of MQTT clients are.

A login is a CONNECT without a session: the same deciders are asked (broker/hooks.py), with their accounts, limits and delays.
"""

# not a core: waits for deciders
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.authorization import ClientIdentity
from broker.codec.packets import Connect
from broker.codec.reason_codes import CONTINUE_AUTHENTICATION, NOT_AUTHORIZED, SUCCESS
from broker.errors import MqttError
from broker.hooks import NO_OPINION, NOT_LET_IN, UNDECIDED, ConnectRequest
from broker.listener_facts import ListenerFacts
from broker.session.client_ids import client_id_of

if TYPE_CHECKING:
    from broker.server.host import Host

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
DECIDE_SECONDS_MAX: Final = 30.0  # for a decider to answer
NAME_BYTES_MAX: Final = 65_535  # of user name and password, as in CONNECT


class LoginFault(Exception):
    """The client is not let in; the text is for it and contains no secret."""


class Login(ConnectRequest):
    """One login. `proceed` takes the client's next message and returns that of the server.

    is_done   the client is let in: `identity` is who it is
    """

    def __init__(
        self, server: Host, client_id: str, addresses: tuple[str, str], listener: ListenerFacts, certificate_name: str
    ) -> None:
        """addresses: of the client and of the listener, HOST:PORT."""
        super().__init__(Connect(client_id), client_id, *addresses, listener, certificate_name, "", b"")
        self.is_done = False
        self.is_gone = False
        self._server = server
        self._deciders = server.broker.connect_deciders
        self._position = 0
        self._is_accepted = False
        self._accepted_data = b""
        self._answered = asyncio.Event()

    def is_open(self) -> bool:
        return not self.is_gone

    def decided(self) -> None:
        self._answered.set()

    @property
    def identity(self) -> ClientIdentity:
        """Who the client is to the rules. Kafka's tools choose identifiers such as `rdkafka`: one that
        `mqtt.client_id_by_user` refuses counts as none."""
        rule = self._server.broker.settings.client_id_by_user
        try:
            client_id = client_id_of(rule, self.client_id, not self.client_id, self.username)
        except MqttError:
            client_id = client_id_of(rule, "", True, self.username)
        return ClientIdentity(client_id, self.username, self.remote_addr, self.access)

    async def without_credentials(self) -> None:
        """As a CONNECT without a user name. Raises LoginFault."""
        await self._ask(False)

    async def proceed(self, mechanism: str, data: bytes) -> bytes:
        """Take a message of SASL. Raises LoginFault."""
        goes_on = self.is_challenged
        self.data = data
        if goes_on:
            self.is_challenged = False
        elif mechanism == PLAIN:
            self._take_plain(data)
        else:
            self.method = mechanism
        return await self._ask(goes_on)

    def _take_plain(self, data: bytes) -> None:
        """RFC 4616: authorization identity, user name and password, with a null character between them."""
        parts = data.split(b"\0")
        if len(parts) != 3 or len(data) > NAME_BYTES_MAX:
            raise LoginFault("the message of SASL PLAIN is not IDENTITY, null, USER, null, PASSWORD")
        try:
            identity, username = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise LoginFault("the user name is not UTF-8") from None
        if identity not in ("", username):
            raise LoginFault("the client asks for the identity of another user")
        self.connect = Connect(self.client_id, username=username, password=parts[2])
        self.username = username

    async def _ask(self, goes_on: bool) -> bytes:
        """Ask the deciders that are left. Returns the data of the answer. Raises LoginFault."""
        while self._position < len(self._deciders):
            decider = self._deciders[self._position]
            decide = decider.continue_authentication if goes_on else decider.decide
            await self._answer_of(decide)
            goes_on = False
            if self.reason_code == CONTINUE_AUTHENTICATION:
                self.is_challenged = True
                return self.answer_data
            if self.reason_code == SUCCESS:
                self._is_accepted = True
                self._accepted_data = self._accepted_data or self.answer_data
            elif self.reason_code != NO_OPINION:
                raise LoginFault(self.reason or NOT_LET_IN)
            self._position += 1
        if self._deciders and not self._is_accepted:
            raise LoginFault(NOT_LET_IN)
        self.is_done = True
        return self._accepted_data

    async def _answer_of(self, decide: Callable[[Login, float], None]) -> None:
        self.reason_code = UNDECIDED
        self._answered.clear()
        try:
            decide(self, self._server.now())
            async with asyncio.timeout(DECIDE_SECONDS_MAX):
                await self._answered.wait()
        except TimeoutError:
            self.is_gone = True
            raise LoginFault("the login could not be checked in time") from None
        except Exception as error:
            self._server.broker.counters.plugin_faults += 1
            self._server.plugin_error(error)
            self.reason_code = NOT_AUTHORIZED
            raise LoginFault(NOT_LET_IN) from error


def mechanisms(server: Host) -> list[str]:
    """Those that clients may use."""
    found = [PLAIN]
    if server.broker.decider_of(SCRAM_SHA_256) is not None:
        found.append(SCRAM_SHA_256)
    return found
