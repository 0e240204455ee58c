"""This domain as its links know it, and what becomes of the topics of messages on each of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.broker import Broker
from broker.errors import MqttError
from broker.link_gate import LinkGate
from federation.links.interest import ClusterInterest, LinkInterest
from federation.links.rewriting import TopicRule


@dataclass(frozen=True, slots=True)
class Domain:
    """This domain, as all links of a node know it.

    interest  what the cluster wants
    """

    name: bytes
    broker: Broker
    interest: ClusterInterest
    rng: random.Random


class TopicGate(LinkGate):
    """The upstream publishes here to topics of the link's policies, whatever it sends; to none where the link pushes."""

    def __init__(self, max_hops: int, interest: LinkInterest, is_out: bool) -> None:
        super().__init__(max_hops)
        self._interest = interest
        self._is_out = is_out

    def has_topic(self, topic: bytes) -> bool:
        return not self._is_out and self._interest.has(topic)


class InRule(TopicRule):
    """Topics of the upstream."""

    def __init__(self, interest: LinkInterest) -> None:
        self._interest = interest

    def other_name(self, topic: bytes) -> bytes | None:
        return self._interest.map_in(topic)


class OutRule(TopicRule):
    """Local topics that are pushed."""

    def __init__(self, interest: LinkInterest) -> None:
        self._interest = interest

    def other_name(self, topic: bytes) -> bytes | None:
        return self._interest.map_out(topic)


class CarefulRule(TopicRule):
    """Topics that this broker does not take, such as those with too many levels: the upstream would send such a message again
    on each connection that it has ended."""

    def __init__(self, rule: TopicRule | None, broker: Broker) -> None:
        self._rule = rule
        self._broker = broker

    def other_name(self, topic: bytes) -> bytes | None:
        name = topic if self._rule is None else self._rule.other_name(topic)
        if name is not None:
            try:
                self._broker.router.lookup(name)
            except MqttError:
                return None
        return name


def rule_of(interest: LinkInterest, is_out: bool, careful: Broker | None) -> TopicRule | None:
    """What becomes of the topics of messages; None where nothing has to be changed. `careful`: the broker that has ended a
    connection of the link for a fault."""
    rule: TopicRule | None = None
    if interest.changes_topics:
        rule = OutRule(interest) if is_out else InRule(interest)
    if careful is not None and not is_out:
        rule = CarefulRule(rule, careful)
    return rule
