"""From CONNECT to CONNACK, with AUTH in between, and re-authentication [MQTT5 4.12]."""

# compiled with mypyc
from __future__ import annotations

from broker.bridge_end import BridgeEnd
from broker.broker import NO_REASON, Broker
from broker.codec import properties as props
from broker.codec.packets import AUTH, CONNECT, DISCONNECT, Auth, ConnAck, Connect, Disconnect, Packet, Properties
from broker.codec.reason_codes import (
    BAD_AUTHENTICATION_METHOD,
    CLIENT_IDENTIFIER_NOT_VALID,
    CONTINUE_AUTHENTICATION,
    NOT_AUTHORIZED,
    RE_AUTHENTICATE,
    SERVER_UNAVAILABLE,
    SUCCESS,
    USE_ANOTHER_SERVER,
)
from broker.errors import MqttError, ProtocolViolation
from broker.hooks import NO_OPINION, NOT_LET_IN, UNDECIDED, AuthenticationRequest, ConnectRequest, Waiter
from broker.ownership import CLAIM_SECONDS_MAX, Claimant
from broker.routing.subscriber import GROUP_QUEUE_PREFIX, NODE_PREFIX, OWN_PREFIX
from broker.session.answers import check_answer, write_answer
from broker.session.client_ids import BY_NOBODY, client_id_of
from broker.session.durable import note_change
from broker.session.output import CONNECTED, CONNECTING, Output
from broker.session.session import EXPIRY_NEVER, Session
from broker.session.will import store_will


class ConnectAnswer(ConnectRequest):
    """Ask the deciders one after the other. Open the session of an accepted client and write CONNACK, challenge the client, or
    refuse it."""

    def __init__(
        self,
        broker: Broker,
        connection: Output,
        packet: Connect,
        client_id: str,
        expiry_interval: int,
        properties: Properties,
        method: str,
        end: BridgeEnd | None,
    ) -> None:
        data = props.get_bytes(packet.properties, props.AUTHENTICATION_DATA)
        super().__init__(
            packet,
            client_id,
            connection.remote_addr,
            connection.local_addr,
            connection.listener,
            connection.certificate_name,
            method,
            data or b"",
        )
        self._broker = broker
        self._connection = connection
        self._expiry_interval = expiry_interval
        self._properties = properties
        self._end = end  # what CONNECT claims
        self._deciders = broker.connect_deciders
        self._position = 0  # of the decider that is asked
        self._is_accepted = False
        self._accepted_data = b""
        self._claim: SessionClaim | None = None  # of the accepted client, where other nodes are asked
        self._session: Session | None = None  # of it
        self._is_present = False

    def is_open(self) -> bool:
        return self._connection.phase is CONNECTING

    def decided(self) -> None:
        if self._connection.answer is self:
            self._broker.release(self._connection)

    def begin(self, now: float) -> None:
        """Ask the deciders; without any, let the client in. Raises MqttError when it cannot be accepted."""
        if self._deciders and not self.listener.is_own and not self.listener.is_node:
            self._ask(now)
            self.go_on(now)
        elif not self._let_in(now):
            self._wait()

    def continue_authentication(self, data: bytes, now: float) -> None:
        """The client has answered a challenge. Raises MqttError when it cannot be accepted."""
        self.data = data
        self.is_challenged = False
        self._connection.answer = None
        if self._deciders[self._position] in self._broker.connect_deciders:
            self._ask(now, goes_on=True)
        else:
            self.refuse(BAD_AUTHENTICATION_METHOD, "this server has no enhanced authentication any more")
        self.go_on(now)

    def go_on(self, now: float) -> bool:
        """Returns False while the client is neither accepted nor refused. Raises MqttError when it cannot be accepted."""
        broker = self._broker
        connection = self._connection
        connection.answer = None  # a decider that answers at once releases nothing
        if self._session is not None:  # CONNACK has waited for the store
            self._welcome(self._session, now)
            return True
        claim = self._claim
        if claim is not None:
            if not claim.is_decided:
                connection.answer = self
                return False
            self._claim = None  # each knows the other one: only the garbage collection would free them
            if claim.refusal:
                raise MqttError(SERVER_UNAVAILABLE, claim.refusal)
            if self._open_session(now):
                return True
            self._wait()
            return False
        while self.reason_code == SUCCESS or self.reason_code == NO_OPINION:  # noqa: PLR1714 (compiled without a tuple)
            if self.reason_code == SUCCESS:
                self._is_accepted = True
                if self.answer_data:
                    self._accepted_data = self.answer_data
            self._position += 1
            if self._position >= len(self._deciders):
                if not self._is_accepted:
                    self.reason_code = NOT_AUTHORIZED
                    self.reason = NOT_LET_IN
                    break
                if self._let_in(now):
                    return True
                break
            self.reason_code = UNDECIDED
            self._ask(now)
        if self.reason_code >= 0x80:
            broker.close_connection(connection, self.reason_code, self.reason, now)
            return True
        if self.reason_code == CONTINUE_AUTHENTICATION:
            self.reason_code = UNDECIDED
            answer_with_auth(connection, CONTINUE_AUTHENTICATION, self)
            self.is_challenged = True
            connection.answer = self
            broker.connecting[connection] = None
        else:
            self._wait()
        return False

    def _wait(self) -> None:
        """Without the answer of the decider, or of the store, the client is not read."""
        self._broker.pause(self._connection)
        self._connection.answer = self
        self._broker.connecting[self._connection] = None

    def _ask(self, now: float, goes_on: bool = False) -> None:
        """Ask the decider whose turn it is. Its exception is counted; the shell logs it and closes the connection."""
        decider = self._deciders[self._position]
        try:
            if goes_on:
                decider.continue_authentication(self, now)
            else:
                decider.decide(self, now)
        except MqttError:
            raise
        except Exception:
            self._broker.counters.plugin_faults += 1
            raise

    def _let_in(self, now: float) -> bool:
        """Open the session and write CONNACK. False when CONNACK waits for other nodes, or until the store has the session."""
        broker = self._broker
        connection = self._connection
        if self._accepted_data:
            self._properties[props.AUTHENTICATION_DATA] = self._accepted_data
            check_answer(connection, ConnAck(False, SUCCESS, self._properties))
        packet = self.connect
        connection.username = self.username
        connection.expires_at = self.expires_at
        connection.access = self.access
        end, bridging = self._end, broker.bridging
        if end is None or bridging is None:
            pass
        elif bridging.accepted(self.client_id, end, self._may_bridge(), self._properties):
            connection.bridge_end = end
            connection.aliases = None  # a run has no topic alias yet, and would be sent one by one
        else:
            longest = int(min(broker.settings.session_expiry, EXPIRY_NEVER))
            if self._expiry_interval > longest:
                self._expiry_interval = longest
                self._properties[props.SESSION_EXPIRY_INTERVAL] = longest
        self._take_client_id()
        if broker.commits.next_packet():
            self._check_store()
        self._check_client_id(now)
        is_client = end is None and not (self.listener.is_own or self.listener.is_node)
        if is_client and broker.elsewhere is not None:
            raise MqttError(USE_ANOTHER_SERVER, "this node is drained: it takes no clients")
        if is_client and broker.ownership is not None:
            claim = SessionClaim(self)
            if not broker.ownership.claim(claim, self.client_id, self.username, packet.clean_start, now):
                self._claim = claim
                connection.claims_until = now + CLAIM_SECONDS_MAX
                return False
        return self._open_session(now)

    def _open_session(self, now: float) -> bool:
        """This node is the home of the client. False when CONNACK waits until the store has the session."""
        broker = self._broker
        connection = self._connection
        packet = self.connect
        connection.writable = False  # messages wait in the queue: CONNACK comes first, and what was in flight next
        try:
            session, self._is_present = broker.open_session(
                connection, self.client_id, packet.clean_start, self._expiry_interval, now
            )
        except MqttError:
            if broker.ownership is not None:
                broker.ownership.abandoned(self.client_id)
            raise
        if broker.ownership is not None:
            broker.ownership.opened(session)
        self._session = session
        connection.will = packet.will
        journal = broker.commits.journal
        if packet.will is not None and journal is not None and session.records is None:
            store_will(connection, session, journal)
        connection.authentication_method = self.method
        if broker.commits.is_due() and broker.commits.wait(SessionCommit(self)):
            return False
        self._welcome(session, now)
        return True

    def _take_client_id(self) -> None:
        """Change the client identifier by the user name, as the settings say. Another broker keeps its own, which is not
        that of a session of another user. Raises MqttError."""
        rule = self._broker.settings.client_id_by_user
        if rule == BY_NOBODY or self.listener.is_own or self.listener.is_node:
            return
        if self._connection.bridge_end is not None:
            known = self._broker.sessions.get(self.client_id)
            if known is not None and known.bridge_end is None and known.username != self.username:
                raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "the session belongs to another user (client_id_by_user)")
            return
        is_assigned = not self.connect.client_id
        self.client_id = client_id_of(rule, self.client_id, is_assigned, self.username)
        if is_assigned:
            self._properties[props.ASSIGNED_CLIENT_IDENTIFIER] = self.client_id
            check_answer(self._connection, ConnAck(False, SUCCESS, self._properties))

    def _check_client_id(self, now: float) -> None:
        """No client takes over a session of the node itself, or of another user's broker. Raises MqttError."""
        for prefix in (GROUP_QUEUE_PREFIX, OWN_PREFIX):
            if self.client_id.startswith(prefix) and not self.listener.is_own:
                raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, f"no client identifier begins with {prefix}")
        if self.client_id.startswith(NODE_PREFIX) != self.listener.is_node:
            text = f"client identifiers that begin with {NODE_PREFIX} are those of the nodes of the cluster"
            raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, text)
        if not self.listener.is_own and not self.listener.is_node:
            session = self._broker.sessions.get(self.client_id)
            end = None if session is None else session.bridge_end
            if session is None or end is None or (session.connection is None and session.deadline() <= now):
                return
            if not (end.is_released or session.username == self.username or end.name == self.link_domain):
                raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "the session belongs to a link of another user")

    def _may_bridge(self) -> bool:
        if self.listener.is_node or not self._deciders:
            return True
        domain = self.link_domain
        return self.is_link and (not domain or (self._end is not None and self._end.name == domain))

    def _check_store(self) -> None:
        """The store takes nothing. Raise MqttError for a client that would wait for it, so that the number of those that wait
        is bounded."""
        known = self._broker.sessions.get(self.client_id)
        if self._expiry_interval > 0 or (known is not None and known.records is not None):
            raise MqttError(SERVER_UNAVAILABLE, "the store takes no changes")

    def committed(self) -> None:
        """The store has the session."""
        if self.is_open():
            self.decided()

    def _welcome(self, session: Session, now: float) -> None:
        """Write CONNACK."""
        connection = self._connection
        self._broker.connecting.pop(connection, None)
        connection.phase = CONNECTED
        connection.writable = True
        # The bit is reserved in MQTT 3.1 [MQTT3.1 3.2].
        present = self._is_present and self.connect.protocol_version != 3
        write_answer(connection, ConnAck(present, SUCCESS, self._properties))
        ownership = self._broker.ownership
        if ownership is None or not ownership.may_be_elsewhere():
            session.is_new = False  # else its client has the CONNACK for certain when it says something
        session.resume(now)
        if session.queued_groups is not None:
            self._broker.drain_groups(session.queued_groups)


class SessionClaim(Claimant):
    """is_decided  other nodes have answered, or have not for long enough
    refusal     why the client is not served here, "" for no reason
    """

    def __init__(self, answer: ConnectAnswer) -> None:
        self.is_decided = False
        self.refusal = ""
        self._answer = answer

    def is_open(self) -> bool:
        return self._answer.is_open()

    def claimed(self) -> None:
        self.is_decided = True
        if self._answer.is_open():
            self._answer.decided()

    def outclaimed(self, text: str) -> None:
        self.refusal = text
        self.claimed()


class SessionCommit(Waiter):
    """The client of a durable session gets CONNACK when the store has the session."""

    def __init__(self, answer: ConnectAnswer) -> None:
        self._answer = answer

    def committed(self) -> None:
        self._answer.committed()


def check_first_type(connection: Output, kind: int) -> None:
    """Raise ProtocolViolation for a packet type that may not come before CONNACK."""
    if connection.phase is CONNECTING:
        if kind not in (AUTH, DISCONNECT):
            raise ProtocolViolation(f"packet of type {kind} before CONNACK, may be AUTH or DISCONNECT [MQTT-3.1.2-30]")
    elif kind != CONNECT:
        raise ProtocolViolation(f"first packet is of type {kind}, not CONNECT [MQTT-3.1.0-1]")


def handle_before_connack(broker: Broker, connection: Output, packet: Packet, now: float) -> None:
    """Handle a packet of a client that was challenged: AUTH or DISCONNECT [MQTT-3.1.2-30]. Raises MqttError to refuse the
    client."""
    if isinstance(packet, Disconnect):
        broker.close_connection(connection, NO_REASON, "client disconnected", now)
        return
    work = connection.answer
    assert isinstance(work, ConnectAnswer)
    assert isinstance(packet, Auth)
    if packet.reason_code != CONTINUE_AUTHENTICATION:
        raise ProtocolViolation(f"AUTH with reason code 0x{packet.reason_code:02x} before CONNACK [MQTT-4.12.0-3]")
    work.continue_authentication(_data_of(packet, work.method), now)


class Reauthentication(AuthenticationRequest):
    """A connected client authenticates again. Its other packets are handled meanwhile."""

    def __init__(self, broker: Broker, connection: Output, session: Session, data: bytes) -> None:
        super().__init__(
            session.client_id,
            session.username,
            connection.remote_addr,
            connection.local_addr,
            connection.listener,
            connection.certificate_name,
            connection.authentication_method,
            data,
        )
        self._broker = broker
        self._connection = connection
        self._session = session

    def is_open(self) -> bool:
        return self._connection.reauthentication is self

    def decided(self) -> None:
        if not self.is_open():
            return
        connection = self._connection
        if self.reason_code == NO_OPINION:
            self.reason_code = NOT_AUTHORIZED
            self.reason = NOT_LET_IN
        elif (
            self.reason_code == SUCCESS
            and self.username != self._session.username
            and self._broker.settings.client_id_by_user != BY_NOBODY
        ):
            self.reason_code = NOT_AUTHORIZED
            self.reason = "the client identifier is one of another user (client_id_by_user)"
        reason_code = self.reason_code
        if reason_code >= 0x80:
            self._broker.close_connection(connection, reason_code, self.reason, self._broker.now)  # [MQTT-4.12.1-2]
            return
        try:
            answer_with_auth(connection, reason_code, self)
        except MqttError as error:
            self._broker.close_connection(connection, error.reason_code, error.text, self._broker.now)
            return
        if reason_code == SUCCESS:
            connection.username = self.username
            connection.expires_at = self.expires_at
            connection.access = self.access
            self._broker.identify(self._session, connection)
            note_change(self._session)
            self._broker.timers.schedule(connection)
            connection.reauthentication = None
        else:
            self.reason_code = UNDECIDED
            self.is_challenged = True


def handle_auth(broker: Broker, connection: Output, session: Session, packet: Auth, now: float) -> None:
    """Handle AUTH of a connected client [MQTT5 4.12.1]."""
    method = connection.authentication_method
    if not method:
        raise ProtocolViolation("AUTH, but CONNECT had no authentication method [MQTT-4.12.0-7]")
    data = _data_of(packet, method)
    request = connection.reauthentication
    decider = broker.decider_of(method)
    if decider is None:
        raise MqttError(BAD_AUTHENTICATION_METHOD, "this server has no enhanced authentication any more")
    if packet.reason_code == RE_AUTHENTICATE and request is None:
        request = connection.reauthentication = Reauthentication(broker, connection, session, data)
        decider.reauthenticate(request, now)
    elif (
        packet.reason_code == CONTINUE_AUTHENTICATION
        and isinstance(request, Reauthentication)
        and request.is_challenged
    ):
        request.data = data
        request.is_challenged = False
        decider.continue_authentication(request, now)
    else:
        raise ProtocolViolation(
            f"AUTH with reason code 0x{packet.reason_code:02x}, "
            + ("but no re-authentication has begun" if request is None else "while a re-authentication goes on")
            + " [MQTT5 4.12.1]"
        )


def _data_of(packet: Auth, method: str) -> bytes:
    """Authentication Data of an AUTH, which must have the method of CONNECT [MQTT-4.12.0-5] [MQTT-4.12.1-1]."""
    if props.get_str(packet.properties, props.AUTHENTICATION_METHOD) != method:
        raise ProtocolViolation("AUTH without the authentication method of CONNECT [MQTT-4.12.0-5]")
    return props.get_bytes(packet.properties, props.AUTHENTICATION_DATA) or b""


def answer_with_auth(connection: Output, reason_code: int, request: AuthenticationRequest) -> None:
    """Write AUTH [MQTT5 3.15]. Raises MqttError for one that is too large for the client."""
    properties: Properties = {props.AUTHENTICATION_METHOD: request.method}
    if request.answer_data:
        properties[props.AUTHENTICATION_DATA] = request.answer_data
    packet = Auth(reason_code, properties)
    check_answer(connection, packet)
    write_answer(connection, packet)
