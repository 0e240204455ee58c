"""Decides who may publish to a topic, and who may read it.

Plugins add an `Authorizer`. `Authorization` asks all of them, and fails closed: a refusal is final, no opinion of any
authorizer denies, and an exception denies.
"""

# compiled with mypyc
from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from broker.counters import Counters
from broker.faults import Faults
from broker.slices import Slices

PUBLISH_ANSWERS_MAX: Final = 65_536  # (client, topic) in the cache; a full cache is cleared
QUESTION_STEPS: Final = 2  # of a slice, beside those that the authorizer tells
CACHED_TOPIC_BYTES_MAX: Final = 1024  # longer topics are not cached, which bounds the bytes of the cache


class Verdict(Enum):
    """The answer of one authorizer. DENY is final; ALLOW counts when no authorizer denies."""

    ALLOW = "allow"
    DENY = "deny"
    NO_OPINION = "no opinion"


# Compiled code reads a constant of the module directly. It looks a member of the enum up by name.
ALLOW: Final = Verdict.ALLOW
DENY: Final = Verdict.DENY
NO_OPINION: Final = Verdict.NO_OPINION


class TopicAccess(NamedTuple):
    """A client's credentials, a token, say this about the topics of one pattern.

    pattern    a topic filter, which may have %u for the user name and %c for the client id
    publish    the client may publish to topics that match
    subscribe  the client may read topics that match
    """

    pattern: str
    publish: bool
    subscribe: bool


class ClientIdentity:
    """A client as an authorizer sees it. An identity never changes; a client whose credentials change gets a new one.

    username     "" for none
    remote_addr  HOST:PORT of the last connection
    access       what the credentials say about topics; None when they say nothing
    kept         for the authorizer that evaluates `access`: what it has made of it, opaque here
    is_node      another node of the cluster, about which no authorizer is asked: its messages were judged where they were
                 published
    """

    __slots__ = ("access", "client_id", "is_node", "kept", "remote_addr", "username")

    def __init__(
        self,
        client_id: str,
        username: str,
        remote_addr: str,
        access: tuple[TopicAccess, ...] | None = None,
        is_node: bool = False,
    ) -> None:
        self.client_id = client_id
        self.username = username
        self.remote_addr = remote_addr
        self.access = access
        self.kept: object = None
        self.is_node = is_node


@mypyc_attr(allow_interpreted_subclasses=True)
class Authorizer:
    """Decides about topics. Calls never wait.

    Answers are kept, read access with the routes of topics: an authorizer whose rules change calls
    `Broker.authorization_changed`. An answer depends on the identity and the topic only.
    """

    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        """Return whether the client may publish to a topic name, also by its will."""
        return NO_OPINION

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        """Return whether the client may get messages of a topic name."""
        return NO_OPINION

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
        """Return whether there may be a topic that matches the filter and that the client may read. `share_name` is
        b"" for an ordinary subscription; the filter is without it. Each message is judged by `may_read` all the
        same."""
        return ALLOW

    def reason(self, client: ClientIdentity, topic: bytes, publishes: bool) -> str:
        """Return the rule by which `may_publish`, or `may_read`, answers, for an operator who asks. Not on the way of
        messages."""
        return type(self).__name__

    def take_steps(self) -> int:
        """Steps of a slice (broker/slices.py) that the questions since the last call took, where that is more than two each."""
        return 0


class Authorization:
    """All authorizers of a node as one (`Context.authorization`; None without any: everything is allowed).

    number  changes with the rules: an answer of an earlier number is void
    failed  number of questions that were denied because an authorizer raised; the answers are not kept
    """

    def __init__(
        self, authorizers: list[Authorizer], number: int, counters: Counters, faults: Faults, slices: Slices
    ) -> None:
        self.authorizers = authorizers
        self.number = number
        self.failed = 0
        self._counters = counters
        self._faults = faults
        self._slices = slices
        self._publish_answers: dict[tuple[ClientIdentity, bytes], bool] = {}

    def may_publish(self, client: ClientIdentity, topic: bytes) -> bool:
        if client.is_node:
            return True
        key = (client, topic)
        known = self._publish_answers.get(key)
        if known is not None:
            return known
        is_allowed = False
        try:
            for authorizer in self.authorizers:
                verdict = authorizer.may_publish(client, topic)
                self._slices.steps += QUESTION_STEPS + authorizer.take_steps()
                if verdict is DENY:
                    is_allowed = False
                    break
                if verdict is ALLOW:
                    is_allowed = True
        except Exception as error:
            return self._failed("may_publish", error)
        if len(topic) <= CACHED_TOPIC_BYTES_MAX:
            if len(self._publish_answers) >= PUBLISH_ANSWERS_MAX:
                self._publish_answers.clear()
            self._publish_answers[key] = is_allowed
        return is_allowed

    def may_read(self, client: ClientIdentity, topic: bytes) -> bool:
        if client.is_node:
            return True
        is_allowed = False
        try:
            for authorizer in self.authorizers:
                verdict = authorizer.may_read(client, topic)
                self._slices.steps += QUESTION_STEPS + authorizer.take_steps()
                if verdict is DENY:
                    return False
                if verdict is ALLOW:
                    is_allowed = True
        except Exception as error:
            return self._failed("may_read", error)
        return is_allowed

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> bool:
        if client.is_node:
            return True
        is_allowed = False
        try:
            for authorizer in self.authorizers:
                verdict = authorizer.may_subscribe(client, share_name, topic_filter)
                self._slices.steps += QUESTION_STEPS + authorizer.take_steps()
                if verdict is DENY:
                    return False
                if verdict is ALLOW:
                    is_allowed = True
        except Exception as error:
            return self._failed("may_subscribe", error)
        return is_allowed

    def _failed(self, call: str, error: Exception) -> bool:
        """An authorizer raised: deny."""
        self.failed += 1
        self._counters.plugin_faults += 1
        self._faults.plugin_failed(f"Authorizer.{call}", error)
        return False
