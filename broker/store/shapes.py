"""The values of records that another node sends: of a session, of what belongs to it, and of a will.

What this node has written itself needs no such look. A record of another one may have any value, and would be found out when a
client is to get it, or when the store is to keep it.
"""

# compiled with mypyc
from __future__ import annotations

import math
from typing import Final, cast

from broker.codec.properties import publish_properties_to_dict
from broker.codec.wire import VARINT_MAX, check_utf8
from broker.routing.names import parse_filter
from broker.session.outgoing import AWAIT_PUBCOMP
from broker.session.session import EXPIRY_NEVER
from broker.store.journal import checked
from broker.store.kinds import MESSAGE, OUTGOING, RECEIVED, RETAINED, SESSION, SUBSCRIPTION, WILL

UINT16_MAX: Final = 0xFFFF
UINT32_MAX: Final = 0xFFFFFFFF
NUMBER_MAX: Final = 2**62  # of a record
QOS_MAX: Final = 2
VERSIONS: Final = (3, 4, 5)

Record = tuple[object, ...]


def check_shape(record: Record) -> None:
    """Raises TypeError, ValueError or MqttError for a record of these kinds that no broker has written."""
    kind = record[0]
    if kind == OUTGOING:
        _check_outgoing(record)
    elif kind == SUBSCRIPTION:
        _check_subscription(record)
    elif kind in (SESSION, WILL):
        _check_session(record)
    elif kind == RECEIVED:
        _, session, packet_id = record
        between(session, 0, NUMBER_MAX)
        between(packet_id, 1, UINT16_MAX)
    elif kind == MESSAGE:
        _check_message(record)


def between(value: object, least: int, most: int) -> int:
    """Return it. Raises TypeError and ValueError."""
    number = checked(int, value)
    if not least <= number <= most:
        raise ValueError(f"{number} is not {least} to {most}")
    return number


def count_of(value: object) -> int:
    """A count, a serial number or the number of a record that another node tells: one more of it can still be kept. Raises
    TypeError and ValueError."""
    return between(value, 0, NUMBER_MAX)


def _time(value: object) -> None:
    if not math.isfinite(checked(float, value)):
        raise ValueError(f"{value} is no time")


def _topic(value: object) -> None:
    check_utf8(checked(bytes, value))


def _properties(value: object) -> None:
    block = checked(bytes, value)
    if block:
        publish_properties_to_dict(block)


def _check_session(record: Record) -> None:
    _, client_id, username, access, version, keep_alive, remote_addr, local_addr, *times = record
    created_at, connected_at, expiry_interval, disconnected_at, will, will_due_at, *more = times
    for text in (client_id, username, remote_addr, local_addr):
        checked(str, text)
    for entry in () if access is None else checked(tuple, access):
        pattern, publish, reads = checked(tuple, entry)
        checked(str, pattern)
        checked(bool, publish)
        checked(bool, reads)
    if version not in VERSIONS:
        raise ValueError(f"{version!r:.50} is no version of the protocol")
    between(keep_alive, 0, UINT16_MAX)
    between(expiry_interval, 0, EXPIRY_NEVER)
    for time in (created_at, connected_at, disconnected_at, will_due_at):
        _time(time)
    if will is not None:
        topic, payload, qos, retain, properties, expiry, delay = checked(tuple, will)
        _topic(topic)
        checked(bytes, payload)
        between(qos, 0, QOS_MAX)
        checked(bool, retain)
        _properties(properties)
        between(delay, 0, UINT32_MAX)
        if expiry is not None:
            between(expiry, 0, UINT32_MAX)
    if more:
        checked(bytes, more[0])
    for group in checked(tuple, more[1]) if len(more) > 1 else ():
        parse_filter(checked(bytes, group))
    if len(more) > 2:
        _time(more[2])


def _check_subscription(record: Record) -> None:
    _, session, full, qos, no_local, retain_as_published, retain_handling, identifier, *more = record
    between(session, 0, NUMBER_MAX)
    _topic(full)
    parse_filter(cast(bytes, full))
    between(qos, 0, QOS_MAX)
    checked(bool, no_local)
    checked(bool, retain_as_published)
    between(retain_handling, 0, 2)
    between(identifier, 0, VARINT_MAX)
    for along in checked(tuple, more[0]) if more else ():
        checked(bytes, along)
    if len(more) > 1:
        checked(bytes, more[1])


def _check_outgoing(record: Record) -> None:
    _, session, message, qos, retain, identifiers, expires_at, packet_id, state, *more = record
    between(session, 0, NUMBER_MAX)
    if isinstance(message, tuple):
        _check_message(message)
    elif message is not None:
        between(message, 0, NUMBER_MAX)
    between(qos, 0, QOS_MAX)
    checked(bool, retain)
    for identifier in checked(tuple, identifiers):
        between(identifier, 1, VARINT_MAX)
    _time(expires_at)
    between(packet_id, 0, UINT16_MAX)
    between(state, 0, AWAIT_PUBCOMP)
    if more:
        parse_filter(checked(bytes, more[0]))


def _check_message(record: Record) -> None:
    kind, topic, payload, qos, retain, properties, expires_at, client_id, *more = record
    if kind not in (MESSAGE, RETAINED):  # without a store it is in no record
        raise ValueError(f"a message of the kind {kind!r:.50}")
    _topic(topic)
    checked(bytes, payload)
    between(qos, 0, QOS_MAX)
    checked(bool, retain)
    _properties(properties)
    _time(expires_at)
    checked(str, client_id)
    if more:
        checked(bytes, more[0])
