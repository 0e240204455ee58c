"""A bomb of LZW (wire-gossip 5.3)."""

from __future__ import annotations

from federation.gossip.lzw import CLEAR_CODE, CODE_BITS_MAX, CODE_BITS_MIN, EOF_CODE, FULL_TABLE


def packed_zeros(prefix: bytes, count: int) -> bytes:
    """LZW of `prefix` and `count` zeros, without walking over them."""
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
