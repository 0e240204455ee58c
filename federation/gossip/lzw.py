"""LZW: least significant bit first, literal width 8, codes of 9 to 12 bits (wire-gossip 5.3).

The decoder bounds its output: its input comes from anybody who can reach the port.
"""

from __future__ import annotations

from typing import Final

from federation.gossip.errors import WireError

CLEAR_CODE: Final = 256
EOF_CODE: Final = 257
CODE_BITS_MIN: Final = 9
CODE_BITS_MAX: Final = 12

FULL_TABLE: Final = 4095
"""Entries after which an encoder begins with an empty table."""

_LITERALS: Final = [bytes((value,)) for value in range(256)]


def decompress(data: bytes, size_max: int) -> bytes:
    """The original bytes; WireError for a broken stream or for more than `size_max` bytes."""
    decoder = Decompressor(size_max)
    found = decoder.receive_data(data)
    if not decoder.is_over:
        raise WireError("compressed data ends without its end code")
    return found


class Decompressor:
    """Takes compressed bytes in pieces. `is_over`: the end code came; bytes after it are ignored."""

    def __init__(self, size_max: int) -> None:
        """`size_max`: of all that comes out."""
        self._room = size_max
        self._size_max = size_max
        self._table: list[bytes] = []  # the entry of code 258 + i
        self._last = b""
        self._highest = EOF_CODE
        self._width = CODE_BITS_MIN
        self._bits = 0
        self._bit_count = 0
        self.is_over = False

    def receive_data(self, data: bytes) -> bytes:
        """The original bytes as far as they are known. WireError for a broken stream, or more than `size_max` bytes."""
        parts: list[bytes] = []
        if self.is_over:
            return b""
        room = self._room
        table = self._table
        last = self._last
        highest = self._highest
        width = self._width
        limit = 1 << width
        bits = self._bits
        bit_count = self._bit_count
        index = 0
        end = len(data)
        while True:
            while bit_count < width and index < end:
                bits |= data[index] << bit_count
                index += 1
                bit_count += 8
            if bit_count < width:
                break
            code = bits & (limit - 1)
            bits >>= width
            bit_count -= width
            if code < CLEAR_CODE:
                entry = _LITERALS[code]
            elif code == CLEAR_CODE:
                table.clear()
                last = b""
                highest = EOF_CODE
                width = CODE_BITS_MIN
                limit = 1 << CODE_BITS_MIN
                continue
            elif code == EOF_CODE:
                self.is_over = True
                break
            elif code - 258 < len(table):
                entry = table[code - 258]
            elif code == highest and last:
                entry = last + last[:1]
            else:
                raise WireError("compressed data uses a code that is not defined yet")
            room -= len(entry)
            if room < 0:
                raise WireError(f"compressed data grows past {self._size_max} bytes")
            parts.append(entry)
            # The first code after a clear is counted but defines no entry; the second code defines the first entry, 258.
            if last:
                table.append(last + entry[:1])
            last = entry
            highest += 1
            if highest >= limit:
                if width == CODE_BITS_MAX:
                    last = b""  # the table is full: no entries are defined until the next clear
                    highest -= 1
                else:
                    width += 1
                    limit <<= 1
        self._room = room
        self._last = last
        self._highest = highest
        self._width = width
        self._bits = bits
        self._bit_count = bit_count
        return b"".join(parts)


def compress(data: bytes) -> bytes:
    """The same bytes as Go's compress/lzw writes, with the leading clear code."""
    output = bytearray()
    pending = CLEAR_CODE
    pending_bits = CODE_BITS_MIN
    table: dict[int, int] = {}
    highest = EOF_CODE
    width = CODE_BITS_MIN
    limit = 1 << CODE_BITS_MIN
    current = -1
    for value in data:
        if current < 0:
            current = value
            continue
        key = current << 8 | value
        found = table.get(key, -1)
        if found >= 0:
            current = found
            continue
        pending |= current << pending_bits
        pending_bits += width
        current = value
        highest += 1
        if highest == limit:
            width += 1
            limit <<= 1
        if highest == FULL_TABLE:
            pending |= CLEAR_CODE << pending_bits
            pending_bits += width
            highest = EOF_CODE
            width = CODE_BITS_MIN
            limit = 1 << CODE_BITS_MIN
            table.clear()
        else:
            table[key] = highest
        while pending_bits >= 8:
            output.append(pending & 0xFF)
            pending >>= 8
            pending_bits -= 8
    if current >= 0:
        pending |= current << pending_bits
        pending_bits += width
        highest += 1
        if highest == limit:
            width += 1
        if highest == FULL_TABLE:
            pending |= CLEAR_CODE << pending_bits
            pending_bits += CODE_BITS_MAX
            width = CODE_BITS_MIN
    pending |= EOF_CODE << pending_bits
    pending_bits += width
    while pending_bits > 0:
        output.append(pending & 0xFF)
        pending >>= 8
        pending_bits -= 8
    return bytes(output)
