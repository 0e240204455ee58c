"""The image's Dockerfile, its configuration and its start line, which runs here as a process; compose.yml."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from broker.config.loader import load
from node_process import Node
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqtt_client import Clients
    from node_process import Nodes

ROOT: Final = Path(__file__).resolve().parents[2]
DOCKERFILE: Final = ROOT / "deploy/Dockerfile"
HADOLINT: Final = ROOT / "run/packages/bin/hadolint"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the last stage: names and what follows."""
    lines = DOCKERFILE.read_text().replace("\\\n", " ").splitlines()
    found = [line.partition(" ") for line in lines if line and not line.startswith(("#", " "))]
    starts = [index for index, (name, _, _) in enumerate(found) if name == "FROM"]
    return [(name, rest.strip()) for name, _, rest in found[starts[-1] :]]


def image() -> dict[str, str]:
    return dict(instructions())


def image_environment() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(image()["ENV"]))


class ContainerNode(Node):
    """A process with the start line, the environment and the configuration of the image."""

    variables: dict[str, str]

    def spawn(self, text: str | None = None) -> None:
        image_config = ROOT / "deploy/gmqttd.yml"
        entry, arguments = json.loads(image()["ENTRYPOINT"]), json.loads(image()["CMD"])
        assert entry == ["gmqttd"]
        assert "COPY deploy/gmqttd.yml /etc/gmqtt/gmqttd.yml" in DOCKERFILE.read_text()
        arguments = [str(image_config) if word == "/etc/gmqtt/gmqttd.yml" else word for word in arguments]
        path = os.environ["PATH"]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.program(), *arguments],
                cwd="/",  # as in the image
                env={"PYTHONSAFEPATH": "1", **image_environment(), "PATH": path, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def make(nodes: Nodes, seeds: list[str]) -> ContainerNode:
    """A node whose ports and folder are chosen by variables, as whoever runs a container chooses them."""
    node = nodes.make(kind=ContainerNode)
    assert isinstance(node, ContainerNode)
    node.config.pop("workers", None)  # the configuration is that of the image
    rest, grpc, fed, gossip, metrics = (f"127.0.0.1:{nodes.free_port()}" for _ in range(5))
    node.config["api"] = {"http": [{"address": rest}]}
    node.variables = {
        "DATA_DIR": str(node.directory / f"{node.name}-data"),
        "NODE_NAME": node.name,
        "GMQTTD_LISTENERS__0__ADDRESS": f"127.0.0.1:{node.port}",
        "GMQTTD_API__GRPC__0__ADDRESS": grpc,
        "GMQTTD_API__HTTP": json.dumps([{"address": rest, "map": grpc}]),
        "GMQTTD_PLUGINS__FEDERATION__FED_ADDR": fed,
        "GMQTTD_PLUGINS__FEDERATION__GOSSIP_ADDR": gossip,
        "GMQTTD_PLUGINS__FEDERATION__RETRY_JOIN": ",".join(seeds),
        "GMQTTD_PLUGINS__PROMETHEUS__LISTEN_ADDRESS": metrics,
    }
    return node


async def exit_status(command: list[str]) -> int:
    done = await asyncio.to_thread(subprocess.run, command, check=False, timeout=30, capture_output=True)
    return done.returncode


async def test_the_start_line_of_the_image(nodes: Nodes, clients: Clients) -> None:
    first = make(nodes, [])
    second = make(nodes, [first.variables["GMQTTD_PLUGINS__FEDERATION__GOSSIP_ADDR"]])
    for node in (first, second):
        await node.start()
    await nodes.all_alive([first, second])
    subscriber, publisher = await clients.connect(first.port, "sub"), await clients.connect(second.port, "pub")
    await subscriber.subscribe("a/#", qos=1)

    async def came() -> bool:  # the other node hears of the subscription a moment later
        await publisher.publish("a/b", b"x", qos=1)
        return not subscriber.messages.empty()

    await eventually(came, "a message of the other node comes")
    # The health check of the image, with this node's address of the API.
    check = json.loads(image()["HEALTHCHECK"].partition("CMD ")[2])
    address = first.config["api"]["http"][0]["address"]
    command = [sys.executable, *(word.replace("127.0.0.1:8083", address) for word in check[1:])]
    assert check[0] == "python"
    assert await exit_status(command) == 0
    await first.stop()  # SIGTERM: a leave
    await nodes.all_alive([second], [second.name])
    assert await exit_status(command) != 0


def test_the_image_is_run_without_rights() -> None:
    found = image()
    assert found["USER"].isdigit()
    assert found["USER"] != "0"
    assert found["STOPSIGNAL"] == "SIGTERM"
    data = image_environment()["DATA_DIR"]
    assert found["VOLUME"] == data
    settings = load(ROOT / "deploy/gmqttd.yml").settings
    assert settings is not None
    assert settings.data_dir == data
    # Nothing else is written: the root of the container may be read-only.
    assert settings.pid_file == ""


def test_what_the_dockerfile_copies_is_there() -> None:
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources), rest
    ignored = (ROOT / "deploy/Dockerfile.dockerignore").read_text().split()
    assert not any(name in ignored for name in ("broker", "federation", "pyproject.toml", "README.md", "deploy"))


def services() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from yaml.safe_load((ROOT / "deploy/compose.yml").read_text())["services"].items()


def test_compose_has_three_nodes_that_join_each_other() -> None:
    found = dict(services())
    assert len(found) == 3
    ports = [port.split(":")[0] for service in found.values() for port in service["ports"]]
    assert len(set(ports)) == len(ports)
    for name, service in found.items():
        assert service["hostname"] == name
        assert service["read_only"] is True
        build = service["build"]
        assert (ROOT / "deploy" / build["context"] / build["dockerfile"]).samefile(DOCKERFILE)
        (volume,) = service["volumes"]
        assert volume == f"{name}:{image_environment()['DATA_DIR']}"
        seeds = service["environment"]["GMQTTD_PLUGINS__FEDERATION__RETRY_JOIN"].split(",")
        assert [seed.split(":")[0] for seed in seeds] == list(found)


@pytest.mark.slow
def test_hadolint_finds_nothing() -> None:
    if not HADOLINT.exists():
        pytest.skip("no hadolint: scripts/setup --packages")
    # Versions of Debian's packages are those of the image's day.
    command = [str(HADOLINT), "--ignore", "DL3008", str(DOCKERFILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
