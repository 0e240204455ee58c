"""Regular expressions of Go, in filters of queries and of members: RE2, whose time is linear in the text (wire-gossip 8.8).

They come from other nodes and run on the loop's thread.
"""

from __future__ import annotations

from typing import Final

EXPRESSION_BYTES_MAX: Final = 1024
"""Longest expression: a query of Serf has no room for more."""
EXPRESSION_MEMORY_MAX: Final = 32 << 10
"""Bytes of a compiled expression. It takes at most 0.7 ms to compile, and 5 ms for a text of 512 bytes that it was made for; Go
has no such bound."""


class Expression:
    """Raises ValueError for what is no expression of Go, or a larger one than the bounds."""

    def __init__(self, text: str) -> None:
        # Imported where it is used: most nodes never get a filter.
        import re2  # type: ignore[import-untyped]

        if len(text.encode()) > EXPRESSION_BYTES_MAX:
            raise ValueError(f"the regular expression has more than {EXPRESSION_BYTES_MAX} bytes")
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = EXPRESSION_MEMORY_MAX
        try:
            # The library keeps the last 128 that it compiled.
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            shown = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise ValueError(f"{text!r} is no regular expression of Go: {shown}") from None

    def matches(self, text: str) -> bool:
        """Return whether it matches somewhere in the text."""
        return self._compiled.search(text) is not None


def anchored(text: str) -> Expression:
    """The expression between `^` and `$`, as an agent writes it: of `a|b` each has one of the two."""
    return Expression(f"^{text}$")
