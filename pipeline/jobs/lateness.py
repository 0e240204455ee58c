"""Late messages: their window was written before they came.

Spark drops them silently. Here they are told apart inside of `transformWithState`, which knows the watermark, and make
rows of their own with arrival LATE: a folder of the table, beside that of the messages which came in time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F

ARRIVAL: Final = "arrival"
IN_TIME: Final = "in-time"
LATE: Final = "late"
# Of a frame from `place`; `at` is the event time of the rows that leave transformWithState.
PLACED: Final = "at timestamp, start timestamp, late boolean"


def place(times_us: npt.NDArray[np.int64], watermark_us: int, window_us: int) -> dict[str, Any]:
    """The columns PLACED of messages of these times. A window is written when the watermark reaches its end."""
    start = times_us - times_us % window_us
    return {
        # Spark takes rows only that are newer than the watermark.
        "at": _instants(np.maximum(times_us, watermark_us + 1)),
        "start": _instants(start),
        "late": start + window_us <= watermark_us,
    }


def _instants(times_us: npt.NDArray[np.int64]) -> Any:
    return pd.to_datetime(times_us, unit="us", utc=True)


def arrival(late: Column) -> Column:
    """The column ARRIVAL, which is a partition: Spark reads partitions as texts, not as booleans."""
    return F.when(late, F.lit(LATE)).otherwise(F.lit(IN_TIME)).alias(ARRIVAL)
