"""The subscriptions of a link in its session at the upstream: what is wanted, what is there, what is on the way.

Filters travel in batches. A server handles the packets of one connection in order, so a later change of a filter need not
wait for the answer to an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker.codec.packets import Packet, Properties, SubAck, Subscribe, SubscribeFilter, UnsubAck, Unsubscribe
from broker.codec.properties import USER_PROPERTY
from broker.codec.reason_codes import NO_SUBSCRIPTION_EXISTED
from broker.errors import ProtocolViolation
from broker.origin import NAME
from federation.links.bridging.headers import ONLY_ASKED

BATCH_FILTERS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 32_768  # of the filters of one packet; one longer filter travels by itself
ON_WAY_MAX: Final = 8  # packets that are not answered
FILTER_OVERHEAD: Final = 3  # bytes of a filter in its packet: length and options
RETAINED_WHERE_NEW: Final = 1  # Retain Handling: retained messages only for a subscription that is not there yet
RETAINED_NEVER: Final = 2
PACKET_ID_MAX: Final = 65_535
NO_FILTER: Final = b"$gmqttd/none"  # an UNSUBSCRIBE has one at least [MQTT-3.10.3-2]

Headers = tuple[tuple[str, str], ...]
"""User Properties of the SUBSCRIBE of a filter."""
NO_HEADERS: Final[Headers] = ()


class OnWay(NamedTuple):
    """A packet that is not answered. `headers`: None for an UNSUBSCRIBE."""

    headers: Headers | None
    filters: list[bytes]


class Subscriptions:
    """wanted   the filters that the link is to have, with their headers
    refused  filters that the upstream refuses, with its reason code; asked for again on the next connection
    """

    def __init__(self) -> None:
        self.wanted: dict[bytes, Headers] = {}
        self.refused: dict[bytes, int] = {}
        self._there: dict[bytes, Headers] = {}  # in the session, as far as its answers tell
        self._changes: dict[bytes, Headers | None] = {}  # not sent; None: the filter is to go
        self._on_way: dict[int, OnWay] = {}
        self._first: set[bytes] = set()  # those that changed when the connection began, and are not answered
        self._is_inherited = False  # the session may have filters that nobody here has asked for
        self._last_id = 0

    def change(self, subscribe: Mapping[bytes, Headers], unsubscribe: Iterable[bytes]) -> None:
        """Want some filters more, or with other headers, and some less."""
        # In this order: while a covering filter goes, those below it are there already, and nothing is lost.
        for topic_filter, headers in subscribe.items():
            if self.wanted.get(topic_filter) != headers:
                self.wanted[topic_filter] = headers
                self._changes[topic_filter] = headers
        for topic_filter in unsubscribe:
            if topic_filter in self.wanted:
                del self.wanted[topic_filter]
                self._changes.pop(topic_filter, None)
                self._changes[topic_filter] = None

    def follow(self, before: Subscriptions) -> None:
        """The session has what is known of another one, before anything is wanted here."""
        self._there = dict(before._there)
        self._changes = {name: None for name, headers in before._changes.items() if headers is None}
        for sent in before._on_way.values():
            self._changes.update(dict.fromkeys(sent.filters))

    def begin(self, is_present: bool, is_inherited: bool = False) -> None:
        """A connection was accepted. `is_present`: it goes on with the session that earlier calls were about. `is_inherited`:
        with one of another process, at an upstream of ours, which is told to end what is not wanted any more."""
        possible = dict.fromkeys(self._there)
        possible.update(dict.fromkeys(name for name, headers in self._changes.items() if headers is None))
        for sent in self._on_way.values():
            possible.update(dict.fromkeys(sent.filters))  # the answer may have been lost
            for topic_filter in sent.filters:
                self._there.pop(topic_filter, None)
        if not is_present:
            possible.clear()
            self._there.clear()
        self._on_way.clear()
        self.refused.clear()
        self._changes = {name: headers for name, headers in self.wanted.items() if self._there.get(name) != headers}
        self._changes.update(dict.fromkeys(name for name in possible if name not in self.wanted))
        self._first = set(self._changes)
        self._is_inherited = is_inherited

    def has_begun(self) -> bool:
        """Return whether the upstream has answered what there was to change when the connection began."""
        return not self._first

    def is_settled(self) -> bool:
        """Return whether the upstream has answered every change."""
        return not self._changes and not self._on_way

    def there(self) -> int:
        """Number of filters that the session has."""
        return len(self._there)

    def take_packets(self, qos: int, retain: bool = True) -> list[Packet]:
        """The packets that may be sent now; the next ones follow an answer."""
        packets: list[Packet] = []
        while self._changes and len(self._on_way) < ON_WAY_MAX:
            packets.append(self._next_packet(qos, retain))
        if self._is_inherited and not self._first:
            self._is_inherited = False
            packet_id = self._free_id()
            self._on_way[packet_id] = OnWay(None, [NO_FILTER])
            packets.append(Unsubscribe(packet_id, [NO_FILTER], {USER_PROPERTY: [(NAME.decode(), ONLY_ASKED.decode())]}))
        return packets

    def farewell(self) -> list[Packet]:
        """UNSUBSCRIBE packets for all that the session has, whose answers nobody reads."""
        filters = list(self._there)
        batches = [filters[at : at + BATCH_FILTERS_MAX] for at in range(0, len(filters), BATCH_FILTERS_MAX)]
        return [Unsubscribe(number % PACKET_ID_MAX + 1, batch) for number, batch in enumerate(batches)]

    def _next_packet(self, qos: int, retain: bool) -> Packet:
        """The next changes of one kind."""
        filters: list[bytes] = []
        size = 0
        headers = next(iter(self._changes.values()))
        for topic_filter, others in self._changes.items():
            size += len(topic_filter) + FILTER_OVERHEAD
            if others != headers or len(filters) == BATCH_FILTERS_MAX or (filters and size > BATCH_BYTES_MAX):
                break
            filters.append(topic_filter)
        for topic_filter in filters:
            del self._changes[topic_filter]
        packet_id = self._free_id()
        self._on_way[packet_id] = OnWay(headers, filters)
        if headers is None:
            return Unsubscribe(packet_id, filters)
        properties: Properties = {USER_PROPERTY: list(headers)} if headers else {}
        return Subscribe(
            packet_id,
            [
                SubscribeFilter(
                    topic_filter,
                    qos,
                    no_local=not topic_filter.startswith(b"$share/"),  # [MQTT-3.8.3-4]
                    retain_as_published=retain,
                    retain_handling=RETAINED_WHERE_NEW if retain else RETAINED_NEVER,
                )
                for topic_filter in filters
            ],
            properties,
        )

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % PACKET_ID_MAX + 1
            if self._last_id not in self._on_way:
                return self._last_id

    def answered(self, answer: SubAck | UnsubAck) -> None:
        """SUBACK or UNSUBACK came. Raises ProtocolViolation for one that answers nothing."""
        headers, filters = self._on_way.pop(answer.packet_id, OnWay(None, []))
        codes = answer.reason_codes
        if isinstance(answer, UnsubAck) and not codes:  # MQTT 3.1.1 has none
            codes = [0] * len(filters)
        if not filters or (headers is None) == isinstance(answer, SubAck) or len(codes) != len(filters):
            raise ProtocolViolation(f"{type(answer).__name__} that answers no packet of the link")
        self._first.difference_update(filters)
        for topic_filter, code in zip(filters, codes, strict=True):
            if code >= 0x80:
                self.refused[topic_filter] = code
            elif headers is not None:
                self._there[topic_filter] = headers
                self.refused.pop(topic_filter, None)
            elif code in (0, NO_SUBSCRIPTION_EXISTED):
                self._there.pop(topic_filter, None)
                self.refused.pop(topic_filter, None)
