"""Bridges of mosquitto as upstreams: one for what comes in, one for what goes out.

A topic belongs to one policy here, while each bridge of mosquitto takes what it is told to. So each filter becomes a policy for
all upstreams whose filters have its topics, and the narrower one of two filters has the higher priority.
"""

from __future__ import annotations

from typing import Any, Final

from federation.definitions.imports.amqp_uri import login_of
from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.mosquitto_conf import Bridge, Option, Topic, mapping_of, parse_config, parse_topic
from federation.topics.filters import covers

PORT: Final = 1883  # mosquitto's default, with TLS too
EXPIRES_AT_ONCE: Final = 1000  # milliseconds: the shortest Session Expiry Interval that is not 0

# Keys whose values the translation reads, and old names of some.
KEYS: Final = frozenset(
    (
        "remote_username",
        "remote_password",
        "remote_clientid",
        "local_username",
        "cleansession",
        "keepalive_interval",
        "restart_timeout",
        "bridge_cafile",
        "bridge_certfile",
        "bridge_keyfile",
    )
)
OLD_NAMES: Final = {"username": "remote_username", "password": "remote_password", "clientid": "remote_clientid"}
TLS_KEYS: Final = {"bridge_cafile": "cacertfile", "bridge_certfile": "certfile", "bridge_keyfile": "keyfile"}
NO_MEANING: Final = {
    "try_private": "origin and path of a message prevent loops",
    "notification_topic": "gmqttctl links and $SYS have the state of a link",
    "notifications_local_only": "gmqttctl links and $SYS have the state of a link",
    "local_clientid": "a link has a client identifier of its own here",
    "local_password": "a link needs no password here",
    "local_cleansession": "a link needs no session here",
    "idle_timeout": "a link without interest is idle and has no connection",
    "threshold": "a link starts with the first subscription",
    "bridge_attempt_unsubscribe": "a link ends subscriptions that are not wanted any more",
    "bridge_bind_address": "the system chooses the address of this side",
    "bridge_max_packet_size": "the limits of this broker and of the upstream apply",
    "bridge_protocol_version": "a link speaks MQTT 5, and 3.1.1 where the upstream has no 5",
    "bridge_tls_version": "TLS 1.2 and later are spoken",
    "bridge_alpn": "it is not sent",
    "bridge_require_ocsp": "it is not asked",
}
# The value that says what a link does anyway ("" for none), and what it does with every other one.
FIXED: Final = {
    "bridge_insecure": (
        "false",
        "the name in the certificate is verified here; tls.server-name-indication says which it is",
    ),
    "bridge_capath": ("", "write the certificates into one file, tls.cacertfile"),
    "round_robin": ("true", "a new session takes any of the addresses, a session that exists the one that has it"),
    "start_type": ("automatic", "a link starts with the first subscription, and again after a failure"),
    "notifications": ("false", "gmqttctl links and $SYS have the state of a link"),
    "bridge_outgoing_retain": ("true", "retained messages stay retained"),
}
REFUSED: Final = dict.fromkeys(
    ("bridge_identity", "bridge_psk"), "TLS with a pre-shared key is not possible: use certificates"
)


def import_bridges(text: str) -> Imported:
    """Translate the bridges of a file. Raises ImportFault, with the line."""
    found = parse_config(text)
    imported = Imported()
    for line in found.includes:
        imported.warn(f"line {line}", "include_dir: the files there are not read; import them one by one")
    if not found.bridges:
        raise ImportFault("the file has no bridge: no line begins with connection")
    wanted: list[tuple[str, Topic]] = []
    for bridge in found.bridges:
        wanted += _Bridge(bridge, imported).upstreams()
    _add_policies(imported, wanted)
    imported.check()
    return imported


class _Bridge:
    def __init__(self, bridge: Bridge, imported: Imported) -> None:
        self._imported = imported
        self._bridge = bridge
        self._name = bridge.name.replace("/", ".")
        self._options: dict[str, Option] = {}
        self._addresses: list[Option] = []
        self._topics: list[Topic] = []
        for option in bridge.options:
            self._read(option)

    def _read(self, option: Option) -> None:
        if option.key == "topic":
            self._topics.append(parse_topic(option))
        elif option.key in ("address", "addresses"):
            self._addresses.append(option)
        elif option.key in KEYS | OLD_NAMES.keys() | FIXED.keys():
            if not option.text:
                raise ImportFault(f"line {option.line}: {option.key} has no value")
            self._options[OLD_NAMES.get(option.key, option.key)] = option
        elif option.key in REFUSED:
            raise ImportFault(f"line {option.line}: {option.key}: {REFUSED[option.key]}")
        elif option.key in NO_MEANING:
            self._warn(option.line, f"{option.key} has no effect: {NO_MEANING[option.key]}")
        else:
            self._warn(option.line, f"{option.key} is left out: it is no key of a bridge")

    def _warn(self, line: int, text: str) -> None:
        self._imported.warn(f'line {line} (connection "{self._bridge.name}")', text)

    def _text(self, key: str) -> str | None:
        option = self._options.get(key)
        return option.text if option else None

    def upstreams(self) -> list[tuple[str, Topic]]:
        """Add the upstreams of the bridge, and return (name, line) for each line that an upstream carries."""
        common = self._common()
        if not self._topics:
            self._warn(self._bridge.line, "it has no topic: no policy uses its upstream")
            self._imported.upstreams[self._name] = common
        directions = [way for way in ("in", "out") if any(topic.goes(way) for topic in self._topics)]
        wanted = []
        for direction in directions:
            name = self._name if direction == "in" or len(directions) == 1 else f"{self._name}-out"
            topics = [topic for topic in self._topics if topic.goes(direction)]
            value = {**common}
            if client_id := self._text("remote_clientid"):
                value["consumer-tag"] = client_id if name == self._name else f"{client_id}-out"
            if direction == "out":
                value["direction"] = "out"
            if all(topic.qos == 0 for topic in topics):
                value["ack-mode"] = "no-ack"
            if rules := mapping_of(topics):
                value["exchange"] = rules if len(rules) > 1 else rules[0]
            self._imported.upstreams[name] = value
            wanted += [(name, topic) for topic in topics]
            self._warn_qos(topics)
        for topic in self._topics:
            if topic.direction == "both" and topic.local == topic.remote:
                text = "topic both without prefixes: an upstream that drops user properties (MQTT 3.1.1) sends back what it got"
                self._warn(topic.line, text)
        return wanted

    def _warn_qos(self, topics: list[Topic]) -> None:
        for topic in topics:
            if topic.qos == 2:
                self._warn(topic.line, "QoS 2 crosses a link as QoS 1, and a window drops duplicates")
            elif topic.qos == 0 and any(other.qos for other in topics):
                self._warn(
                    topic.line, "its QoS 0 is that of the connection's other topics: messages keep the QoS they have"
                )

    def _common(self) -> dict[str, Any]:
        """The keys that both directions have. Settings that mean something else here warn."""
        value: dict[str, Any] = {"uri": self._uris()}
        tls = {ours: option.text for key, ours in TLS_KEYS.items() if (option := self._options.get(key))}
        if tls:
            value["tls"] = tls
        for key, (value_here, text) in FIXED.items():
            fixed = self._options.get(key)
            if fixed is not None and fixed.text != value_here:
                self._warn(fixed.line, f"{key} has no effect: {text}")
        if (delays := self._options.get("restart_timeout")) is not None:
            value["reconnect-delay"] = _whole(delays, delays.words[0])
            if len(delays.words) > 1:
                self._warn(
                    delays.line, "restart_timeout: the second number has no effect: a link has its own longest delay"
                )
        if self._text("cleansession") == "true":
            value["expires"] = EXPIRES_AT_ONCE
        if username := self._text("local_username"):
            value["local-username"] = username
        return value

    def _uris(self) -> str | list[str]:
        hosts = [(option.line, word) for option in self._addresses for word in option.words]
        if not hosts:
            raise ImportFault(f'line {self._bridge.line}: connection "{self._bridge.name}" has no address')
        scheme = "mqtts" if {"bridge_cafile", "bridge_capath"} & set(self._options) else "mqtt"
        keep_alive = self._options.get("keepalive_interval")
        query = f"?heartbeat={_whole(keep_alive, keep_alive.text)}" if keep_alive else ""
        login = login_of(self._text("remote_username"), self._text("remote_password"))
        uris = [f"{scheme}://{login}{_host_and_port(line, word)}{query}" for line, word in hosts]
        if len(uris) > 1 and self._text("round_robin") != "true":
            self._warn(hosts[0][0], "the first address is not preferred: a new session takes any of them")
        return uris if len(uris) > 1 else uris[0]


def _add_policies(imported: Imported, wanted: list[tuple[str, Topic]]) -> None:
    """A policy for each filter, for all upstreams that carry all of its topics."""
    first_names = {topic.local: name.removesuffix("-out") for name, topic in reversed(wanted)}
    counts: dict[str, int] = {}
    for local in dict.fromkeys(topic.local for _, topic in wanted):
        base = first_names[local]
        counts[base] = counts.get(base, 0) + 1
        is_alone = list(first_names.values()).count(base) == 1
        name = base if is_alone else f"{base}-{counts[base]}"
        found = list(
            dict.fromkeys(upstream for upstream, topic in wanted if covers(topic.local.encode(), local.encode()))
        )
        place = f'policy "{name}"'
        if len(found) > 1:
            imported.sets[name] = [{"upstream": upstream} for upstream in found]
            imported.add_policy(place, name, local, "federation-upstream-set", name)
        else:
            imported.add_policy(place, name, local, "federation-upstream", found[0])
    imported.rank_policies()


def _whole(option: Option, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ImportFault(f"line {option.line}: {option.key} is not a whole number of seconds")
    return int(text)


def _host_and_port(line: int, text: str) -> str:
    """`HOST:PORT`, an IPv6 address in brackets. mosquitto cuts at the last colon."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(PORT)
    if not port.isdigit() or not host:
        raise ImportFault(f"line {line}: address is HOST or HOST:PORT")
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
