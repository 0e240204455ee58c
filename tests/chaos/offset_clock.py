"""gmqttd with a wall clock that a test sets: `offset_clock.py start -c NAME.yml` adds the nanoseconds in NAME.clock to it.

The file holds one little-endian i64, and is looked at with each call. Nothing but the wall clock is changed.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Final

OFFSET: Final = struct.Struct("<q")


def replace_wall_clock(path: Path) -> None:
    with path.open("rb") as file:
        offset = mmap.mmap(file.fileno(), OFFSET.size, access=mmap.ACCESS_READ)
    real = time.time_ns

    def time_ns() -> int:
        return real() + int(OFFSET.unpack_from(offset)[0])

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


if __name__ == "__main__":
    replace_wall_clock(Path(sys.argv[-1]).with_suffix(".clock"))
    from broker.server.cli import main

    sys.exit(main())
