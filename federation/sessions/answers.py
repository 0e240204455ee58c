"""Answers to claims that leave later."""

# compiled with mypyc
from __future__ import annotations

from federation.sessions.departing import Marks


class Answer:
    """To a claim: it leaves when what this node has for others has left, so that messages of the client stay in order."""

    __slots__ = ("frame", "marks", "node")

    def __init__(self, node: str, frame: bytes, marks: Marks) -> None:
        self.node = node
        self.frame = frame
        self.marks = marks
