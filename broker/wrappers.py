"""Ordered wrappers of plugins around what clients ask for: connections, SUBSCRIBE, UNSUBSCRIBE, PUBLISH, wills.

A wrapper is a function of a request and the next wrapper: it may change or refuse the request, and calls `proceed(request)`
to go on. The plugin that is first in `plugin_order` stands outermost. A refusal is final: a refused request goes no
further. A wrapper that raises refuses the request; that is logged and counted (`plugin_faults`).
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from broker.authorization import ClientIdentity
from broker.codec.packets import SubscribeFilter
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR, NOT_AUTHORIZED, SUCCESS
from broker.codec.runs import Run
from broker.counters import Counters
from broker.faults import Faults
from broker.listener_facts import ListenerFacts
from broker.message import Message


class Request:
    """reason_code  SUCCESS, or that of the refusal
    reason       of the refusal, for the log
    """

    def __init__(self) -> None:
        self.reason_code = SUCCESS
        self.reason = ""

    def refuse(self, reason_code: int = NOT_AUTHORIZED, reason: str = "refused by a plugin") -> None:
        """Refuse with a reason code of the answer, 0x80 or above. The first refusal stays."""
        assert reason_code >= 0x80, f"0x{reason_code:02x} is no reason code of a refusal, which is 0x80 or above"
        if self.reason_code == SUCCESS:
            self.reason_code = reason_code
            self.reason = reason


class AcceptRequest(Request):
    """A connection was opened; nothing is read of it yet. A refused one is closed without an answer.

    remote_addr  HOST:PORT of the client; the one that a PROXY header names, where the listener takes such headers
    """

    def __init__(self, remote_addr: str, listener: ListenerFacts) -> None:
        super().__init__()
        self.remote_addr = remote_addr
        self.listener = listener


class SubscribeRequest(Request):
    """One filter of a SUBSCRIBE, before anything else decides about it.

    filter      its topic filter (with $share/NAME/) and options, which may be changed
    identifier  Subscription Identifier, 0 for none
    """

    def __init__(self, client: ClientIdentity, subscribe_filter: SubscribeFilter, identifier: int) -> None:
        super().__init__()
        self.client = client
        self.filter = subscribe_filter
        self.identifier = identifier


class UnsubscribeRequest(Request):
    """One filter of an UNSUBSCRIBE. MQTT 3.1.1 has no answer for a refusal: the subscription stays all the same.

    full_filter  with $share/NAME/
    """

    def __init__(self, client: ClientIdentity, full_filter: bytes) -> None:
        super().__init__()
        self.client = client
        self.full_filter = full_filter


class MessageRequest(Request):
    """message  may be replaced"""

    def __init__(self, client: ClientIdentity, message: Message) -> None:
        super().__init__()
        self.client = client
        self.message = message


class PublishRequest(MessageRequest):
    """A message of a client that may publish to its topic, before it is routed. Topic and payload of a new message count; its
    QoS is that of the client's packet."""


class RunRequest(Request):
    """Consecutive QoS 0 messages of one topic, size and User Properties, before they are routed. They are refused all or
    none."""

    def __init__(self, client: ClientIdentity, run: Run) -> None:
        super().__init__()
        self.client = client
        self.run = run


class WillRequest(MessageRequest):
    """The will of a client that may publish to its topic, before it is published."""


R = TypeVar("R", bound=Request)
Wrapper = Callable[[R, Callable[[R], None]], None]


class Chain(Generic[R]):
    """One wrapper, and those inside of it."""

    def __init__(self, name: str, wrapper: Wrapper[R], counters: Counters, faults: Faults) -> None:
        """name  of the hook, for faults"""
        self._name = name
        self._wrapper = wrapper
        self._counters = counters
        self._faults = faults
        self._inner: Chain[R] | None = None

    def append(self, wrapper: Wrapper[R]) -> None:
        """Add a wrapper inside of the others."""
        if self._inner is None:
            self._inner = Chain(self._name, wrapper, self._counters, self._faults)
        else:
            self._inner.append(wrapper)

    def run(self, request: R) -> bool:
        """Return whether the request is not refused."""
        self.proceed(request)
        return request.reason_code == SUCCESS

    def proceed(self, request: R) -> None:
        if request.reason_code != SUCCESS:
            return
        inner = self._inner
        try:
            self._wrapper(request, allow if inner is None else inner.proceed)
        except Exception as error:
            self._counters.plugin_faults += 1
            self._faults.plugin_failed(self._name, error)
            request.refuse(IMPLEMENTATION_SPECIFIC_ERROR, "fault in a plugin")


def allow(request: Request) -> None:
    """Behind the last wrapper: the request stays as it is."""
