"""Control packets other than PUBLISH and its acknowledgements: CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT, AUTH."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.bridge_end import NOTHING_ALONG, limits_of
from broker.broker import NO_REASON, Broker, Unsubscribing
from broker.codec import properties as props
from broker.codec.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    Properties,
    SubAck,
    Subscribe,
    SubscribeFilter,
    UnsubAck,
    Unsubscribe,
)
from broker.codec.reason_codes import (
    BAD_AUTHENTICATION_METHOD,
    CLIENT_IDENTIFIER_NOT_VALID,
    NORMAL_DISCONNECTION,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_NAME_INVALID,
)
from broker.codec.writer import encode_packet
from broker.errors import MqttError, ProtocolViolation
from broker.origin import NAME
from broker.routing.names import SHARE_PREFIX
from broker.session.aliases import SentAliases
from broker.session.answers import check_answer
from broker.session.authentication import ConnectAnswer, handle_auth
from broker.session.filter_work import FilterWork
from broker.session.output import ANSWERING, Output
from broker.session.session import EXPIRY_NEVER, Session
from broker.session.will import take_will
from broker.slices import Work
from broker.wrappers import UnsubscribeRequest

PINGRESP_BYTES: Final = b"\xd0\x00"
# Largest Maximum Packet Size that CONNACK announces, in bytes. The protocol's packets have at most 5 more, so a larger limit
# says nothing, and paho-mqtt 2.2 takes a larger value for a malformed packet.
ANNOUNCED_SIZE_MAX: Final = 268_435_455


def handle_control_packet(broker: Broker, connection: Output, session: Session, packet: Packet, now: float) -> None:
    """Handle one packet of an open connection. Raises MqttError for an error of the client."""
    if isinstance(packet, PingReq):
        connection.write_answer(PINGRESP_BYTES)
    elif isinstance(packet, Subscribe):
        handle_subscribe(broker, connection, session, packet, now)
    elif isinstance(packet, Unsubscribe):
        handle_unsubscribe(broker, connection, session, packet, now)
    elif isinstance(packet, Disconnect):
        handle_disconnect(broker, connection, session, packet, now)
    elif isinstance(packet, Auth):
        handle_auth(broker, connection, session, packet, now)
    else:
        raise ProtocolViolation(f"{type(packet).__name__} is a packet that only servers send")


def assigned_client_id(broker: Broker) -> str:
    """An unused client id for a client that sent an empty one [MQTT-3.1.3-6]."""
    while True:
        client_id = f"gmqttd-{broker.rng.getrandbits(64):016x}"
        if client_id not in broker.sessions:
            return client_id


def handle_connect(broker: Broker, connection: Output, packet: Packet, now: float) -> None:
    """Handle CONNECT [MQTT5 3.1]. Raises MqttError to refuse it: the caller sends CONNACK with the reason code and closes
    the connection. The phase stays CONNECTING until the client is accepted."""
    if not isinstance(packet, Connect):
        raise ProtocolViolation(f"first packet is {type(packet).__name__}, not CONNECT [MQTT-3.1.0-1]")
    settings = broker.settings
    properties = packet.properties
    connection.version = packet.protocol_version
    connection.is_bridge = packet.is_bridge and packet.protocol_version < 5
    connection.client_id = packet.client_id
    connection.username = packet.username or ""
    connection.request_problem_information = props.get_int(properties, props.REQUEST_PROBLEM_INFORMATION, 1) == 1
    connection.receive_maximum = props.get_int(properties, props.RECEIVE_MAXIMUM, 65535)
    connection.maximum_packet_size = props.get_int(properties, props.MAXIMUM_PACKET_SIZE, 0)
    alias_maximum = props.get_int(properties, props.TOPIC_ALIAS_MAXIMUM, 0)
    if alias_maximum:
        connection.aliases = SentAliases(alias_maximum)
    method = props.get_str(properties, props.AUTHENTICATION_METHOD)
    if method is not None and broker.decider_of(method) is None:
        raise MqttError(BAD_AUTHENTICATION_METHOD, f"this server has no authentication method {method[:32]!a}")
    if packet.will is not None:
        if packet.will.qos > settings.maximum_qos:
            raise MqttError(QOS_NOT_SUPPORTED, f"will with QoS {packet.will.qos}, at most {settings.maximum_qos}")
        if packet.will.retain and not settings.retain_available:
            raise MqttError(RETAIN_NOT_SUPPORTED, "retained will, but this server has no retained messages")
        if packet.will.topic.count(b"/") >= settings.max_topic_levels:
            raise MqttError(TOPIC_NAME_INVALID, f"will topic has more than {settings.max_topic_levels} levels")
    answer: Properties = {}
    client_id = packet.client_id
    if not client_id:
        if not settings.allow_zero_length_clientid:
            raise MqttError(
                CLIENT_IDENTIFIER_NOT_VALID,
                "empty client identifier, not allowed by this server",
            )
        if packet.protocol_version < 5 and not packet.clean_start:
            raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "empty client identifier needs Clean Session 1 [MQTT-3.1.3-8]")
        client_id = assigned_client_id(broker)
        answer[props.ASSIGNED_CLIENT_IDENTIFIER] = client_id
    will = packet.will
    if will is not None and NAME in will.properties:
        will.properties = broker.stripped(will.properties)
    bridging = broker.bridging
    end = None if bridging is None else bridging.connect(packet, connection.listener)
    expiry_interval = _session_expiry(packet, answer, limits_of(settings, end or connection.bridge_end).session_expiry)
    connection.keep_alive = packet.keep_alive
    if settings.max_keepalive and packet.protocol_version == 5:
        if packet.keep_alive == 0 or packet.keep_alive > settings.max_keepalive:
            connection.keep_alive = settings.max_keepalive
            answer[props.SERVER_KEEP_ALIVE] = settings.max_keepalive
    if packet.protocol_version == 5:
        _announce_limits(broker, answer)
    if method is not None:
        answer[props.AUTHENTICATION_METHOD] = method  # [MQTT-4.12.0-5]
    # A client that takes this CONNACK takes every acknowledgement as well, which are shorter.
    check_answer(connection, ConnAck(False, SUCCESS, answer))
    work = ConnectAnswer(broker, connection, packet, client_id, expiry_interval, answer, method or "", end)
    work.begin(now)


def _session_expiry(packet: Connect, answer: Properties, longest: float) -> int:
    """Session Expiry Interval in seconds [MQTT5 3.1.2.11.2]. MQTT 3.1.1 has Clean Session only: 0, or the server's limit."""
    limit = int(min(longest, EXPIRY_NEVER))
    if packet.protocol_version < 5:
        return 0 if packet.clean_start else limit
    wanted = props.get_int(packet.properties, props.SESSION_EXPIRY_INTERVAL, 0)
    if wanted > limit:
        answer[props.SESSION_EXPIRY_INTERVAL] = limit
        return limit
    return wanted


def _announce_limits(broker: Broker, answer: Properties) -> None:
    """Add the properties of CONNACK for limits below the protocol's defaults [MQTT5 3.2.2.3]."""
    settings = broker.settings
    answer[props.RECEIVE_MAXIMUM] = settings.server_receive_maximum
    if settings.topic_alias_maximum:
        answer[props.TOPIC_ALIAS_MAXIMUM] = settings.topic_alias_maximum
    if settings.max_packet_size <= ANNOUNCED_SIZE_MAX:
        answer[props.MAXIMUM_PACKET_SIZE] = settings.max_packet_size
    if settings.maximum_qos < 2:
        answer[props.MAXIMUM_QOS] = settings.maximum_qos
    if not settings.retain_available:
        answer[props.RETAIN_AVAILABLE] = 0
    if not settings.wildcard_subscription_available:
        answer[props.WILDCARD_SUBSCRIPTION_AVAILABLE] = 0
    if not settings.subscription_identifier_available:
        answer[props.SUBSCRIPTION_IDENTIFIER_AVAILABLE] = 0
    if not settings.shared_subscription_available:
        answer[props.SHARED_SUBSCRIPTION_AVAILABLE] = 0


def handle_subscribe(broker: Broker, connection: Output, session: Session, packet: Subscribe, now: float) -> None:
    """Handle SUBSCRIBE [MQTT5 3.8]."""
    identifier = props.get_int(packet.properties, props.SUBSCRIPTION_IDENTIFIER, 0)
    if identifier and not broker.settings.subscription_identifier_available:
        raise MqttError(
            SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
            "this server has no Subscription Identifiers",
        )
    if connection.is_bridge:
        ask_as_bridge(packet)
    check_answer(connection, SubAck(packet.packet_id, [SUCCESS] * len(packet.filters)))
    start = get_start(packet)
    for request in packet.filters:
        request.start = start
    end = session.bridge_end
    if end is None:
        work = Subscribing(broker, session, packet.filters, identifier)
    else:
        work = cast(Subscribing, end.subscribing(session.client_id, packet, identifier))
    _answer(broker, connection, packet.packet_id, work, now)


def get_start(packet: Subscribe) -> str:
    """The first User Property `from`, "" for none."""
    for name, value in props.get_user_properties(packet.properties):
        if name == "from":
            return value
    return ""


def ask_as_bridge(packet: Subscribe) -> None:
    """Give the filters of a bridge the options that its protocol version has not: it gets nothing back that it has sent, and
    RETAIN as it was published, as from mosquitto itself."""
    for request in packet.filters:
        request.no_local = not request.topic_filter.startswith(SHARE_PREFIX)  # [MQTT-3.8.3-4]
        request.retain_as_published = True


def handle_unsubscribe(broker: Broker, connection: Output, session: Session, packet: Unsubscribe, now: float) -> None:
    """Handle UNSUBSCRIBE [MQTT5 3.10]."""
    check_answer(connection, UnsubAck(packet.packet_id, [SUCCESS] * len(packet.topic_filters)))
    end = session.bridge_end
    if end is None:
        work = ClientUnsubscribing(broker, session, packet.topic_filters, len(packet.topic_filters))
    else:
        work = cast(ClientUnsubscribing, end.unsubscribing(session.client_id, packet))
    _answer(broker, connection, packet.packet_id, work, now)


def _answer(broker: Broker, connection: Output, packet_id: int, work: FilterWork, now: float) -> None:
    """Begin the answer to a packet. One that takes more than a slice goes on in later turns, and the input behind the
    packet waits."""
    answer = FiltersAnswer(broker, connection, packet_id, work)
    if not answer.go_on(now):
        connection.phase = ANSWERING
        connection.answer = answer
        broker.rest(connection)


class Subscribing(FilterWork):
    """Adds the filters of one SUBSCRIBE. `along` as in Subscription. `refusal`: why the first of those that are refused is, ""
    where its code says it."""

    def __init__(
        self,
        broker: Broker,
        session: Session,
        requests: list[SubscribeFilter],
        identifier: int,
        along: tuple[bytes, ...] = NOTHING_ALONG,
    ) -> None:
        super().__init__(broker.slices, session, len(requests))
        self.broker = broker
        self.requests = requests
        self.refusal = ""
        self._identifier = identifier
        self._along = along

    def handle(self, index: int) -> int:
        code = self.broker.subscribe_one(self.session, self.requests[index], self._identifier, self._along)
        if not self.refusal:
            self.refusal = self.broker.refusal
        return code


class ClientUnsubscribing(Unsubscribing):
    """Removes the filters of one UNSUBSCRIBE, where plugins wrap them. UNSUBACK has reason codes for the first `answered`."""

    def __init__(self, broker: Broker, session: Session, full_filters: list[bytes], answered: int) -> None:
        super().__init__(broker, session, full_filters)
        self.answered = answered

    def handle(self, index: int) -> int:
        chain = self.broker.unsubscribing
        if chain is not None:
            request = UnsubscribeRequest(self.session.identity(), self.full_filters[index])
            if not chain.run(request):
                return request.reason_code
        return super().handle(index)


class FiltersAnswer(Work):
    """Subscribe or unsubscribe, write SUBACK or UNSUBACK, and begin to send the retained messages of subscriptions."""

    def __init__(self, broker: Broker, connection: Output, packet_id: int, work: FilterWork) -> None:
        self._broker = broker
        self._connection = connection
        self._packet_id = packet_id
        self._work = work

    def go_on(self, now: float) -> bool:
        work = self._work
        if not work.go_on(now):
            return False
        session = work.session
        if isinstance(work, Subscribing):
            answer = SubAck(self._packet_id, work.codes)
            if work.refusal and self._connection.request_problem_information:
                answer.properties[props.REASON_STRING] = work.refusal
            self._answer_after_commit(session, answer)
            session.pump(now)
        else:
            answered = cast(ClientUnsubscribing, work).answered
            self._answer_after_commit(session, UnsubAck(self._packet_id, work.codes[:answered]))
        return True

    def _answer_after_commit(self, session: Session, answer: Packet) -> None:
        """Write the answer, for a durable session when the store has all that the packet has changed."""
        connection = self._connection
        commits = self._broker.commits
        commits.next_packet()
        if session.records is not None:
            session.records.journal.is_touched = True  # what the packet has changed may be older than this turn
            commits.require_promises()  # other nodes are to know of the interest
        commits.acknowledge(connection, encode_packet(answer, connection.version, connection.maximum_packet_size))


def handle_disconnect(broker: Broker, connection: Output, session: Session, packet: Disconnect, now: float) -> None:
    """Handle DISCONNECT [MQTT5 3.14]. It may change the Session Expiry Interval; a normal one deletes the will."""
    wanted = props.get_int(packet.properties, props.SESSION_EXPIRY_INTERVAL, -1)
    if wanted >= 0:
        if session.expiry_interval == 0 and wanted > 0 and broker.settings.session_expiry > 0:
            raise ProtocolViolation("DISCONNECT raises a Session Expiry Interval of 0 [MQTT-3.14.2-2]")
        longest = limits_of(broker.settings, session.bridge_end).session_expiry
        session.expiry_interval = min(wanted, int(min(longest, EXPIRY_NEVER)))
    if packet.reason_code == NORMAL_DISCONNECTION:
        take_will(
            connection, broker.commits.journal
        )  # [MQTT-3.14.4-3]; with any other reason code the will is published [MQTT-3.1.2-10]
    broker.close_connection(connection, NO_REASON, "client disconnected", now)
