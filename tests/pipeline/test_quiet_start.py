"""Lines that Spark prints at each start are left out, others are handed on."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import subprocess, sys, threading
from pipeline.session import quiet_stderr

child = "import sys; sys.stderr.write(sys.stdin.read())"
with quiet_stderr():
    started = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, text=True)
print("said by the command itself", file=sys.stderr)
started.communicate(sys.argv[1])
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
"""

PRINTED = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/22 17:53:55 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
Setting Spark log level to "OFF".
Starting Streaming TransformWithStateInPandas Python worker.

Exception in thread "stream execution thread for archive [id = 2ef8]" org.apache.spark.SparkException: thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.rpc.RpcEnvStoppedException: RpcEnv already stopped.
\tat org.apache.spark.rpc.netty.Dispatcher.postMessage(Dispatcher.scala:176)
\t... 14 more
node n2 is away, its records come when it is back
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
26/11/22 17:53:55 ERROR Executor: what --conf spark.log.level=ERROR asked for
"""


def test_usual_lines_are_left_out_also_after_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, PRINTED], capture_output=True, text=True, check=True, timeout=60
    )
    assert sorted(done.stderr.splitlines()) == [
        "\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)",
        "26/11/22 17:53:55 ERROR Executor: what --conf spark.log.level=ERROR asked for",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
        "node n2 is away, its records come when it is back",
        "said by the command itself",
    ]
