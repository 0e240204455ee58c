"""Reads a long message body piece by piece, so that only what is wanted and within bounds is built, in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgpack  # type: ignore[import-untyped]

from federation.gossip.errors import WireError

_NIL: Final = 0xC0
_PIECE_BYTES: Final = 16 << 10
SLICE_STEPS: Final = 8192
"""Steps of a slice, of some 0.5 µs each: a part of the body that is read, or 64 bytes that are taken in."""


class BodyReader:
    """The methods follow each other as the parts of the body do. All raise WireError.

    Building a body whole costs up to 60 bytes and 0.2 µs for each of its bytes: a stream of 8 MiB would take half a gigabyte
    and block the node for seconds.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._unpacker = msgpack.Unpacker(raw=True, strict_map_key=False, max_buffer_size=max(1, len(body)))
        self._taken = 0  # bytes of the body that the unpacker has
        self._steps = 0

    def is_slice_over(self) -> bool:
        """Return whether others should have a turn. If so a new slice has begun."""
        is_over = self._steps >= SLICE_STEPS
        if is_over:
            self._steps = 0
        return is_over

    def map_length(self, length_max: int, what: str) -> int:
        """Number of the entries of a map, whose keys and values follow; 0 for nil."""
        return self._length(self._unpacker.read_map_header, length_max, what)

    def array_length(self, length_max: int, what: str) -> int:
        """Number of the elements of an array, which follow; 0 for nil."""
        return self._length(self._unpacker.read_array_header, length_max, what)

    def is_nil(self) -> bool:
        """Return whether nil comes next, and take it if so."""
        at = self._unpacker.tell()
        if at < len(self._body) and self._body[at] == _NIL:
            self._call(self._unpacker.unpack)
            return True
        return False

    def scalar(self) -> object:
        """A number, string, boolean or nil."""
        at = self._unpacker.tell()
        first = self._body[at] if at < len(self._body) else _NIL
        if 0x80 <= first < 0xA0 or 0xDC <= first < 0xE0:
            raise WireError("body has a map or an array where a number or a string belongs")
        return self._call(self._unpacker.unpack)

    def skip(self) -> Iterator[None]:
        """Pass over what comes next. Yields where a slice is over."""
        while not self._try(self._unpacker.skip)[0]:
            self._take_piece()
            if self.is_slice_over():
                yield

    def end(self) -> None:
        if self._unpacker.tell() != len(self._body):
            raise WireError("body is not msgpack: bytes follow it")

    def _length(self, header: Callable[[], object], length_max: int, what: str) -> int:
        if self.is_nil():
            return 0
        length = self._call(header)
        assert isinstance(length, int)
        if length > length_max:
            raise WireError(f"{what} has {length} entries; at most {length_max} are possible")
        return length

    def _call(self, method: Callable[[], object]) -> object:
        is_read, found = self._try(method)
        while not is_read:
            self._take_piece()
            is_read, found = self._try(method)
        return found

    def _try(self, method: Callable[[], object]) -> tuple[bool, object]:
        """(True, what it gives), or (False, None): the unpacker needs more of the body."""
        self._steps += 1
        try:
            return True, method()
        except msgpack.OutOfData:
            return False, None
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise WireError(f"body is not msgpack: {type(error).__name__}") from None

    def _take_piece(self) -> None:
        piece = self._body[self._taken : self._taken + _PIECE_BYTES]
        if not piece:
            raise WireError("body is not msgpack: it is cut off")
        self._unpacker.feed(piece)
        self._taken += len(piece)
        self._steps += len(piece) >> 6
