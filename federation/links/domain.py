"""This domain as its links know it, and what becomes of the topics of messages on each of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.broker import Broker
from federation.links.duplicates import DuplicateWindow
from federation.links.interest import ClusterInterest, LinkInterest
from federation.links.rewriting import TopicRule


@dataclass(frozen=True, slots=True)
class Domain:
    """This domain, as all links of a node know it.

    interest  what the cluster wants
    window    the messages with numbers that came over links of this node
    """

    name: bytes
    broker: Broker
    interest: ClusterInterest
    window: DuplicateWindow
    rng: random.Random


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


def rule_of(interest: LinkInterest, is_out: bool) -> TopicRule | None:
    """What becomes of the topics of messages; None where nothing has to be changed."""
    if not interest.changes_topics:
        return None
    return OutRule(interest) if is_out else InRule(interest)
