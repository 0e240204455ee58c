"""The layer around packets and streams: label of the cluster, and encryption (wire-gossip 5.1 and 5.2)."""

from __future__ import annotations

from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.keyring import SEALED_OVERHEAD, Keyring
from federation.gossip.messages import ENCRYPT, INDIRECT_PING, LABEL

LABEL_BYTES_MAX: Final = 255
STREAM_HEADER_BYTES: Final = 5
"""Type byte and length before the sealed block of a stream: associated data of the block."""


class StreamRefused(WireError):
    """A stream of another cluster, or of one with other keys. `reason` is what is counted."""

    def __init__(self, reason: DropReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def is_encrypted(data: bytes) -> bool:
    """Return whether a datagram looks like a sealed block (wire-gossip 5.1).

    A sealed block has no type byte. It begins with its version, 0 or 1, like a ping or indirect ping, where a small msgpack
    map with a short name as first key follows. The random nonce of a sealed block looks like that in one of 128 cases.
    """
    return (
        len(data) >= SEALED_OVERHEAD and data[0] <= INDIRECT_PING and (data[1] & 0xF0 != 0x80 or data[2] & 0xE0 != 0xA0)
    )


def checked_label(text: str) -> bytes:
    """Raises ValueError for a label that does not fit into its header."""
    label = text.encode()
    if len(label) > LABEL_BYTES_MAX:
        raise ValueError(f"is a label of {len(label)} bytes; at most {LABEL_BYTES_MAX} are possible")
    return label


class Sealing:
    """Label and keys of one node.

    keyring        None: nothing is encrypted
    header         of the label; b"" without one
    refuses_plain  whether packets and streams that are not encrypted are dropped
    overhead       bytes that a datagram grows by
    """

    def __init__(
        self,
        keyring: Keyring | None = None,
        label: str = "",
        verify_incoming: bool = True,
        verify_outgoing: bool = True,
    ) -> None:
        """The two flags lead from a plain cluster to an encrypted one; without a keyring they mean nothing.

        verify_incoming  False: what is not encrypted is taken, too
        verify_outgoing  False: nothing that is sent is encrypted
        """
        self.keyring = keyring
        self.label = checked_label(label)
        self.header = bytes((LABEL, len(self.label))) + self.label if label else b""
        self.refuses_plain = keyring is not None and verify_incoming
        self._seals = keyring if verify_outgoing else None
        self.overhead = len(self.header) + (SEALED_OVERHEAD if self._seals is not None else 0)

    # --- datagrams

    def seal_packet(self, data: bytes) -> bytes:
        if self._seals is not None:
            data = self._seals.seal(data, self.label)
        return self.header + data

    def open_packet(self, data: bytes, counters: Counters) -> bytes:
        """Return a datagram without label and encryption; b"" when it was dropped, and counted."""
        header = self.header
        if header or data[:1] == b"\xf4":
            if not header or not data.startswith(header):
                counters.drop(DropReason.WRONG_LABEL)
                return b""
            data = data[len(header) :]
        keyring = self.keyring
        sealed = is_encrypted(data)
        if keyring is None:
            if not sealed:
                return data or self._drop(counters, DropReason.MALFORMED_PACKET)
            return self._drop(counters, DropReason.ENCRYPTED)
        opened = keyring.unseal(data, self.label)
        if opened is not None:
            return opened or self._drop(counters, DropReason.MALFORMED_PACKET)
        if sealed:
            return self._drop(counters, DropReason.WRONG_KEY)
        if self.refuses_plain:
            return self._drop(counters, DropReason.PLAIN)
        return data or self._drop(counters, DropReason.MALFORMED_PACKET)

    def _drop(self, counters: Counters, reason: DropReason) -> bytes:
        counters.drop(reason)
        return b""

    # --- streams

    def seal_request(self, data: bytes) -> bytes:
        """Return the bytes of a stream that this node opens."""
        return self.header + self.seal_answer(data)

    def seal_answer(self, data: bytes) -> bytes:
        """Return the bytes of an answer on a stream of another node: as memberlist it has no label of its own."""
        if self._seals is None or not data:
            return data
        header = bytes((ENCRYPT,)) + (SEALED_OVERHEAD + len(data)).to_bytes(4, "big")
        return header + self._seals.seal(data, header + self.label)


class StreamOpener:
    """Takes label and encryption off one direction of a stream. Data may come in pieces of any size.

    Raises StreamRefused, and WireError for a block of more than `size_max` bytes.
    """

    def __init__(self, sealing: Sealing, is_answer: bool, size_max: int) -> None:
        self._sealing = sealing
        self._size_max = size_max
        self._held = bytearray()
        self._label_awaited = not is_answer
        self._block_bytes = 0  # of a stream that is encrypted
        self._is_open = False
        self.was_sealed = False

    def receive_data(self, data: bytes) -> bytes:
        """Return what came inside, as far as it can be read: of an encrypted stream all at once."""
        if self._is_open:
            return data
        held = self._held
        held += data
        if self._label_awaited and not self._take_label(held):
            return b""
        if not held:
            return b""
        if held[0] == ENCRYPT:
            return self._unseal(held)
        if self._sealing.refuses_plain:
            raise StreamRefused(DropReason.PLAIN, "stream is not encrypted, and this node takes encrypted ones only")
        return self._opened(bytes(held))

    def _take_label(self, held: bytearray) -> bool:
        """Return whether the label is complete, and right."""
        header = self._sealing.header
        if header or held[0] == LABEL:
            if not header or bytes(held[: len(header)]) != header[: len(held)]:
                raise StreamRefused(DropReason.WRONG_LABEL, "stream has another label than this node")
            if len(held) < len(header):
                return False
            del held[: len(header)]
        self._label_awaited = False
        return True

    def _unseal(self, held: bytearray) -> bytes:
        keyring = self._sealing.keyring
        if keyring is None:
            raise StreamRefused(DropReason.ENCRYPTED, "stream is encrypted, and this node has no key")
        if len(held) < STREAM_HEADER_BYTES:
            return b""
        header = bytes(held[:STREAM_HEADER_BYTES])
        size = int.from_bytes(header[1:], "big")
        if size > self._size_max:
            raise WireError(f"encrypted stream is longer than {self._size_max} bytes")
        end = STREAM_HEADER_BYTES + size
        if len(held) < end:
            return b""
        opened = keyring.unseal(bytes(held[STREAM_HEADER_BYTES:end]), header + self._sealing.label)
        if opened is None:
            raise StreamRefused(DropReason.WRONG_KEY, "stream is encrypted with a key that this node does not have")
        if not opened:
            raise WireError("encrypted stream is empty")
        self.was_sealed = True
        return self._opened(opened)

    def _opened(self, data: bytes) -> bytes:
        self._is_open = True
        self._held = bytearray()
        return data


PLAIN: Final = Sealing()
"""Of a node without keys and label."""
