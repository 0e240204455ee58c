"""The members of a federation in one process, as plugins call each other."""

from __future__ import annotations

from broker.errors import MethodUnknown
from broker.event_log.other_logs import TAG_STREAM
from broker.hooks import Members, OtherNode


class Linked(Members):
    """`answers` take the place of what a member would answer."""

    def __init__(self, node: str, all_of_them: dict[str, Linked]) -> None:
        super().__init__(node)
        self.all = all_of_them
        self.away: set[str] = set()
        self.answers: dict[str, bytes] = {}
        all_of_them[node] = self

    def others(self) -> list[OtherNode]:
        return [
            OtherNode(name, "FAILED" if name in self.away else "ALIVE", {TAG_STREAM: "1"})
            for name in self.all
            if name != self.node_name
        ]

    async def call(self, node: str, method: str, request: bytes, seconds: float) -> bytes:
        if method in self.answers:
            return self.answers[method]
        if method not in self.all[node].served:
            raise MethodUnknown(f"node {node}: {method}")
        return await self.all[node].served[method](request)
