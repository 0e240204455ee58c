"""Makes `USING mqtt` and `format("mqtt")` known to every Spark whose Python has this package.

Spark imports the packages whose names begin with `pyspark_`, and registers their `DefaultSource`
(pyspark.sql.worker.lookup_data_sources).
"""

from __future__ import annotations

from contextlib import suppress

# One package that cannot be imported would take all Python sources from a Spark that has no use for this one.
with suppress(ImportError):
    from pipeline.source import MqttDataSource as DefaultSource

__all__ = ["DefaultSource"]
