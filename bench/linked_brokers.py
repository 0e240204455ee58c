"""The configurations of linked brokers: clusters of one node each; the second one takes messages from the first one."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, Final

from cluster import LOOPBACK, BenchFailed, Cluster, Ports, Server, find_program
from rows import AWAY, MANY, NO_LINK, PAIR, POLICIES, RABBITMQ, THIS, UPSTREAMS, Row

RABBITMQ_FOLDER: Final = Path("/usr/lib/rabbitmq/bin")  # in PATH there is a program that changes the user

# max_queued_messages: as in brokers.py. max_subscriptions_per_client: a row needs 100,000.
NODE: Final = """\
listeners: [{{address: "127.0.0.1:{mqtt}"}}]
mqtt: {{max_queued_messages: 100000, max_subscriptions_per_client: 200000}}
{links}log: {{level: warn, format: text}}
{store}"""

RABBITMQ_CONFIG: Final = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}
load_definitions = {definitions}
log.console = true
log.console.level = error
log.file = false
"""
RABBITMQ_PLUGINS: Final = "[rabbitmq_mqtt,rabbitmq_federation].\n"
RABBITMQ_ACCOUNT: Final = "guest"  # that of MQTT clients that give none; its password is the same


def linked_cluster(participant: str, command: Path, folder: Path, ports: Ports, row: Row) -> Cluster:
    if participant == RABBITMQ:
        return rabbitmq_cluster(folder, ports, command)
    has_store = row.has_store and participant == THIS
    upstream = gmqttd("upstream", folder, ports, command, {}, has_store)
    if participant == NO_LINK:
        return Cluster([upstream], folder)
    mqtt = ports.take() if row.links == AWAY else upstream.mqtt
    downstream = gmqttd("downstream", folder, ports, command, links_plugin(row.links, mqtt), has_store)
    if row.links == AWAY:
        return Cluster([downstream], folder)
    if row.links == MANY:
        return Cluster([upstream], folder, later=downstream)
    assert row.links == PAIR
    return Cluster([upstream, downstream], folder)


def gmqttd(name: str, folder: Path, ports: Ports, command: Path, links: dict[str, Any], has_store: bool) -> Server:
    mqtt = ports.take()
    plugins = {"plugin_order": ["links"], "plugins": {"links": links}} if links else {"plugin_order": []}
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in plugins.items())  # JSON is YAML
    store = f"data_dir: {folder / name}-store\n" if has_store else ""
    config = folder / f"{name}.yml"
    config.write_text(NODE.format(mqtt=mqtt, links=lines, store=store))
    return Server(name, [str(command), "start", "-c", str(config)], mqtt)


def links_plugin(kind: str, mqtt: int) -> dict[str, Any]:
    """The definitions of the second cluster. The upstream listens on this port, or is away."""
    uri = f"mqtt://{LOOPBACK}:{mqtt}"
    if kind == MANY:
        return {
            "domain": "second",
            "upstreams": {f"upstream-{number}": {"uri": uri} for number in range(UPSTREAMS)},
            "policies": {
                f"policy-{number}": {
                    "pattern": f"area-{number:02d}/#",
                    "definition": {"federation-upstream-set": "all"},
                }
                for number in range(POLICIES)
            },
        }
    delay = {"reconnect-delay": 0.1} if kind == AWAY else {}
    return {
        "domain": "second",
        "upstreams": {"first": {"uri": uri, **delay}},
        "policies": {"all": {"pattern": "#", "definition": {"federation-upstream": "first"}}},
    }


# --- RabbitMQ


def rabbitmq_version() -> str:
    """From the name of its folder: rabbitmqctl would start Erlang's epmd and leave it behind."""
    found = sorted(RABBITMQ_FOLDER.parent.glob("lib/rabbitmq_server-*"))
    return found[-1].name if found else "?"


def rabbitmq_cluster(folder: Path, ports: Ports, command: Path) -> Cluster:
    """Two single nodes. The exchange amq.topic, which has the messages of MQTT, is federated at the second one."""
    epmd = find_program("epmd")
    if epmd is None:
        raise BenchFailed("no epmd, which Erlang nodes need: sudo apt-get install erlang-base")
    epmd_port = ports.take()
    servers: list[Server] = []
    amqp_first = 0
    for number in (1, 2):
        name = f"rabbitmq{number}"
        home = folder / name
        home.mkdir()
        mqtt, amqp = ports.take(), ports.take()
        definitions = home / "definitions.json"
        definitions.write_text(json.dumps(rabbitmq_definitions(amqp_first)))
        (home / "rabbitmq.conf").write_text(RABBITMQ_CONFIG.format(amqp=amqp, mqtt=mqtt, definitions=definitions))
        (home / "enabled_plugins").write_text(RABBITMQ_PLUGINS)
        settings = {
            "HOME": home,
            "RABBITMQ_NODENAME": f"{name}-{mqtt}@localhost",
            "RABBITMQ_DIST_PORT": ports.take(),
            "RABBITMQ_CONFIG_FILE": home / "rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": home / "enabled_plugins",
            "RABBITMQ_MNESIA_BASE": home,
            "RABBITMQ_LOG_BASE": home,
            "RABBITMQ_PID_FILE": home / "pid",
            "ERL_EPMD_PORT": epmd_port,
            "ERL_EPMD_ADDRESS": LOOPBACK,
        }
        variables = [f"{key}={value}" for key, value in settings.items()]
        servers.append(Server(name, ["env", *variables, str(command)], mqtt))
        amqp_first = amqp_first or amqp
    return Cluster(servers, folder, helper=[epmd, "-port", str(epmd_port), "-address", LOOPBACK])


def rabbitmq_definitions(upstream: int) -> dict[str, Any]:
    """An account for all clients, and the link to the upstream with this AMQP port; 0 for none."""
    account = RABBITMQ_ACCOUNT
    salt = bytes(4)
    password_hash = base64.b64encode(salt + hashlib.sha256(salt + account.encode()).digest()).decode()
    found: dict[str, Any] = {
        "users": [
            {
                "name": account,
                "password_hash": password_hash,
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "administrator",
            }
        ],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": account, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
    }
    if upstream:
        uri = f"amqp://{account}:{account}@{LOOPBACK}:{upstream}"
        link = {"component": "federation-upstream", "vhost": "/", "name": "first", "value": {"uri": uri}}
        policy = {
            "vhost": "/",
            "name": "all",
            "pattern": "^amq\\.topic$",
            "apply-to": "exchanges",
            "priority": 0,
            "definition": {"federation-upstream": "first"},
        }
        found |= {"parameters": [link], "policies": [policy]}
    return found
