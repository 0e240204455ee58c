"""What a link asks of the shell around its socket."""

from __future__ import annotations


class LinkShell:
    """Of one link. Calls never wait."""

    def has_output(self) -> None:
        """Write the output of the link."""
        raise AssertionError("a subclass implements this")

    def set_reading(self, is_held: bool) -> None:
        """Read the socket no more, or go on."""
        raise AssertionError("a subclass implements this")

    def changed(self) -> None:
        """The link changed its attempt or its deadline in a call that did not come from the shell."""
        raise AssertionError("a subclass implements this")
