"""The hooks of a node, to which plugins add themselves: deciders, wrappers and observers, each kind in the order of
`plugin_order`. A kind without any is None, and costs one test."""

# compiled with mypyc
from __future__ import annotations

from broker.authorization import Authorization, Authorizer
from broker.counters import Counters
from broker.faults import Faults
from broker.feeds import Feeds
from broker.hooks import ClientObserver, ConnectDecider, DeliveryObserver, InterestObserver, Tap
from broker.observers import ClientObservers, DeliveryObservers, Taps
from broker.slices import Slices
from broker.wrappers import (
    AcceptRequest,
    Chain,
    PublishRequest,
    R,
    RunRequest,
    SubscribeRequest,
    UnsubscribeRequest,
    WillRequest,
    Wrapper,
)


class HookPoints:
    """connect_deciders  accept or refuse clients, asked one after the other; without one all are accepted
    authorization     all `authorizers` as one, which decide who may publish and read what; None: everybody everything
    tap, observer, deliveries  all taps, ClientObservers and DeliveryObservers as one
    interest_observer  sees which filters are wanted, here and on other nodes; one plugin may set it
    feeds             serves the filters that begin with $stream/; one plugin may set it
    accepting, subscribing, unsubscribing, publishing, run_publishing, will_publishing  the wrappers
    faults            is told of plugins that raise
    """

    def __init__(self) -> None:
        self.counters = Counters()
        self.faults = Faults()
        self.slices = Slices()
        self.connect_deciders: tuple[ConnectDecider, ...] = ()
        self.authorizers: list[Authorizer] = []
        self.authorization: Authorization | None = None
        self.tap: Tap | None = None
        self.observer: ClientObservers | None = None
        self.deliveries: DeliveryObservers | None = None
        self.interest_observer: InterestObserver | None = None
        self.feeds: Feeds | None = None
        self.accepting: Chain[AcceptRequest] | None = None
        self.subscribing: Chain[SubscribeRequest] | None = None
        self.unsubscribing: Chain[UnsubscribeRequest] | None = None
        self.publishing: Chain[PublishRequest] | None = None
        self.run_publishing: Chain[RunRequest] | None = None
        self.will_publishing: Chain[WillRequest] | None = None
        self._taps: list[Tap] = []
        self._observers: list[ClientObserver] = []
        self._delivery_observers: list[DeliveryObserver] = []
        self._every_run_is_split = False
        self._rules_number = 0

    # --- deciders ---

    def add_connect_decider(self, decider: ConnectDecider) -> None:
        """Ask the decider about each client that connects from now on, after those that are asked already."""
        self.connect_deciders = (*self.connect_deciders, decider)

    def remove_connect_decider(self, decider: ConnectDecider) -> None:
        """Ask the decider no more."""
        self.connect_deciders = tuple([other for other in self.connect_deciders if other is not decider])

    def decider_of(self, method: str) -> ConnectDecider | None:
        """The first decider that has an Authentication Method."""
        for decider in self.connect_deciders:
            if method in decider.methods():
                return decider
        return None

    def add_authorizer(self, authorizer: Authorizer) -> None:
        """Ask the authorizer from now on, after those that are asked already."""
        self.authorizers = [*self.authorizers, authorizer]
        self.authorization_changed()

    def remove_authorizer(self, authorizer: Authorizer) -> None:
        """Ask the authorizer no more."""
        self.authorizers = [other for other in self.authorizers if other is not authorizer]
        self.authorization_changed()

    def authorization_changed(self) -> None:
        """The rules of an authorizer changed: forget its answers, and judge messages that wait for clients again."""
        self._rules_number += 1
        self.authorization = None
        if self.authorizers:
            self.authorization = Authorization(
                self.authorizers, self._rules_number, self.counters, self.faults, self.slices
            )

    # --- observers ---

    def add_tap(self, tap: Tap) -> None:
        """Show the tap every message that is published here."""
        self._set_taps([*self._taps, tap])

    def remove_tap(self, tap: Tap) -> None:
        self._set_taps([other for other in self._taps if other is not tap])

    def _set_taps(self, taps: list[Tap]) -> None:
        self._taps = taps
        if len(taps) == 1 and taps[0].is_essential():
            self.tap = taps[0]  # the event log alone: a message takes no way round
        else:
            self.tap = Taps(taps, self.counters, self.faults) if taps else None

    def add_observer(self, observer: ClientObserver) -> None:
        """Tell the observer of clients."""
        self._set_observers([*self._observers, observer])

    def remove_observer(self, observer: ClientObserver) -> None:
        self._set_observers([other for other in self._observers if other is not observer])

    def _set_observers(self, observers: list[ClientObserver]) -> None:
        self._observers = observers
        self.observer = ClientObservers(observers, self.counters, self.faults) if observers else None

    def add_delivery_observer(self, observer: DeliveryObserver) -> None:
        """Tell the observer of every message that is sent to a client, or dropped for one."""
        self._delivery_observers = [*self._delivery_observers, observer]
        self.deliveries = DeliveryObservers(self._delivery_observers, self.counters, self.faults)

    # --- wrappers: each stands inside of those that are there already ---

    def wrap_accept(self, wrapper: Wrapper[AcceptRequest]) -> None:
        self.accepting = self._chained("accept", self.accepting, wrapper)

    def wrap_subscribe(self, wrapper: Wrapper[SubscribeRequest]) -> None:
        self.subscribing = self._chained("subscribe", self.subscribing, wrapper)

    def wrap_unsubscribe(self, wrapper: Wrapper[UnsubscribeRequest]) -> None:
        self.unsubscribing = self._chained("unsubscribe", self.unsubscribing, wrapper)

    def wrap_publish(self, wrapper: Wrapper[PublishRequest], of_runs: Wrapper[RunRequest] | None = None) -> None:
        """Wrap the messages of clients. A wrapper without `of_runs` gets the messages of a run one by one, which costs each
        publisher of QoS 0 several times as much."""
        self.publishing = self._chained("publish", self.publishing, wrapper)
        if of_runs is None:
            self._every_run_is_split = True
        if self._every_run_is_split:
            self.run_publishing = None
        elif of_runs is not None:
            self.run_publishing = self._chained("publish_run", self.run_publishing, of_runs)

    def wrap_will(self, wrapper: Wrapper[WillRequest]) -> None:
        self.will_publishing = self._chained("will", self.will_publishing, wrapper)

    def _chained(self, name: str, chain: Chain[R] | None, wrapper: Wrapper[R]) -> Chain[R]:
        if chain is None:
            return Chain(name, wrapper, self.counters, self.faults)
        chain.append(wrapper)
        return chain
