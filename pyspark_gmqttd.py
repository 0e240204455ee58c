"""Makes `USING mqtt` and `format("mqtt")` known to every Spark whose Python has this package.

Spark imports the packages whose names begin with `pyspark_`, and registers their `DefaultSource`
(pyspark.sql.worker.lookup_data_sources).
"""

from __future__ import annotations

import sys

# One package that cannot be imported would take all Python sources from a Spark that has no use for this one.
try:
    from pipeline.source import MqttDataSource as DefaultSource
except ImportError as error:
    print(f'gmqttd: Spark has no format "mqtt" here: {error}', file=sys.stderr)

__all__ = ["DefaultSource"]
