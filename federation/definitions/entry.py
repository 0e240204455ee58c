"""One versioned definition: what is stored, replicated and compared. Its value is JSON text and is not looked into here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from federation.hybrid_clock import AHEAD_MAX, CLOCK_MAX, seconds_of

UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
POLICY: Final = "policy"
PARAMETERS: Final = (UPSTREAM, UPSTREAM_SET)
COMPONENTS: Final = (*PARAMETERS, POLICY)
WORDS: Final = {UPSTREAM: "upstream", UPSTREAM_SET: "upstream set", POLICY: "policy"}
LINK_KEY: Final = "federation-link-key"
"""Of the upstream of the same name: the random part of the client identifiers of its links. The API does not show it."""

TEXT_BYTES_MAX: Final = 128  # of a component, a name and a node's name
VALUE_BYTES_MAX: Final = 65536
BUCKETS: Final = 64

Key = tuple[str, str]
"""(component, name)"""


@dataclass(frozen=True, slots=True)
class Entry:
    """The last change of one definition.

    clock  hybrid: Unix milliseconds << COUNTER_BITS, above every clock that its node had seen
    node   that made the change
    value  canonical JSON; None is a tombstone: the definition was deleted
    """

    component: str
    name: str
    clock: int
    node: str
    value: str | None

    @property
    def key(self) -> Key:
        return self.component, self.name

    @property
    def order(self) -> tuple[int, str, str]:
        """Of two entries with one key the one with the higher order is kept. Only two nodes with one name can make entries
        that differ in the value alone; the text then decides, so that all nodes agree."""
        return self.clock, self.node, self.value or ""

    @property
    def time(self) -> float:
        """The time of the change, in Unix seconds of the node's clock or a later one that it had seen."""
        return seconds_of(self.clock)

    def is_ahead(self, now: float) -> bool:
        """Return whether only a wrong clock can have stamped the entry before `now`, in Unix seconds."""
        return self.time > now + AHEAD_MAX

    def digest(self) -> int:
        """64 bits that differ for entries that differ."""
        text = json.dumps([self.component, self.name, self.clock, self.node, self.value])
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())

    def size(self) -> int:
        """Roughly the bytes of the entry in a message."""
        return len(self.component) + len(self.name) + len(self.node) + len(self.value or "") + 32

    def fault(self) -> str:
        """Return the reason why no node has such an entry; "" for a sound one."""
        for what, text in (("component", self.component), ("name", self.name), ("node", self.node)):
            if not 1 <= len(text.encode("utf-8", "replace")) <= TEXT_BYTES_MAX:
                return f"the {what} has not 1..{TEXT_BYTES_MAX} bytes"
        if not 0 < self.clock <= CLOCK_MAX:
            return f"the clock is not one of 1..{CLOCK_MAX}"
        if self.value is not None:
            if len(self.value.encode("utf-8", "replace")) > VALUE_BYTES_MAX:
                return f"the value has more than {VALUE_BYTES_MAX} bytes"
            try:
                if canonical(json.loads(self.value)) != self.value:
                    return "the value is not JSON in its canonical form"  # it would change with a restart
            except (ValueError, RecursionError):
                return "the value is not JSON"
        return ""


def bucket_of(key: Key) -> int:
    """Return the number of the part, of BUCKETS, that a key belongs to."""
    return blake2b("\0".join(key).encode("utf-8", "replace"), digest_size=1).digest()[0] % BUCKETS


def canonical(value: object) -> str:
    """The JSON text of a value: the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
