"""The fifteen control packets [MQTT5 3]. Fields have the specification's names.

Topics, topic filters and payloads are bytes; client ids, user names and strings in properties are str. `properties` is
a dict by property id (broker.codec.properties), {} for none and in MQTT 3.1.1. Acknowledgements of a PUBLISH have None
for none. PUBLISH and wills have an encoded block. Reason codes are those of MQTT 5 in every version.
"""

# compiled with mypyc
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

PropertyValue: TypeAlias = int | str | bytes | list[tuple[str, str]]
Properties: TypeAlias = dict[int, PropertyValue]

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

# Protocol levels: 3 is MQTT 3.1 ("MQIsdp"), 4 is MQTT 3.1.1.
MQTT_31: Final = 3
MQTT_311: Final = 4
MQTT_5: Final = 5


@dataclass
class Packet:
    """Base of all packets.

    Packets of every message and of every connect have an `__init__` of their own: compiled, it takes a quarter to a tenth of
    the time of a generated one.
    """


@dataclass
class Will(Packet):
    """The will of a CONNECT [MQTT5 3.1.2.5, 3.1.3.2].

    properties               forwardable block as in broker.message.Message
    message_expiry_interval  seconds, None when absent
    delay_interval           seconds, 0 when absent
    """

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: bytes = b""
    message_expiry_interval: int | None = None
    delay_interval: int = 0


@dataclass(init=False)
class Connect(Packet):
    """CONNECT [MQTT5 3.1]. `clean_start` is Clean Session in MQTT 3.1.1. `keep_alive` in seconds. `is_bridge`: the protocol
    level has the bit 0x80, by which a bridge of mosquitto shows what it is.

    The password is not in the text of a packet, because logs contain this text.
    """

    client_id: str
    protocol_version: int
    clean_start: bool
    keep_alive: int
    username: str | None
    password: bytes | None = field(repr=False)
    will: Will | None
    properties: Properties
    is_bridge: bool = field(repr=False)

    def __init__(
        self,
        client_id: str,
        protocol_version: int = MQTT_5,
        clean_start: bool = True,
        keep_alive: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
        is_bridge: bool = False,
    ) -> None:
        self.client_id = client_id
        self.protocol_version = protocol_version
        self.is_bridge = is_bridge
        self.clean_start = clean_start
        self.keep_alive = keep_alive
        self.username = username
        self.password = password
        self.will = will
        self.properties = {} if properties is None else properties


@dataclass(init=False)
class ConnAck(Packet):
    """CONNACK [MQTT5 3.2]. In MQTT 3.1.1 a reason code without a return code is sent as 3, server unavailable."""

    session_present: bool
    reason_code: int
    properties: Properties

    def __init__(self, session_present: bool, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.session_present = session_present
        self.reason_code = reason_code
        self.properties = {} if properties is None else properties


@dataclass(init=False)
class Publish(Packet):
    """PUBLISH [MQTT5 3.3].

    packet_id                0 with QoS 0
    properties               forwardable block as in broker.message.Message
    message_expiry_interval  seconds, -1 when absent
    topic_alias              0 when absent; `topic` may be empty only with an alias
    """

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    properties: bytes
    message_expiry_interval: int
    topic_alias: int
    subscription_identifiers: tuple[int, ...]

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: bytes = b"",
        message_expiry_interval: int = -1,
        topic_alias: int = 0,
        subscription_identifiers: tuple[int, ...] = (),
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties
        self.message_expiry_interval = message_expiry_interval
        self.topic_alias = topic_alias
        self.subscription_identifiers = subscription_identifiers


@dataclass(init=False)
class Ack(Packet):
    """Base of PUBACK, PUBREC, PUBREL and PUBCOMP [MQTT5 3.4 to 3.7]."""

    packet_id: int
    reason_code: int
    properties: Properties | None

    def __init__(self, packet_id: int, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.properties = properties


class PubAck(Ack):
    pass


class PubRec(Ack):
    pass


class PubRel(Ack):
    pass


class PubComp(Ack):
    pass


@dataclass(init=False)
class SubscribeFilter(Packet):
    """One filter of a SUBSCRIBE with its options [MQTT5 3.8.3.1]. `topic_filter` includes `$share/name/`. `start`: the User
    Property `from` of the packet, "" for none (broker/feeds.py)."""

    topic_filter: bytes
    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    start: str = field(default="", repr=False)

    def __init__(
        self,
        topic_filter: bytes,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        start: str = "",
    ) -> None:
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.start = start


@dataclass(init=False)
class Subscribe(Packet):
    """SUBSCRIBE [MQTT5 3.8]."""

    packet_id: int
    filters: list[SubscribeFilter]
    properties: Properties

    def __init__(self, packet_id: int, filters: list[SubscribeFilter], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.filters = filters
        self.properties = {} if properties is None else properties


@dataclass(init=False)
class SubAck(Packet):
    """SUBACK [MQTT5 3.9]: one reason code for each filter, in order."""

    packet_id: int
    reason_codes: list[int]
    properties: Properties

    def __init__(self, packet_id: int, reason_codes: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties = {} if properties is None else properties


@dataclass
class Unsubscribe(Packet):
    """UNSUBSCRIBE [MQTT5 3.10]."""

    packet_id: int
    topic_filters: list[bytes]
    properties: Properties = field(default_factory=dict)


@dataclass
class UnsubAck(Packet):
    """UNSUBACK [MQTT5 3.11]; no reason codes in MQTT 3.1.1."""

    packet_id: int
    reason_codes: list[int]
    properties: Properties = field(default_factory=dict)


class PingReq(Packet):
    pass


class PingResp(Packet):
    pass


@dataclass
class Disconnect(Packet):
    """DISCONNECT [MQTT5 3.14]. In MQTT 3.1.1 only clients send it, without a reason code."""

    reason_code: int = 0
    properties: Properties = field(default_factory=dict)


@dataclass
class Auth(Packet):
    """AUTH [MQTT5 3.15], MQTT 5 only."""

    reason_code: int = 0
    properties: Properties = field(default_factory=dict)
