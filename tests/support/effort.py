"""The number of examples, inputs and sizes of what is drawn at random: all in `scripts/test --all`, a quarter before a push."""

from __future__ import annotations

import os
from typing import Final

IS_WHOLE: Final = "GMQTTD_TEST_ALL" in os.environ  # scripts/test --all


def effort(whole: int) -> int:
    return whole if IS_WHOLE else max(1, whole // 4)
