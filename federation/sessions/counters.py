"""Counters of sessions that move."""

# compiled with mypyc
from __future__ import annotations


class SessionCounters:
    """claims         of this node
    unanswered        claims for which a client waited for `claim_wait`
    outclaimed        clients that were closed or refused because another node has claimed them
    departed, arrived sessions that went to another node, that came from one
    passed_forgotten  clients that had gone on, or whose session has ended, and are forgotten (GONE_MAX)
    switches_dropped  switches for nodes that are not known (NODES_MAX): such a session keeps its place at its former home
    """

    def __init__(self) -> None:
        self.claims = 0
        self.unanswered = 0
        self.outclaimed = 0
        self.departed = 0
        self.arrived = 0
        self.passed_forgotten = 0
        self.switches_dropped = 0
