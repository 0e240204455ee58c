"""A Spark session for pipelines: Java found, workers with this Python, data source `mqtt` registered."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import HOW_TO_INSTALL, PipelineError
from pipeline.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED: Final = ("pyspark", "pyarrow", "pandas", "numpy")
# Each can be given otherwise by the caller.
CONFIGURATION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def prepare_environment() -> None:
    """Set JAVA_HOME and the Python of the workers for a session that is started later. Raises PipelineError."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineError(f"these packages are missing: {', '.join(missing)}. To install them: {HOW_TO_INSTALL}")
    launchers = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gmqttd")
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ, launchers))
    # Spark would take `python3` of PATH, which has none of the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def spark_session(
    name: str = "gmqttd", master: str | None = "local[2]", configuration: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process; it is started when there is none. `master` None leaves the choice to spark-submit.
    Raises PipelineError for what is missing."""
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**CONFIGURATION, **(configuration or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    return session


def register(spark: SparkSession) -> None:
    """Make `format("mqtt")` known to a session."""
    from pipeline.source import MqttDataSource

    spark.dataSource.register(MqttDataSource)
