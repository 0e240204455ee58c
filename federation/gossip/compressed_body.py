"""The body of a compress message on a stream, {Algo, Buf}, decompressed piece by piece as it comes (wire-gossip 5.3)."""

from __future__ import annotations

from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.lzw import Decompressor
from federation.gossip.msgpack_fields import new_unpacker, read_map_length, unpack_next

HEAD_BYTES_MAX: Final = 256
"""Bytes before the compressed ones: the two keys and the algorithm take 12."""

# First byte of a raw or bin value -> bytes of its length.
_LENGTH_BYTES: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}


class CompressedBody:
    """`size_max`: bytes that may come out. `is_over`: all has come in, and what follows is ignored."""

    def __init__(self, size_max: int) -> None:
        self._head = bytearray()
        self._missing = -1  # compressed bytes; -1 while their length is not known
        self._decompressor = Decompressor(size_max)
        self.is_over = False

    def receive_data(self, data: bytes) -> bytes:
        """Return what comes out of this piece. Raises WireError."""
        if self._missing < 0:
            self._head += data
            start = self._find_buffer()
            if start < 0:
                if len(self._head) > HEAD_BYTES_MAX:
                    raise WireError(f"compressed stream has no data within {HEAD_BYTES_MAX} bytes")
                return b""
            data = bytes(self._head[start:])
            self._head.clear()
        found = self._decompressor.receive_data(data[: self._missing])
        self._missing -= min(len(data), self._missing)
        if self._missing == 0:
            if not self._decompressor.is_over:
                raise WireError("compressed data ends without its end code")
            self.is_over = True
        return found

    def _find_buffer(self) -> int:
        """Index of the first compressed byte, of which `_missing` come; -1: more of the head is needed."""
        head = bytes(self._head[: HEAD_BYTES_MAX + 1])
        unpacker = new_unpacker(HEAD_BYTES_MAX + 1)
        unpacker.feed(head)
        length = read_map_length(unpacker)
        for _ in range(length):
            found, key = unpack_next(unpacker)
            if found and key == b"Buf":
                return self._read_length(unpacker.tell())
            found, value = unpack_next(unpacker)
            if not found:
                return -1
            if key == b"Algo" and value not in (0, None):
                raise WireError("compressed with an algorithm that is not LZW")
        if length >= 0:
            raise WireError("compressed stream without data")
        return -1

    def _read_length(self, at: int) -> int:
        head = self._head
        if len(head) <= at:
            return -1
        first = head[at]
        if 0xA0 <= first < 0xC0:
            self._missing = first & 0x1F
            return at + 1
        length_bytes = _LENGTH_BYTES.get(first, 0)
        if not length_bytes:
            raise WireError("the data of a compressed stream is not binary")
        end = at + 1 + length_bytes
        if len(head) < end:
            return -1
        self._missing = int.from_bytes(head[at + 1 : end], "big")
        return end
