"""What the upstream of a link grants less than it was asked for, as sentences for the status and the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.codec.packets import MQTT_5
from broker.codec.reason_codes import reason_name
from broker.link_header import LinkWelcome
from federation.definitions.upstream import Direction, Upstream
from federation.links.client import EXPIRY_NEVER, Accepted
from federation.links.handshake import expiry_of, qos_of

LOST_IN_311: Final = (
    "the upstream has MQTT 3.1.1: user properties, expiry and RETAIN of live messages do not cross the link, and it does "
    "not say how long it keeps the session"
)
UNITS: Final = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))


class Note(NamedTuple):
    """`is_warning`: less than the definition of the upstream asks for, or than every link expects."""

    text: str
    is_warning: bool = True


def notes_on(upstream: Upstream, version: int, accepted: Accepted, welcome: LinkWelcome | None) -> tuple[Note, ...]:
    """What the upstream grants less than asked. `version` is that of the protocol; `welcome` is None for a broker of another
    kind."""
    if version != MQTT_5:
        return (Note(LOST_IN_311),)
    notes: list[Note] = []
    is_out = upstream.direction is Direction.OUT
    asked = expiry_of(upstream)
    if 0 <= accepted.session_expiry < asked and not is_out:
        granted = f"for a link that is away, messages wait at the upstream for at most {span(accepted.session_expiry)}"
        if asked == EXPIRY_NEVER:
            notes.append(Note(f"{granted}; without `expires` the link has asked for ever", False))
        else:
            notes.append(Note(f"{granted}; `expires` asks for {span(asked)}"))
    if accepted.maximum_qos < qos_of(upstream):
        notes.append(Note("the upstream has QoS 0 only: messages are lost with a connection"))
    if is_out and accepted.receive_maximum < upstream.prefetch_count:
        text = f"the upstream takes {accepted.receive_maximum} messages without acknowledgement at a time"
        notes.append(Note(f"{text}; `prefetch-count` allows {upstream.prefetch_count}", False))
    if not accepted.retain_available:
        notes.append(Note("the upstream has no retained messages"))
    if not accepted.wildcard_available and not is_out:
        notes.append(Note("the upstream takes no filters with wildcards"))
    if welcome is not None and welcome.refused:
        text = "the account at the upstream has no role `link`: it is served as an ordinary client, without headers"
        notes.append(Note(text))
    if upstream.message_ttl is not None and not is_out and (welcome is None or welcome.refused):
        notes.append(Note("message-ttl has no effect: this upstream cannot be asked for it"))
    return tuple(notes)


def refusals(refused: Mapping[bytes, int]) -> tuple[Note, ...]:
    """What is said of filters that the upstream refuses: their reason codes by filter."""
    if not refused:
        return ()
    topic_filter, code = next(iter(refused.items()))
    what = "the filter" if len(refused) == 1 else f"{len(refused)} filters, such as"
    return (Note(f"the upstream refuses {what} {topic_filter.decode()}: {reason_name(code)}"),)


def span(seconds: int) -> str:
    """Seconds for people: whole days, hours or minutes where there are two or more of them."""
    for unit, name in UNITS:
        if seconds >= 2 * unit and seconds % unit == 0:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
