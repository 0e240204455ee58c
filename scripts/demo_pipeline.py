"""The demo of the pipeline: three nodes with event logs, simulated devices, jobs on Spark, an alert, pictures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from typing import Final

import yaml
from demo_devices import SILENT_DEVICE
from demo_nodes import ROOT, RUN, DemoFailed, Node, say, show_command, start_federation, title, wait_until

DEVICES_SECONDS: Final = 20.0
SPARK_SECONDS: Final = 300.0  # a busy machine takes minutes for what takes ten seconds on a free one
SILENT_AFTER: Final = 15  # seconds
ALERT_SECONDS: Final = 120.0
ROLLUP_SECONDS: Final = 70.0  # of devices' time in the picture
ROLLUP_BATCHES: Final = 3  # the first one completes no window
WINDOW: Final = "10s"
JOB_SECONDS: Final = 300.0
STOP_SECONDS: Final = 40.0
LOG_TAIL_LINES: Final = 15
PYTHON: Final = ".venv/bin/python"
GMQTTCTL: Final = ".venv/bin/gmqttctl"
FOLDER: Final = RUN / "pipeline"


class Program:
    """A command that runs in the background, in a process group of its own."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._log = RUN / f"{name}.log"
        show_command(command, background=True)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def lines(self, text: str) -> list[str]:
        """The lines so far that have this text in them. Raises DemoFailed when the command has failed."""
        lines = self._log.read_text(errors="replace").splitlines()
        if self.process.poll():
            end = "\n".join(lines[-LOG_TAIL_LINES:])
            raise DemoFailed(f"{self.name} ended with exit status {self.process.returncode}:\n{end}")
        return [line for line in lines if text in line]

    def stop(self) -> None:
        """SIGTERM; kill -9 of the group after STOP_SECONDS."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def with_event_log(node: Node) -> Node:
    """The node with a configuration in run/demo: that of configs/, and the plugin event_log."""
    settings = yaml.safe_load(node.config.read_text())
    log = {"dir": str(FOLDER / f"{node.name}-log"), "sync": "commit"}
    settings["plugins"]["event_log"] = log
    settings["plugin_order"].append("event_log")
    path = RUN / f"{node.name}.yml"
    path.write_text(
        f"# configs/{node.config.name} with the plugin event_log\n" + yaml.safe_dump(settings, sort_keys=False)
    )
    node.config = path
    return node


def prepare(nodes: list[Node]) -> list[Node]:
    """The nodes with event logs. Removes what an earlier demo left."""
    if not shutil.which("mosquitto_sub"):
        raise DemoFailed("mosquitto_sub is missing: sudo apt-get install mosquitto-clients")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    return [with_event_log(node) for node in nodes]


def gmqttctl(node: Node, *arguments: str) -> list[str]:
    """A command of gmqttctl for the federation of this node; the other nodes are found by asking it."""
    return [GMQTTCTL, "pipeline", *arguments, "--servers", str(node.address("gRPC API")), "--dir", folder_name()]


def folder_name() -> str:
    return str(FOLDER.relative_to(ROOT))


def run(command: list[str]) -> str:
    """Print and run a command, and print what it prints."""
    show_command(command)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=JOB_SECONDS, check=False)
    if done.returncode:
        raise DemoFailed(f"{command[0]} ended with exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    say(done.stdout.rstrip())
    return done.stdout


def run_pipeline_demo(nodes: list[Node]) -> None:
    """Raises DemoFailed."""
    programs: list[Program] = []
    try:
        start_federation(nodes)
        say(f"each node logs what is published on it, in {folder_name()}/NODE-log (plugin event_log, sync: commit)")
        show_pipeline(nodes, programs)
    finally:
        for program in programs:
            program.stop()


def show_pipeline(nodes: list[Node], programs: list[Program]) -> None:
    began_at = time.monotonic()
    title("Start devices")
    addresses = [argument for node in nodes for argument in ("--to", str(node.address("MQTT")))]
    devices = start(programs, "devices", [PYTHON, "scripts/demo_devices.py", *addresses])
    wait_until("the devices connect", DEVICES_SECONDS, nodes, lambda: bool(devices.lines("connected")))
    say(devices.lines("connected")[0])
    say("thermometers send JSON, meters text, machines 128 bytes of samples, doors retained words")

    title("Start jobs on Spark, which read the logs")
    silent = ["-o", "topics=plant/+/thermometer/#", "-o", f"silent_after={SILENT_AFTER}s"]
    rollup = ["-o", "levels=2", "-o", f"window={WINDOW}", "-o", "delay=5s"]
    jobs = {
        "alerts": start(programs, "alerts", gmqttctl(nodes[0], "run", "alerts", "--every", "2s", *silent)),
        "archive": start(programs, "archive", gmqttctl(nodes[0], "run", "archive", "--every", "5s")),
        "rollup": start(programs, "rollup", gmqttctl(nodes[0], "run", "rollup", "--every", "5s", *rollup)),
    }
    wait_for_batches(nodes, jobs["alerts"], 1)

    title(f"A device falls silent: {SILENT_DEVICE}; an alert comes after {SILENT_AFTER} s")
    show_alert(nodes, devices)
    wait_for_batches(nodes, jobs["archive"], 1)
    wait_for_batches(nodes, jobs["rollup"], ROLLUP_BATCHES)
    seconds = ROLLUP_SECONDS - (time.monotonic() - began_at)
    if seconds > 0:
        say(f"{seconds:.0f} s more, for the picture of the rollup")
        time.sleep(seconds)

    title("How far the jobs have read, and the rows that they have written")
    run(gmqttctl(nodes[0], "status"))
    for job in jobs.values():
        show_command(["kill", str(job.process.pid)])
        job.stop()
        say(job.lines(" messages in ")[-1])
    files = [path for path in (FOLDER / "archive").rglob("*.parquet") if path.stat().st_size]
    say(
        f"{folder_name()}/archive has {len(files)} Parquet files of {sum(path.stat().st_size for path in files):,} bytes"
    )

    title("Which node sends how much to which, and the pictures")
    run(gmqttctl(nodes[0], "run", "matrix", "-o", "period=10m"))
    run([GMQTTCTL, "pipeline", "plot", "--dir", folder_name(), "--levels", "2", "--window", WINDOW])
    pictures = sorted(str(path.relative_to(ROOT)) for kind in ("png", "svg") for path in FOLDER.rglob(f"*.{kind}"))
    title("Pictures")
    say("\n".join(pictures))
    if {path.rpartition("/")[2] for path in pictures} != {"matrix.png", "matrix.svg", "rollup.png", "rollup.svg"}:
        raise DemoFailed("not the matrix and the rollup, each as PNG and SVG")


def start(programs: list[Program], name: str, command: list[str]) -> Program:
    program = Program(name, command)
    programs.append(program)
    return program


def wait_for_batches(nodes: list[Node], job: Program, count: int) -> None:
    wait_until(f"batch {count} of {job.name}", SPARK_SECONDS, nodes, lambda: len(job.lines(": batch ")) >= count)
    say(job.lines(": batch ")[count - 1])


def show_alert(nodes: list[Node], devices: Program) -> None:
    """Listen with mosquitto_sub at another node than the device's, let the device fall silent, wait for the alert."""
    at = nodes[1].address("MQTT")
    wanted = f"alerts/silent/{SILENT_DEVICE}"
    subscribe = ["mosquitto_sub", "-h", at.host, "-p", str(at.port), "-t", "alerts/#", "-q", "1", "-C", "1", "-v"]
    show_command(subscribe, background=True)
    with subprocess.Popen(subscribe, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as listening:
        try:
            show_command(["kill", "-USR1", str(devices.process.pid)])
            devices.process.send_signal(signal.SIGUSR1)
            began_at = time.monotonic()
            printed = listening.communicate(timeout=ALERT_SECONDS)[0].strip()
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"no alert arrived within {ALERT_SECONDS:.0f} s") from None
        finally:
            if listening.poll() is None:
                listening.kill()
    topic, _, text = printed.partition(" ")
    say(f"mosquitto_sub printed after {time.monotonic() - began_at:.0f} s: {printed}")
    if topic != wanted or json.loads(text)["device"] != SILENT_DEVICE:
        raise DemoFailed(f"the alert is not {wanted}")
