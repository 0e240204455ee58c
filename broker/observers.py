"""All observers of a kind as one. An observer that raises is logged and counted; the others are called all the same."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.runs import Run
from broker.counters import Counters
from broker.faults import Faults
from broker.hooks import ClientObserver, DeliveryObserver, Tap
from broker.message import Message
from broker.publisher import Publisher


class ClientObservers(ClientObserver):
    def __init__(self, observers: list[ClientObserver], counters: Counters, faults: Faults) -> None:
        self._observers = observers
        self._counters = counters
        self._faults = faults

    def _call(self, name: str, *arguments: object) -> None:
        for observer in self._observers:
            try:
                getattr(observer, name)(*arguments)
            except Exception as error:
                self._counters.plugin_faults += 1
                self._faults.plugin_failed(f"ClientObserver.{name}", error)

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        self._call("client_connected", client_id, addr, version, username, keep_alive)

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        self._call("client_disconnected", client_id, addr, reason)

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        self._call("client_refused", client_id, addr, username, reason)

    def session_opened(self, client_id: str, present: bool) -> None:
        """A client has a session again (`present`) or a new one."""
        self._call("session_resumed" if present else "session_created", client_id)

    def session_terminated(self, client_id: str, reason: str) -> None:
        self._call("session_terminated", client_id, reason)

    def subscribed(self, client_id: str, full_filter: bytes, qos: int) -> None:
        self._call("subscribed", client_id, full_filter, qos)

    def subscription_refused(self, client_id: str, full_filter: bytes, reason: str) -> None:
        self._call("subscription_refused", client_id, full_filter, reason)

    def unsubscribed(self, client_id: str, full_filter: bytes) -> None:
        self._call("unsubscribed", client_id, full_filter)

    def will_published(self, client_id: str, message: Message) -> None:
        self._call("will_published", client_id, message)


class DeliveryObservers(DeliveryObserver):
    def __init__(self, observers: list[DeliveryObserver], counters: Counters, faults: Faults) -> None:
        self._observers = observers
        self._counters = counters
        self._faults = faults

    def _failed(self, name: str, error: Exception) -> None:
        self._counters.plugin_faults += 1
        self._faults.plugin_failed(f"DeliveryObserver.{name}", error)

    def delivered(self, client_id: str, message: Message, qos: int) -> None:
        for observer in self._observers:
            try:
                observer.delivered(client_id, message, qos)
            except Exception as error:
                self._failed("delivered", error)

    def delivered_run(self, client_id: str, run: Run) -> None:
        for observer in self._observers:
            try:
                observer.delivered_run(client_id, run)
            except Exception as error:
                self._failed("delivered_run", error)

    def dropped(self, client_id: str, qos: int, reason: str) -> None:
        for observer in self._observers:
            try:
                observer.dropped(client_id, qos, reason)
            except Exception as error:
                self._failed("dropped", error)


class Taps(Tap):
    """A tap that refuses messages acknowledges what it stores: its exception is not isolated, the client's connection ends."""

    def __init__(self, taps: list[Tap], counters: Counters, faults: Faults) -> None:
        self._taps = taps
        self._counters = counters
        self._faults = faults

    def _failed(self, tap: Tap, name: str, error: Exception) -> None:
        if tap.is_essential():
            raise error
        self._counters.plugin_faults += 1
        self._faults.plugin_failed(f"Tap.{name}", error)

    def refuses(self, topic: bytes) -> bool:
        return any(tap.refuses(topic) for tap in self._taps)

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        for tap in self._taps:
            try:
                tap.published(message, publisher, now)
            except Exception as error:
                self._failed(tap, "published", error)

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        for tap in self._taps:
            try:
                tap.published_run(run, publisher, now)
            except Exception as error:
                self._failed(tap, "published_run", error)
