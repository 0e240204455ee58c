"""Dashboards and alert rules name metrics that a node has, with the labels that they have."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

if TYPE_CHECKING:
    from node_process import Nodes

ROOT: Final = Path(__file__).resolve().parents[2]
ALERTS: Final = ROOT / "deploy/prometheus/alerts.yml"
PROMTOOL: Final = ROOT / "run/packages/bin/promtool"
METRIC: Final = re.compile(r"\b((?:gmqtt|process)_[a-z_0-9]+)(?:\{([^}]*)\})?")
GROUPED: Final = re.compile(r"by \(([a-z_, ]+)\) \((?:rate\()?([a-z_0-9]+)")
FAMILY: Final = re.compile(r"^# TYPE (\S+) ", re.MULTILINE)
SAMPLE: Final = re.compile(r"^([a-z_0-9]+)\{([^}]*)\} ", re.MULTILINE)
LABEL: Final = re.compile(r"([a-z_]+)\s*[=!]")
OF_PROMETHEUS: Final = {"job", "instance"}


def expressions() -> list[str]:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    panels = [
        target["expr"]
        for file in sorted((ROOT / "deploy/grafana").glob("*.json"))
        for panel in json.loads(file.read_text())["panels"]
        for target in panel["targets"]
    ]
    assert len(panels) > 40
    return [*panels, *(rule["expr"] for rule in rules)]


async def metrics_of_all_plugins(nodes: Nodes) -> str:
    """The metrics of one of two nodes, each with all plugins."""
    node, other = nodes.make_federated(), None
    other = nodes.make_federated([node])
    for made in (node, other):
        address = f"127.0.0.1:{nodes.free_port()}"
        made.config["plugin_order"] = ["admin", "federation", "event_log", "links", "prometheus"]
        made.config["plugins"]["prometheus"] = {"listen_address": address}
        made.config["plugins"]["event_log"] = {"dir": str(made.directory / f"{made.name}-log")}
        made.config["data_dir"] = str(made.directory / f"{made.name}-data")
        await made.start()
    await nodes.all_alive([node, other])
    url = f"http://{node.config['plugins']['prometheus']['listen_address']}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    answer = await asyncio.to_thread(opener.open, url, None, 30)
    with answer:
        return str(answer.read().decode())


@pytest.mark.one_process("compares the labels of metrics; gauges of workers have one more")
async def test_each_name_is_one_of_a_node(nodes: Nodes) -> None:
    text = await metrics_of_all_plugins(nodes)
    families = set(FAMILY.findall(text))
    labels = {name: set(LABEL.findall(found)) for name, found in SAMPLE.findall(text)}
    for expression in expressions():
        found = METRIC.findall(expression)
        assert found or "up{" in expression, expression
        for name, selected in found:
            assert name in families, expression
            for label in set(LABEL.findall(selected)) - OF_PROMETHEUS:
                assert label in labels.get(name, {label}), expression
        for grouped, name in GROUPED.findall(expression):
            for label in {word.strip() for word in grouped.split(",")} - OF_PROMETHEUS:
                assert label in labels.get(name, {label}), expression
    assert labels["gmqtt_federation_lag_seconds"] == {"node"}  # the labels of the other node were there to compare


def test_each_alert_says_what_to_do() -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.slow
def test_promtool_takes_the_rules() -> None:
    if not PROMTOOL.exists():
        pytest.skip("no promtool: scripts/setup --packages")
    command = [str(PROMTOOL), "check", "rules", str(ALERTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
