"""The tags that this node tells: its own, those of its state, and those that an operator chose while it ran."""

from __future__ import annotations

from collections.abc import Iterable

from federation.serf.tags import encode_tags
from federation.tags import OWN_TAGS, TAG_DRAINING


class MemberTags:
    """`own`: those of the start, which stay. `state`: of a drain."""

    def __init__(self, own: dict[str, str]) -> None:
        self.own = own
        self.state: dict[str, str] = {}
        self._chosen: dict[str, str] = {}

    def told(self) -> dict[str, str]:
        """All tags."""
        return self._chosen | self.own | self.state

    def change(self, tags: dict[str, str], delete: Iterable[str]) -> None:
        """Delete tags, then set others. ValueError for a tag that is the node's own, and for too many bytes."""
        gone = set(delete)
        for name in sorted(gone | tags.keys()):
            if name in OWN_TAGS or name in self.own:
                raise ValueError(f"the tag {name!r} is one of the node's own; choose another name")
            if not name:
                raise ValueError("a tag has no name")
        chosen = {name: value for name, value in self._chosen.items() if name not in gone} | tags
        encode_tags(chosen | self.own | {TAG_DRAINING: "1"})  # a drain needs room, too
        self._chosen = chosen
