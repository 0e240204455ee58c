"""The client's end of the connection of a queue link: offers are taken out of what comes, and jobs are counted."""

from __future__ import annotations

from broker.codec.packets import MQTT_5, PUBLISH, Connect
from broker.codec.reader import decode_publish
from broker.codec.wire import decode_varint
from broker.errors import MqttError, ProtocolViolation
from broker.job_header import offer_of, queue_of, sent_of
from broker.origin import HeaderError, decode_origin, split_properties
from federation.errors import QueueLinkFault
from federation.links.client import Client
from federation.links.flow import packet_end
from federation.links.subscriptions import Subscriptions


class QueueClientOwner:
    """What a queue client asks of its link. `name` is that of a queue in the upstream's headers."""

    def offered(self, name: bytes, count: int, sent: int) -> None:
        """The upstream has so many jobs to spare, without those on the way; NO_QUEUE where it has no such queue. `sent`: all
        that it has sent before."""
        raise AssertionError("a subclass implements this")

    def job_came(self, name: bytes) -> None:
        """A job came. Raises QueueLinkFault for one that was never asked for."""
        raise AssertionError("a subclass implements this")


class QueueClient(Client):
    def __init__(
        self, connect: Connect, subscriptions: Subscriptions, packet_bytes_max: int, owner: QueueClientOwner
    ) -> None:
        super().__init__(connect, subscriptions, 1, False, packet_bytes_max)
        self._owner = owner

    def take_flow(self) -> bytes:
        """The jobs that came since the last call, as they came."""
        flow = super().take_flow()
        if self.is_closed:
            return b""
        try:
            return self._jobs_of(flow)
        except MqttError as error:
            self.fail(error)
        except HeaderError as error:
            self.fail(ProtocolViolation(f"the header of a job cannot be read: {error.text}"))
        except QueueLinkFault as fault:
            self.fail(ProtocolViolation(str(fault)))
        return b""

    def _jobs_of(self, flow: bytes) -> bytes:
        parts: list[bytes] = []
        size = len(flow)
        kept_from = pos = 0
        while pos < size:
            end = packet_end(flow, pos, size)
            first = flow[pos]
            if first >> 4 != PUBLISH:
                raise ProtocolViolation("an acknowledgement, and the link has sent no message")
            publish = decode_publish(first, flow, decode_varint(flow, pos + 1, end)[1], end, MQTT_5)
            _, headers = split_properties(publish.properties)
            origin = decode_origin(headers[0]) if headers else None
            name = queue_of(origin)
            if origin is None or not name or publish.qos == 2:
                raise ProtocolViolation("a message that is neither a job nor an offer")
            if publish.qos == 0:
                self._owner.offered(name, offer_of(origin), sent_of(origin))
                parts.append(flow[kept_from:pos])
                kept_from = end
            elif not publish.dup:  # one that is sent again was asked for on an earlier connection
                self._owner.job_came(name)
            pos = end
        parts.append(flow[kept_from:])
        return b"".join(parts)
