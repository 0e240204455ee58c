"""All observers of a kind as one. An observer that raises is logged and counted; the others are called all the same."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.runs import Run
from broker.counters import Counters
from broker.faults import Faults
from broker.hooks import ClientObserver, DeliveryObserver, Tap
from broker.message import Message
from broker.publisher import Publisher


class Observers:
    """What the kinds have in common."""

    def __init__(self, counters: Counters, faults: Faults) -> None:
        self._counters = counters
        self._faults = faults

    def failed(self, call: str, error: Exception) -> None:
        self._counters.plugin_faults += 1
        self._faults.plugin_failed(call, error)


class ClientObservers(ClientObserver):
    def __init__(self, observers: list[ClientObserver], counters: Counters, faults: Faults) -> None:
        self.observers = observers
        self._isolation = Observers(counters, faults)

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        for observer in self.observers:
            try:
                observer.client_connected(client_id, addr, version, username, keep_alive)
            except Exception as error:
                self._isolation.failed("ClientObserver.client_connected", error)

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        for observer in self.observers:
            try:
                observer.client_disconnected(client_id, addr, reason)
            except Exception as error:
                self._isolation.failed("ClientObserver.client_disconnected", error)

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        for observer in self.observers:
            try:
                observer.client_refused(client_id, addr, username, reason)
            except Exception as error:
                self._isolation.failed("ClientObserver.client_refused", error)

    def session_opened(self, client_id: str, present: bool) -> None:
        """A client has a session again (`present`) or a new one."""
        if present:
            self.session_resumed(client_id)
        else:
            self.session_created(client_id)

    def session_created(self, client_id: str) -> None:
        for observer in self.observers:
            try:
                observer.session_created(client_id)
            except Exception as error:
                self._isolation.failed("ClientObserver.session_created", error)

    def session_resumed(self, client_id: str) -> None:
        for observer in self.observers:
            try:
                observer.session_resumed(client_id)
            except Exception as error:
                self._isolation.failed("ClientObserver.session_resumed", error)

    def session_terminated(self, client_id: str, reason: str) -> None:
        for observer in self.observers:
            try:
                observer.session_terminated(client_id, reason)
            except Exception as error:
                self._isolation.failed("ClientObserver.session_terminated", error)

    def subscribed(self, client_id: str, full_filter: bytes, qos: int) -> None:
        for observer in self.observers:
            try:
                observer.subscribed(client_id, full_filter, qos)
            except Exception as error:
                self._isolation.failed("ClientObserver.subscribed", error)

    def unsubscribed(self, client_id: str, full_filter: bytes) -> None:
        for observer in self.observers:
            try:
                observer.unsubscribed(client_id, full_filter)
            except Exception as error:
                self._isolation.failed("ClientObserver.unsubscribed", error)

    def will_published(self, client_id: str, message: Message) -> None:
        for observer in self.observers:
            try:
                observer.will_published(client_id, message)
            except Exception as error:
                self._isolation.failed("ClientObserver.will_published", error)


class DeliveryObservers(DeliveryObserver):
    def __init__(self, observers: list[DeliveryObserver], counters: Counters, faults: Faults) -> None:
        self.observers = observers
        self._isolation = Observers(counters, faults)

    def delivered(self, client_id: str, message: Message, qos: int) -> None:
        for observer in self.observers:
            try:
                observer.delivered(client_id, message, qos)
            except Exception as error:
                self._isolation.failed("DeliveryObserver.delivered", error)

    def delivered_run(self, client_id: str, run: Run) -> None:
        for observer in self.observers:
            try:
                observer.delivered_run(client_id, run)
            except Exception as error:
                self._isolation.failed("DeliveryObserver.delivered_run", error)

    def dropped(self, client_id: str, qos: int, reason: str) -> None:
        for observer in self.observers:
            try:
                observer.dropped(client_id, qos, reason)
            except Exception as error:
                self._isolation.failed("DeliveryObserver.dropped", error)


class Taps(Tap):
    """A tap that refuses messages acknowledges what it stores: its exception is not isolated, the client's connection ends."""

    def __init__(self, taps: list[Tap], counters: Counters, faults: Faults) -> None:
        self.taps = taps
        self._isolation = Observers(counters, faults)

    def refuses(self, topic: bytes) -> bool:
        return any(tap.refuses(topic) for tap in self.taps)

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        for tap in self.taps:
            if tap.is_essential():
                tap.published(message, publisher, now)
                continue
            try:
                tap.published(message, publisher, now)
            except Exception as error:
                self._isolation.failed("Tap.published", error)

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        for tap in self.taps:
            if tap.is_essential():
                tap.published_run(run, publisher, now)
                continue
            try:
                tap.published_run(run, publisher, now)
            except Exception as error:
                self._isolation.failed("Tap.published_run", error)
