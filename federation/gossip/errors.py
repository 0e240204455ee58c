"""The error of the gossip wire."""

from __future__ import annotations


class WireError(Exception):
    """Bytes from a peer that are not a valid message. The text says what is wrong; the message is dropped and counted."""
