"""An encoder of LZW. Nodes only read compressed messages (wire-gossip 5.3)."""

from __future__ import annotations

from federation.gossip.lzw import CLEAR_CODE, CODE_BITS_MAX, CODE_BITS_MIN, EOF_CODE

FULL_TABLE = 4095


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


def packed_zeros(prefix: bytes, count: int) -> bytes:
    """The same of `prefix` and `count` zeros, without walking over them: a bomb."""
    codes: list[int] = [CLEAR_CODE, *prefix]
    while count:
        codes.append(CLEAR_CODE)
        run, code = 1, 0
        while run <= count and code < FULL_TABLE:
            codes.append(code)
            count -= run
            run += 1
            code = code + 1 if code else EOF_CODE + 1
    codes.append(EOF_CODE)
    return _packed(codes)


def _packed(codes: list[int]) -> bytes:
    """Codes with the widths that a decoder expects."""
    bits: list[int] = []
    highest, width = EOF_CODE, CODE_BITS_MIN
    for code in codes:
        bits += [code >> bit & 1 for bit in range(width)]
        if code == CLEAR_CODE:
            highest, width = EOF_CODE, CODE_BITS_MIN
        else:
            highest += 1
            if highest >= 1 << width and width < CODE_BITS_MAX:
                width += 1
    return bytes(sum(bit << place for place, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))
