"""The configurations of the measured brokers, for one node or two.

The templates below give a reason for every setting that is not a default.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from accounts import write_accounts
from cluster import CERT, LOOPBACK, BenchFailed, Cluster, Ports, Server, find_program
from linked_brokers import linked_cluster
from rows import GMQTT, MOSQUITTO, NATS, NATS_3, NULL_RELAY, ONE_COPY, OTHER, OURS, THIS, Row

# For this broker and for the Go broker. max_queued_messages: mosquitto has no limit here either, and with the Go broker's
# default of 1000 a queue overflows under 10 publishers. max_subscriptions_per_client: a row needs 100,000; Go has no such key.
# server_receive_maximum: publishers of MQTT 5 may have as many messages on the way as those of 3.1.1, which have no such limit.
GMQTTD: Final = """\
listeners: [{{address: "127.0.0.1:{mqtt}"{anonymous}}}{listener}]
mqtt: {{max_queued_messages: 100000, max_subscriptions_per_client: 100000, server_receive_maximum: 65535}}
api:
  grpc: [{{address: "tcp://127.0.0.1:{grpc}"}}]
  http: [{{address: "tcp://127.0.0.1:{http}", map: "tcp://127.0.0.1:{grpc}"}}]
plugins:
  federation:
    node_name: {name}
    fed_addr: 127.0.0.1:{federation}
    gossip_addr: 127.0.0.1:{gossip}
    retry_join: [{join}]
    retry_interval: 1s
{node_tls}{copies}{more_keys}plugin_order: [{first}admin, federation{last}]
log: {{level: warn, format: text}}
{store}"""
STORE: Final = "data_dir: {folder}\n"
EVENT_LOG: Final = """\
  event_log: {{dir: {folder}, sync: {sync}}}
"""
ONE_COPY_KEYS: Final = "    replication: {copies: 1}\n"
# Made by `gmqttd cert` for each node.
NODE_TLS: Final = """\
    require_tls: true
    tls: {{cert: {folder}/{name}.pem, key: {folder}/{name}.key, cacert: {folder}/ca.pem, addr: "127.0.0.1:{port}"}}
"""
# The accounts and rules of accounts.py, metrics, and $SYS as often as by default. Anonymous clients are let in beside them.
SECURED: Final = """\
  auth: {{password_file: {passwords}, hash: sha256, acl_file: {acl}}}
  prometheus: {{listen_address: "127.0.0.1:{metrics}"}}
"""

# By transport: a second listener.
GMQTTD_LISTENERS: Final = {
    "": "",
    "tls": ', {{address: "127.0.0.1:{layered}", tls: {{cert: {cert}, key: {key}}}}}',
    "ws": ', {{address: "127.0.0.1:{layered}", websocket: {{path: /mqtt}}}}',
}
MOSQUITTO_LISTENERS: Final = {
    "": "",
    "tls": "listener {layered} 127.0.0.1\ncertfile {cert}\nkeyfile {key}\n",
    "ws": "listener {layered} 127.0.0.1\nprotocol websockets\n",
}

# max_queued_messages 0 (no limit): with 1000, the default, a bridge drops messages of 10 publishers.
# persistence false: this broker writes nothing to disk either. Everything else is mosquitto's default, set_tcp_nodelay false
# too: with true it takes 1.7 times the CPU (8.5 µs a message at QoS 0 instead of 5) and 50 µs of latency instead of 65.
MOSQUITTO_CONFIG: Final = """\
listener {mqtt} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
log_type error
log_type warning
"""

MOSQUITTO_SECURED: Final = "password_file {mosquitto_passwords}\nacl_file {acl}\n"

# cleansession: nothing is kept for a bridge that is disconnected. notifications: no $SYS messages beside the load.
MOSQUITTO_BRIDGE: Final = """\
connection first
address 127.0.0.1:{first}
topic # in 1
bridge_protocol_version mqttv311
cleansession true
notifications false
restart_timeout 1
"""

# NATS demands server_name and JetStream for MQTT. Two servers: a domain of its own for each keeps MQTT's streams apart. Three:
# a cluster with one domain, whose default is three replicas of MQTT's streams.
NATS_CONFIG: Final = """\
server_name: {name}
listen: "127.0.0.1:{client}"
mqtt {{ listen: "127.0.0.1:{mqtt}" }}
jetstream {{ store_dir: "{folder}"{domain} }}
"""
NATS_CLUSTER: Final = 'cluster {{ name: bench, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n'
NATS_SERVERS: Final = 3  # of that cluster
NATS_HUB: Final = 'leafnodes {{ listen: "127.0.0.1:{leaf}" }}\n'
NATS_LEAF: Final = 'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{leaf}" }} ] }}\n'


NULL_RELAY_SOURCE: Final = Path(__file__).parent / "null_relay.c"

# One line for the report.
PEER_SETTINGS: Final = (
    "defaults, but: gmqttd and the Go broker with max_queued_messages 100000 and server_receive_maximum 65535; mosquitto with "
    "max_queued_messages 0, persistence false, bridge `topic # in 1` with cleansession true and notifications false; RabbitMQ: "
    "rabbitmq_mqtt on two nodes, the second one federates amq.topic, otherwise the defaults; NATS with "
    "JetStream in a temporary folder, a domain for each server, two servers as hub and leaf node, or three as a "
    "cluster; secured: 1,000 accounts with "
    "SHA-2 hashes, an acl_file with 4,000 rules, metrics, $SYS"
)


# --- the configurations


def make_certificate(folder: Path) -> dict[str, Path]:
    """The files of a certificate for localhost that signs itself, and its key."""
    files = {"cert": folder / CERT, "key": folder / "key.pem"}
    program = find_program("openssl")
    if program is None:
        raise BenchFailed("no openssl, which makes the certificate: sudo apt-get install openssl")
    subprocess.run(
        [
            *(
                program,
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(files["key"]), "-out", str(files["cert"])),
        ],
        check=True,
        capture_output=True,
    )
    files["key"].chmod(0o644)  # mosquitto reads it as another user
    return files


def make_node_certificate(command: Path, folder: Path, *what: str) -> None:
    subprocess.run([str(command), "cert", *what, "--dir", str(folder)], check=True, capture_output=True)


def node_tls_keys(command: Path, folder: Path, name: str, ports: Ports) -> str:
    """The keys of a node with TLS to the other one, whose files are made here."""
    make_node_certificate(command, folder, "create-node", name)
    return NODE_TLS.format(folder=folder, name=name, port=ports.take())


def gmqttd_servers(
    nodes: int,
    folder: Path,
    ports: Ports,
    command: Path,
    joins_late: bool,
    log: str,
    transport: str,
    has_store: bool,
    is_secured: bool,
    node_tls: bool = False,
    copies: str = "",
) -> list[Server]:
    servers: list[Server] = []
    join = ""
    if node_tls:
        make_node_certificate(command, folder, "create-ca")
    files = make_certificate(folder) if transport == "tls" else {}
    for number in range(1, nodes + 1):
        name = f"gmqttd{number}"
        taken = {use: ports.take() for use in ("mqtt", "grpc", "http", "federation", "gossip")}
        layered = ports.take() if transport else 0
        listener = GMQTTD_LISTENERS[transport].format(layered=layered, **files)
        config = folder / f"{name}.yml"
        keys = EVENT_LOG.format(folder=folder / f"{name}-log", sync=log) if log else ""
        metrics = ports.take() if is_secured else 0
        if is_secured:
            keys += SECURED.format(metrics=metrics, **write_accounts(folder))
        text = GMQTTD.format(
            name=name,
            join=join,
            listener=listener,
            anonymous=", allow_anonymous: true" if is_secured else "",
            first="auth, prometheus, " if is_secured else "",
            last=", event_log" if log else "",
            more_keys=keys,
            node_tls=node_tls_keys(command, folder, name, ports) if node_tls else "",
            copies=copies,
            store=STORE.format(folder=folder / f"{name}-store") if has_store else "",
            **taken,
        )
        config.write_text(text)
        join = "" if joins_late else f'"{LOOPBACK}:{taken["gossip"]}"'
        start = [str(command), "start", "-c", str(config)]
        servers.append(Server(name, start, taken["mqtt"], taken["http"], taken["gossip"], layered, metrics))
    return servers


def mosquitto_servers(
    nodes: int, folder: Path, ports: Ports, command: Path, transport: str, is_secured: bool
) -> list[Server]:
    servers: list[Server] = []
    files = make_certificate(folder) if transport == "tls" else {}
    for number in range(1, nodes + 1):
        name = f"mosquitto{number}"
        mqtt = ports.take()
        layered = ports.take() if transport else 0
        text = MOSQUITTO_CONFIG.format(mqtt=mqtt) + MOSQUITTO_LISTENERS[transport].format(layered=layered, **files)
        if is_secured:
            text += MOSQUITTO_SECURED.format(**write_accounts(folder))
        if servers:
            text += MOSQUITTO_BRIDGE.format(first=servers[0].mqtt)
        config = folder / f"{name}.conf"
        config.write_text(text)
        servers.append(Server(name, [str(command), "-c", str(config)], mqtt, layered=layered))
    return servers


def nats_servers(nodes: int, folder: Path, ports: Ports, command: Path) -> list[Server]:
    servers: list[Server] = []
    leaf = ports.take()
    for number in range(1, nodes + 1):
        more = "" if nodes == 1 else (NATS_LEAF if servers else NATS_HUB).format(leaf=leaf)
        servers.append(nats_server(number, f", domain: nats{number}", more, folder, ports, command))
    return servers


def nats_cluster(folder: Path, ports: Ports, command: Path) -> Cluster:
    taken = [ports.take() for _ in range(NATS_SERVERS)]
    routes = ", ".join(f'"nats-route://{LOOPBACK}:{port}"' for port in taken)
    servers = [
        nats_server(number, "", NATS_CLUSTER.format(port=port, routes=routes), folder, ports, command)
        for number, port in enumerate(taken, 1)
    ]
    return Cluster(servers, folder, starts_together=True)


def nats_server(number: int, domain: str, more: str, folder: Path, ports: Ports, command: Path) -> Server:
    name = f"nats{number}"
    mqtt = ports.take()
    config = folder / f"{name}.conf"
    text = NATS_CONFIG.format(name=name, client=ports.take(), mqtt=mqtt, folder=folder / name, domain=domain)
    config.write_text(text + more)
    return Server(name, [str(command), "-c", str(config)], mqtt)


def null_relay(folder: Path, ports: Ports, compiler: Path) -> Server:
    """The relay, which the compiler builds anew: a moment."""
    program = folder / "null_relay"
    subprocess.run([str(compiler), "-O2", str(NULL_RELAY_SOURCE), "-o", str(program)], check=True)
    publishers, subscribers = ports.take(), ports.take()
    command = [str(program), str(publishers), str(subscribers)]
    return Server("null-relay", command, publishers, subscribers=subscribers, is_relay=True)


def make_cluster(participant: str, command: Path, folder: Path, ports: Ports, row: Row) -> Cluster:
    """Write the configuration files. Entering the cluster starts the processes. `log` of the row is for this
    checkout only."""
    nodes = row.nodes
    is_secured = participant in row.secured
    folder.mkdir(parents=True)
    if participant == MOSQUITTO:
        return Cluster(mosquitto_servers(nodes, folder, ports, command, row.transport, is_secured), folder)
    if participant == NATS:
        return Cluster(nats_servers(row.nats_servers or nodes, folder, ports, command), folder)
    if participant == NATS_3:
        return nats_cluster(folder, ports, command)
    if participant == NULL_RELAY:
        return Cluster([null_relay(folder, ports, command)], folder)
    if row.links:
        return linked_cluster(participant, command, folder, ports, row)
    assert participant in (*OURS, OTHER, GMQTT)
    log = row.log if participant == THIS else ""
    has_store = row.has_store and participant != GMQTT
    node_tls = row.node_tls and participant == THIS
    servers = gmqttd_servers(
        *(nodes, folder, ports, command, row.joins_late, log, row.transport, has_store, is_secured, node_tls),
        ONE_COPY_KEYS if participant == ONE_COPY else "",
    )
    return Cluster(servers, folder, row.joins_late)
