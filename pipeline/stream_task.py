"""The knowledge of a task of a stream about its batch."""

from __future__ import annotations

from typing import Final

from pyspark import TaskContext

from pipeline.errors import PipelineError

# Local properties that Spark sets for the tasks of a stream, and keeps over restarts from a checkpoint.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


def batch_of_task() -> tuple[str, int]:
    """(id of the query, number of the batch). Raises PipelineError."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
    batch = context.getLocalProperty(BATCH_PROPERTY) if context is not None else None
    if not query or not batch:
        raise PipelineError(
            f"Spark does not tell the task its {QUERY_PROPERTY} and {BATCH_PROPERTY}; this needs pyspark 4.3"
        )
    return query, int(batch)
