"""The one error of the gossip wire: the peer sent something that is not a message."""

from __future__ import annotations


class WireError(Exception):
    """Bytes that do not decode. The text says what is wrong; packets with it are dropped and counted."""
