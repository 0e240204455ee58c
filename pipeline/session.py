"""A Spark session for pipelines: Java found, workers with this Python, data source `mqtt` registered."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import HOW_TO_INSTALL, PipelineError
from pipeline.java import find_java_home
from pipeline.spark_home import fast_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED: Final = ("pyspark", "pyarrow", "pandas", "numpy")
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"  # what the option pushDownPredicate needs
# Each can be given otherwise by the caller.
CONFIGURATION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    PUSHDOWN: "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
STDERR: Final = 2
# Parts of lines that are no news.
USUAL: Final = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b" WARN Utils: Your hostname",
    b" WARN Utils: Set SPARK_LOCAL_IP",
    b" WARN NativeCodeLoader: ",
    b"Setting default log level to ",
    b"To adjust logging level use ",
    b'Setting Spark log level to "OFF"',
    b"Warning: Java versions > Java 11",
    b"Streaming TransformWithStateInPandas Python worker",
)

# A query that ends while Java ends. Other ends of a query are told by the command.
TRACE_BEGINS: Final = b'Exception in thread "stream execution thread for '
TRACE_LINES: Final = (b"\tat ", b"\t... ", b"Caused by: ")

# Errors are told once, by the command.
QUIET: Final = {"spark.log.level": "OFF"}


def prepare_environment() -> None:
    """Set JAVA_HOME and the Python of the workers for a session that is started later. Raises PipelineError."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise PipelineError(f"these packages are missing: {', '.join(missing)}. To install them: {HOW_TO_INSTALL}")
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ, _cache()))
    # Spark would take `python3` of PATH, which has none of the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gmqttd")


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
    with fast_workers(master, _cache()):
        session = builder.getOrCreate()
    register(session)
    return session


def register(spark: SparkSession) -> None:
    """Make `format("mqtt")`, and the sink for Delta tables, known to a session."""
    from pipeline.delta_sink import DeltaSink
    from pipeline.source import MqttDataSource

    spark.dataSource.register(MqttDataSource)
    spark.dataSource.register(DeltaSink)


# --- for commands: without the lines that Spark, Java and its Python workers print whatever the log level is ---
#
# All of them inherit the standard error of this process. A thread hands on the lines that tell something.


def quiet_session(name: str, master: str | None, configuration: Mapping[str, str]) -> SparkSession:
    """As `spark_session`. Ctrl-C stays what it was: PySpark makes it cancel all jobs and raise KeyboardInterrupt."""
    # The end of Java is an error that the command tells.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        with quiet_stderr():
            session = spark_session(name, master, {**QUIET, **configuration})
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)
    # A thread of PySpark reads from Java, and prints a trace when Java ends first.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    return session


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Processes that are started meanwhile lose the lines of USUAL on standard error, also later."""
    reading, writing = os.pipe()
    kept = os.dup(STDERR)
    threading.Thread(target=_hand_on, args=(reading, kept), name="stderr of Spark", daemon=True).start()
    os.dup2(writing, STDERR)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)


def _hand_on(reading: int, kept: int) -> None:
    """Until the last process that writes has ended."""
    is_in_trace = False
    with open(reading, "rb") as lines, open(kept, "wb", buffering=0) as out:
        for line in lines:
            is_in_trace = line.startswith(TRACE_BEGINS) or (is_in_trace and line.startswith(TRACE_LINES))
            if line.strip() and not is_in_trace and not any(each in line for each in USUAL):
                out.write(line)
