"""Spark's limit on the start of a Python worker, which ends queries on a busy machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.errors import StreamingQueryException

SPARKS_LIMIT: Final = ("Python worker failed to connect back", "waiting for the Python worker to connect back")
"""A query ends where a Python worker does not begin within ten seconds, as on a busy machine."""
ENDS_MAX: Final = 10
"""Of a run for that reason. The start of a worker is a second of CPU: a run on two cores beside a load of 15 to 29 had four."""


def is_limit(text: str) -> bool:
    return any(limit in text for limit in SPARKS_LIMIT)


def run_again(run: Callable[[], object]) -> None:
    """Run queries, and again where one has ended for this reason: the next start goes on (docs/pipeline.md)."""
    ends = 0
    while True:
        try:
            run()
            return
        except StreamingQueryException as error:
            ends += 1
            if ends > ENDS_MAX or not is_limit(str(error)):
                raise
