"""The demo: three nodes from configs/, one of them joined over REST, a message from node 1 to a client of node 2."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Final

import psutil
from demo_nodes import (
    CONFIGS,
    ROOT,
    RUN,
    DemoFailed,
    Node,
    check_ports,
    curl,
    read_node,
    rest,
    say,
    show_command,
    show_logs,
    start_federation,
    stop,
    title,
    wait_for_end,
    wait_until,
)
from demo_pipeline import prepare, run_pipeline_demo

NODES_FILE: Final = RUN / "nodes.json"
MESSAGE_SECONDS: Final = 15.0


def has_subscription(node: Node, topic: str) -> bool:
    try:
        return f'"{topic}"' in rest(node.address("REST"), "/v1/subscriptions")
    except OSError:
        return False


def exchange(publisher: Node, subscriber: Node, nodes: list[Node]) -> None:
    """Send a message from a client of one node to a client of another, with mosquitto's clients."""
    for program in ("mosquitto_sub", "mosquitto_pub"):
        if not shutil.which(program):
            raise DemoFailed(f"{program} is missing: sudo apt-get install mosquitto-clients")
    topic, text = "topicA", "123"
    at = subscriber.address("MQTT")
    subscribe = ["mosquitto_sub", "-h", at.host, "-p", str(at.port), "-t", topic, "-q", "1", "-C", "1"]
    show_command(subscribe, background=True)
    listening = subprocess.Popen(subscribe, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(f"the subscription on {subscriber.name}", 5.0, nodes, lambda: has_subscription(subscriber, topic))
        at = publisher.address("MQTT")
        publish = ["mosquitto_pub", "-h", at.host, "-p", str(at.port), "-t", topic, "-m", text, "-q", "1"]
        until = time.monotonic() + MESSAGE_SECONDS
        printed: str | None = None
        while printed is None:
            show_command(publish)
            done = subprocess.run(publish, capture_output=True, text=True, timeout=10, check=False)
            if done.returncode != 0:
                raise DemoFailed(f"mosquitto_pub: {done.stderr.strip() or done.returncode}")
            try:
                printed = listening.communicate(timeout=2)[0].strip()
            except subprocess.TimeoutExpired:
                if time.monotonic() > until:
                    raise DemoFailed(f"the message did not reach {subscriber.name}") from None
                say(f"not there yet: {publisher.name} may not know of the subscription; once more")
    finally:
        if listening.poll() is None:
            listening.terminate()
            listening.wait(5)
    if printed != text:
        raise DemoFailed(f"mosquitto_sub on {subscriber.name} printed {printed!r} and not {text!r}")
    say(f"mosquitto_sub on {subscriber.name} printed: {printed}")


# --- the demo


def run_demo(nodes: list[Node]) -> None:
    first, second, _ = nodes
    start_federation(nodes)

    title(f"Subscribe on {second.name}, publish on {first.name}")
    exchange(first, second, nodes)

    title("Members")
    answer = curl(first.address("REST"), "/v1/federation/members")
    listed = json.loads(answer)
    say(json.dumps(listed, indent=2))
    if sum(member.get("status") == "STATUS_ALIVE" for member in listed.get("members", [])) != 3:
        raise DemoFailed("not three members with STATUS_ALIVE")


def keep(nodes: list[Node]) -> None:
    processes = [(node.name, psutil.Process(node.process.pid)) for node in nodes if node.process is not None]
    record = [{"name": name, "pid": process.pid, "created": process.create_time()} for name, process in processes]
    NODES_FILE.write_text(json.dumps(record))
    title("The nodes keep running")
    at = nodes[1].address("MQTT")
    say(f"try:   mosquitto_sub -h {at.host} -p {at.port} -t '#' -v")
    say(f"logs:  {RUN.relative_to(ROOT)}/*.log")
    say("stop:  scripts/demo --stop")


def stop_kept() -> int:
    """Stop the nodes that --keep left running. A pid that belongs to another process by now is skipped."""
    if not NODES_FILE.exists():
        print("No nodes of scripts/demo --keep are running.")
        return 0
    names, processes = [], []
    for entry in json.loads(NODES_FILE.read_text()):
        try:
            process = psutil.Process(entry["pid"])
            if process.create_time() == entry["created"]:
                names.append(entry["name"])
                processes.append(process)
        except psutil.NoSuchProcess:
            print(f"  {entry['name']} had ended already")
    is_clean = wait_for_end(processes, names)
    NODES_FILE.unlink()
    return 0 if is_clean else 1


def interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--keep", action="store_true", help="leave the nodes running")
    choice.add_argument(
        "--pipeline", action="store_true", help="with event logs, devices, and Spark jobs that read them"
    )
    choice.add_argument("--stop", action="store_true", help="stop the nodes that --keep left")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    if arguments.stop:
        return stop_kept()
    RUN.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    nodes: list[Node] = []
    status = 1
    try:
        nodes = [read_node(name) for name in CONFIGS]
        if arguments.pipeline:
            nodes = prepare(nodes)
        check_ports(nodes)
        if arguments.pipeline:
            run_pipeline_demo(nodes)
        else:
            run_demo(nodes)
        status = 0
    except DemoFailed as fault:
        title("FAILED")
        say(str(fault))
        show_logs(nodes)
    except KeyboardInterrupt:
        title("Interrupted")
        status = 130
    finally:
        if status == 0 and arguments.keep:
            keep(nodes)
        else:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a second Ctrl-C would leave nodes behind
                signal.signal(number, signal.SIG_IGN)
            is_clean = stop(nodes)
            status = status or (0 if is_clean else 1)
    if status == 0 and arguments.pipeline:
        title("OK: the archive, the rollup, the alert and the pictures are there")
    elif status == 0:
        title("OK: the message crossed from node to node, and three members are alive")
    return status


if __name__ == "__main__":
    sys.exit(main())
