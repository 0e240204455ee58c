"""The Helm chart as helm renders it; its nodes run here as processes, with their arguments, variables and configuration."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from broker.config.loader import load_bytes
from federation.sessions.drain import RATE_MAX
from node_process import Node
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Nodes

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy/helm/gmqttd"
KUBERNETES: Final = "1.33.0"
HELM: Final = ROOT / "run/packages/bin/helm"
pytestmark = pytest.mark.slow


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not HELM.exists():
        pytest.skip("no helm: scripts/setup --packages")
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True, check=False, timeout=120)


def helm(*arguments: str) -> str:
    done = run_helm(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(*sets: str) -> dict[str, dict[str, Any]]:
    """The objects of a release by kind and name."""
    options = [word for value in sets for word in ("--set", value)]
    text = helm("template", "prod", str(CHART), "--kube-version", KUBERNETES, "--namespace", "mqtt", *options)
    found = [item for item in yaml.safe_load_all(text) if item]
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in found}


def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return dict(objects["StatefulSet/prod-gmqttd"]["spec"]["template"]["spec"])


def variables(objects: dict[str, dict[str, Any]], name: str, address: str) -> dict[str, str]:
    """The environment of a pod as Kubernetes makes it."""
    fields = {"metadata.name": name, "status.podIP": address}
    return {
        item["name"]: item["value"] if "value" in item else fields[item["valueFrom"]["fieldRef"]["fieldPath"]]
        for item in pod(objects)["containers"][0]["env"]
    }


def test_helm_takes_the_chart() -> None:
    helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    "sets", [(), ("nodeTls.secret=certs", "gossipKeys.secret=keys", "serviceMonitor.enabled=true"), ("replicas=1",)]
)
def test_names_ports_and_volumes_belong_together(sets: tuple[str, ...]) -> None:
    objects = rendered(*sets)
    spec = pod(objects)
    (container,) = spec["containers"]
    ports = {port["name"] for port in container["ports"]}
    services = [item for key, item in objects.items() if key.startswith("Service/")]
    assert len(services) == 2
    labels = objects["StatefulSet/prod-gmqttd"]["spec"]["template"]["metadata"]["labels"]
    for service in services:
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        assert service["spec"]["selector"].items() <= labels.items()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    volumes = {volume["name"] for volume in spec["volumes"]} | {"data"}
    for user in (container, *spec.get("initContainers", ())):
        assert {mount["name"] for mount in user["volumeMounts"]} <= volumes
        assert user["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["securityContext"]["runAsNonRoot"] is True
    stateful = objects["StatefulSet/prod-gmqttd"]["spec"]
    seeds = objects[f"Service/{stateful['serviceName']}"]["spec"]
    assert seeds["clusterIP"] == "None"
    assert seeds["publishNotReadyAddresses"] is True


@pytest.mark.parametrize(
    ("sets", "seconds"),
    [
        ((), 120),
        (("drain.sessions=100000",), 260),
        (("drain.rate=7", "drain.sessions=10"), 62),
        (("drain.sessions=0",), 60),
    ],
)
def test_a_pod_has_the_time_that_its_drain_takes(sets: tuple[str, ...], seconds: int) -> None:
    spec = pod(rendered(*sets))
    assert spec["terminationGracePeriodSeconds"] == seconds
    (container,) = spec["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command[command.index("--rate") + 1] == ("7" if "drain.rate=7" in sets else "500")


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        ("drain.rate", "0", "1 to"),
        ("drain.rate", "-1", "1 to"),
        ("drain.rate", str(RATE_MAX + 1), f"to {RATE_MAX}"),
        ("drain.rate", "0.5", "whole number"),
        ("drain.rate", "many", "whole number"),
        ("drain.sessions", "lots", "whole number"),
        ("drain.sessions", "-60", "0 or more"),
        ("terminationGracePeriodSeconds", "90", "drain.sessions"),
    ],
)
def test_a_drain_that_cannot_be_is_refused(key: str, value: str, right: str) -> None:
    done = run_helm("template", "prod", str(CHART), "--kube-version", KUBERNETES, "--set", f"{key}={value}")
    assert done.returncode != 0
    (said,) = re.findall(f"{key}={value}: (.*)", done.stderr)
    assert right in said


def test_a_pod_that_starts_again_can_use_its_keyring(tmp_path: Path) -> None:
    """Whose mode Kubernetes has changed for fsGroup."""
    spec = pod(rendered("gossipKeys.secret=keys"))
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    (container,) = spec["initContainers"]
    command = [
        word.replace("/var/lib/gmqttd", str(tmp_path)).replace("/run/keys", str(tmp_path / "keys"))
        for word in container["command"]
    ]
    secret, keyring = tmp_path / "keys/keyring", tmp_path / "keyring"
    secret.parent.mkdir()
    secret.write_text("[1]")
    for text in ("[1]", "[2]"):
        subprocess.run(command, check=True)
        assert (keyring.read_text(), keyring.stat().st_mode & 0o777) == (text, 0o600)
        keyring.write_text("[2]")  # keys are rotated
        keyring.chmod(0o660)


@pytest.mark.parametrize("sets", [(), ("nodeTls.secret=certs", "gossipKeys.secret=keys")])
def test_the_configuration_is_one(sets: tuple[str, ...]) -> None:
    objects = rendered(*sets, "env.GMQTTD_MQTT__MAX_INFLIGHT=7")
    text = objects["ConfigMap/prod-gmqttd"]["data"]["gmqttd.yml"]
    result = load_bytes(text.encode(), "gmqttd.yml", environment=variables(objects, "prod-gmqttd-0", "10.1.2.3"))
    assert result.settings is not None, [str(fault) for fault in result.faults]
    settings = result.settings
    federation = settings.plugins.federation
    assert settings.mqtt.max_inflight == 7
    assert federation.node_name == "prod-gmqttd-0"
    assert str(federation.advertise_gossip_addr) == "10.1.2.3:8902"
    assert [str(seed) for seed in federation.retry_join] == [
        "srv+_gossip._tcp.prod-gmqttd-nodes.mqtt.svc.cluster.local"
    ]
    if sets:
        assert federation.require_tls
        assert federation.tls.cert.endswith("/prod-gmqttd-0.pem")
        assert federation.keyring_file


class PodNode(Node):
    """A process with the arguments, the variables and the configuration of a pod."""

    variables: dict[str, str]
    arguments: list[str]

    def spawn(self, text: str | None = None) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program(), *self.arguments],
                cwd="/",
                env={"PYTHONSAFEPATH": "1", "PATH": os.environ["PATH"], **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


async def test_three_pods_are_one_broker(nodes: Nodes, clients: Clients) -> None:
    objects = rendered()
    stateful = objects["StatefulSet/prod-gmqttd"]["spec"]
    (container,) = pod(objects)["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    pods: list[Node] = []
    seeds: list[str] = []
    for number in range(stateful["replicas"]):
        node = nodes.make(name=f"prod-gmqttd-{number}", kind=PodNode)
        assert isinstance(node, PodNode)
        folder = node.directory / node.name
        folder.mkdir()
        (folder / "gmqttd.yml").write_text(objects["ConfigMap/prod-gmqttd"]["data"]["gmqttd.yml"])
        node.arguments = [word.replace(mounted["config"], str(folder)) for word in container["args"]]
        rest, grpc, fed, gossip, metrics = (f"127.0.0.1:{nodes.free_port()}" for _ in range(5))
        seeds.append(gossip)
        node.config["api"] = {"http": [{"address": rest}]}
        node.variables = {
            **variables(objects, node.name, "127.0.0.1"),
            # The pods of a cluster have addresses of their own; here ports of one machine tell them apart.
            "GMQTTD_DATA_DIR": str(folder / "data"),
            "GMQTTD_LISTENERS__0__ADDRESS": f"127.0.0.1:{node.port}",
            "GMQTTD_API__GRPC__0__ADDRESS": grpc,
            "GMQTTD_API__HTTP": f"[{{address: '{rest}', map: '{grpc}'}}]",
            "GMQTTD_PLUGINS__FEDERATION__FED_ADDR": fed,
            "GMQTTD_PLUGINS__FEDERATION__ADVERTISE_FED_ADDR": fed,
            "GMQTTD_PLUGINS__FEDERATION__GOSSIP_ADDR": gossip,
            "GMQTTD_PLUGINS__FEDERATION__ADVERTISE_GOSSIP_ADDR": gossip,
            "GMQTTD_PLUGINS__FEDERATION__RETRY_JOIN": seeds[0],
            "GMQTTD_PLUGINS__PROMETHEUS__LISTEN_ADDRESS": metrics,
        }
        pods.append(await node.start())
    await nodes.all_alive(pods)
    subscriber = await clients.connect(pods[0].port, "sub")
    publisher = await clients.connect(pods[2].port, "pub")
    await subscriber.subscribe("a", qos=1)

    async def came() -> bool:  # the other node hears of the subscription a moment later
        await publisher.publish("a", b"x", qos=1)
        return not subscriber.messages.empty()

    await eventually(came, "a message of another pod comes")
