"""PUBACK, PUBREC, PUBREL and PUBCOMP of a client [MQTT5 4.3]."""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.codec.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, PubAck, PubComp, PubRec, PubRel
from broker.codec.reason_codes import PACKET_IDENTIFIER_NOT_FOUND, SUCCESS
from broker.codec.writer import encode_ack
from broker.session.output import Output
from broker.session.session import Session


def handle_ack(
    broker: Broker, connection: Output, session: Session, kind: int, ack: PubAck | PubRec | PubRel | PubComp
) -> None:
    """Handle an acknowledgement. Raises ProtocolViolation for one of the wrong kind."""
    packet_id = ack.packet_id
    commits = broker.commits
    commits.next_packet()
    answer = 0
    known = False
    if kind == PUBACK:
        if ack.reason_code >= 0x80 and session.bridge_end is not None:
            session.bridge_end.rejected(session.client_id, packet_id, broker.now)
        session.acknowledge(packet_id)
    elif kind == PUBREC:
        failed = ack.reason_code >= 0x80
        known = session.received(packet_id, failed)
        answer = 0 if failed else PUBREL
    elif kind == PUBREL:
        known = session.release(packet_id)
        answer = PUBCOMP
    else:
        session.completed(packet_id)
    if answer:
        reason_code = SUCCESS if known else PACKET_IDENTIFIER_NOT_FOUND
        commits.acknowledge(connection, encode_ack(answer, packet_id, reason_code, connection.version))
