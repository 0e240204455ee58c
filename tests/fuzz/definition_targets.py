"""Definitions of links: bodies of the API, their file, what other members send of them, mappings, and imports."""

from __future__ import annotations

import contextlib
import json
from random import Random
from typing import Any, Final

from google.protobuf.message import DecodeError

from federation.definitions.definitions import Definitions, parse
from federation.definitions.document import DocumentFault, read_document, write_document
from federation.definitions.entry import COMPONENTS, POLICY, UPSTREAM, UPSTREAM_SET
from federation.definitions.error import DefinitionError
from federation.definitions.exchange import Exchange, ExchangeError, answer
from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.mosquitto_bridges import import_bridges
from federation.definitions.imports.rabbitmq_config import import_config
from federation.definitions.imports.rabbitmq_definitions import import_definitions
from federation.definitions.pb import definitions_pb2
from federation.links.ownership import Ownership
from federation.links.ownership_table import Phase, Row, Table
from federation.links.pb import link_status_pb2
from federation.links.shell.owners import read_table, write_table
from federation.topics.filters import covers
from federation.topics.mapping import MappingError, TopicMapping
from fuzz_target import Target, joined, separated
from mutation import mutated
from ownership_world import member, phases
from rabbitmq_guide import GUIDE

SECRET: Final = "HIDEME"
NOW: Final = 1_800_000_000.0
RULES: Final = (
    "eu/# -> {#}",
    "# -> from/eu/{#}",
    "a/+/b/# -> x/{1}/{#}",
    "+/+ -> {2}/{1}",
    "a -> b",
    "+/# -> x/{1}/{#}",
)
UPSTREAMS: Final[tuple[dict[str, Any], ...]] = (
    {"uri": f"mqtt://user:{SECRET}@north.example.com"},
    {
        "uri": [f"mqtts://u:{SECRET}@[::1]:8883?heartbeat=5&verify=verify_none", "wss://h/path"],
        "prefetch-count": 10,
        "ack-mode": "on-publish",
        "reconnect-delay": 0.5,
        "max-hops": 2,
        "expires": 3600000,
        "message-ttl": 1000,
        "exchange": list(RULES[:1]),
        "tls": {"verify": "verify_peer", "cacertfile": "/ca"},
    },
    {"uri": "ws://h", "direction": "out", "interest": "all", "local-username": "x", "resource-cleanup-mode": "never"},
    {"uri": "mqtt://h", "queue": "$share/g/jobs/#", "consumer-tag": "tag", "trust-user-id": False, "bind-nowait": True},
)
SETS: Final = ([{"upstream": "a"}, {"upstream": "b", "prefetch-count": 5}],)
POLICIES: Final[tuple[dict[str, Any], ...]] = (
    {"pattern": "t/#", "definition": {"federation-upstream-set": "all"}},
    {"pattern": "+/a", "apply-to": "topics", "priority": 3, "definition": {"federation-upstream": "a"}},
    {"pattern": "$share/+/jobs/#", "definition": {"federation-upstream-pattern": "^a.*", "max-length": 10}},
    {"pattern": "$share/g/jobs/#", "definition": {"message-ttl": 5000, "overflow": "drop-head"}},
)
BODIES: Final = (
    *((UPSTREAM, body) for body in UPSTREAMS),
    *((UPSTREAM_SET, body) for body in SETS),
    *((POLICY, body) for body in POLICIES),
)
JSON_PIECES: Final = (
    *(b'null,|true|-1|1e999|"|{|}|[|]|,|:|""|"\\ud800"|"a":|99999999999999999999|NaN|"\\u0000"'.split(b"|")),
    *(f'"{key}":'.encode() for key in (*UPSTREAMS[1], *UPSTREAMS[3], *POLICIES[1])),
    *(json.dumps(rule).encode() for rule in RULES),
)


def seeds_of_bodies() -> list[bytes]:
    """component u8 | name u8 | JSON for each."""
    return [
        bytes((COMPONENTS.index(component), 97 + number % 3)) + json.dumps(body).encode()
        for number, (component, body) in enumerate(BODIES)
    ]


def filled(node: str) -> Definitions:
    """Some definitions of each kind."""
    definitions = Definitions(node)
    for name, body in zip("ab", UPSTREAMS, strict=False):
        definitions.put(UPSTREAM, name, body, NOW)
    definitions.put(UPSTREAM_SET, "s", SETS[0], NOW)
    definitions.put(POLICY, "p", POLICIES[0], NOW)
    return definitions


def check(definitions: Definitions) -> None:
    """What is there has a meaning, is told without secrets, and outlives its file."""
    resolution = definitions.resolution()
    told = [*definitions.problems(), *definitions.collisions(), *definitions.copies()]
    for topic in (b"t/a", b"a", b"jobs/x"):
        resolution.explain(topic)
    told += [
        str(definitions.read(component, name)) for component in COMPONENTS for name in definitions.names(component)
    ]
    resolution.links()
    for text in told:
        assert SECRET not in text, text
    again = Definitions(definitions.node)
    again.merge(read_document(write_document(definitions.entries())), NOW)
    assert again.digest() == definitions.digest()
    assert again.resolution().links() == resolution.links()


class DefinitionTarget(Target):
    """Bodies that are written one after the other. Only DefinitionError is raised, with nothing of a password; what was written
    resolves to links, and a node that reads the file runs the same ones."""

    def __init__(self) -> None:
        super().__init__(seeds_of_bodies(), JSON_PIECES)

    def make(self, rng: Random) -> bytes:
        chosen = [rng.choice(self.seeds) for _ in range(rng.randint(1, 5))]
        return joined([mutated(rng, body, self.seeds, self.pieces) if rng.random() < 0.6 else body for body in chosen])

    def run(self, data: bytes) -> None:
        definitions = Definitions("n")
        for part in separated(data):
            if len(part) < 2:
                continue
            component, name = COMPONENTS[part[0] % len(COMPONENTS)], chr(part[1])
            try:
                value = json.loads(part[2:])
            except (ValueError, RecursionError):
                continue
            try:
                warnings = definitions.put(component, name, value, NOW)
            except DefinitionError:
                continue
            assert SECRET not in str(warnings), warnings
            assert parse(component, name, definitions.get(component, name))
        check(definitions)


class DefinitionFileTarget(Target):
    """The file of definitions. Only DocumentFault is raised."""

    def __init__(self) -> None:
        super().__init__([write_document(filled("n").entries()), b""], JSON_PIECES)

    def run(self, data: bytes) -> None:
        try:
            entries = read_document(data)
        except DocumentFault:
            return
        definitions = Definitions("n")
        definitions.merge(entries, NOW)
        check(definitions)


class MappingTarget(Target):
    """Rules, one a line. Only MappingError is raised; what comes in goes out again as it was, and filters follow topics."""

    TOPICS: Final = (b"a", b"eu/a", b"a/x/b/c", b"a/x/b", b"x/y", b"/", b"eu/", b"$SYS/a", b"a//b", b"from/eu/a", b"b")
    FILTERS: Final = (b"#", b"a", b"+/+", b"x/#", b"x/+/#", b"a/#", b"+/b", b"from/#", b"/", b"b")

    def __init__(self) -> None:
        super().__init__(
            [rule.encode() for rule in RULES], (b"{1}", b"{2}", b"{#}", b"+", b"#", b"/", b" -> ", b"$", b"\n")
        )

    def run(self, data: bytes) -> None:
        try:
            mapping = TopicMapping(data.decode("utf-8", "surrogateescape").splitlines())
        except MappingError:
            return
        for topic in self.TOPICS:
            local = mapping.map_in(topic)
            if local is not None:
                assert mapping.map_out(local) == topic, f"{topic!r} comes back as {mapping.map_out(local)!r}"
                for topic_filter in self.FILTERS:
                    if covers(topic_filter, local):
                        found = mapping.map_filter_out(topic_filter)
                        assert any(covers(each, topic) for each in found), (
                            f"{topic_filter!r} does not ask for {topic!r}"
                        )
            upstream = mapping.map_out(topic)
            assert upstream is None or mapping.map_in(upstream) == topic


class ImportTarget(Target):
    """kind u8 | text of RabbitMQ or mosquitto. Only ImportFault is raised; a node takes what was imported."""

    RABBITMQ: Final = json.dumps(
        {
            "parameters": [
                {"component": UPSTREAM, "name": "up", "vhost": "/", "value": {"uri": f"amqp://u:{SECRET}@h/v"}},
                {"component": UPSTREAM, "name": "u2", "vhost": "v", "value": {"uri": ["amqps://h"], "max-hops": 2}},
                {"component": UPSTREAM_SET, "name": "s", "vhost": "/", "value": [{"upstream": "up", "exchange": "x"}]},
            ],
            "policies": [
                {
                    "vhost": "/",
                    "name": "p",
                    "pattern": "^(a|b)\\.[^.]+\\..*$",
                    "apply-to": "exchanges",
                    "priority": 1,
                    "definition": {"federation-upstream-set": "all"},
                },
                {"vhost": "v", "name": "q", "pattern": "^amq\\.", "definition": {"federation-upstream": "up"}},
            ],
        }
    ).encode()
    MOSQUITTO: Final = f"""\
persistence true
connection cloud
address broker.example.com:1884 [::1]
topic sensors/# out 1
topic commands/# in 1 site/ eu/
topic a both 2 "" x/
remote_username user
remote_password {SECRET}
remote_clientid site-7
keepalive_interval 30
restart_timeout 10 60
bridge_cafile /ca
cleansession true
""".encode()

    def __init__(self) -> None:
        guide = GUIDE.encode()
        lines = (*guide.splitlines(keepends=True), *self.MOSQUITTO.splitlines(keepends=True))
        pieces = tuple(line for line in lines if len(line) < 100)
        seeds = [b"\0" + guide, b"\1" + self.RABBITMQ, b"\2" + self.MOSQUITTO]
        super().__init__(seeds, (*pieces, b"[", b"]", b"{", b"}", b"'", b'"', b"<<", b"16#ff", b"$a", b"%", b"(", b"|"))

    def run(self, data: bytes) -> None:
        kind = data[0] % 3 if data else 0
        text = data[1:].decode("utf-8", "replace")
        try:
            found = self._imported(kind, text)
        except ImportFault:
            return
        found.has_passwords()
        document = found.document()
        items = [(item["component"], item["name"], item["value"]) for item in document["parameters"]]
        items += [
            (POLICY, item["name"], {key: value for key, value in item.items() if key != "name"})
            for item in document["policies"]
        ]
        definitions = Definitions("n")
        try:
            definitions.put_all(items, NOW)
        except DefinitionError as error:  # a warning has told that: the node may have the upstream already
            if "there is no upstream" not in error.text:
                raise
        definitions.resolution().links()

    @staticmethod
    def _imported(kind: int, text: str) -> Imported:
        if kind == 0:
            return import_config(text)
        return import_definitions(text, "all") if kind == 1 else import_bridges(text)


class MemberTarget(Target):
    """What a member of the cluster sends about definitions and owners: kind u8 | message. It is read or refused, and the
    node goes on with others."""

    def __init__(self) -> None:
        other = filled("other")
        request = Exchange(other).request()
        assert request is not None
        found = answer(other, request, NOW)
        tables = [
            Table("b", 1, serial, (Row("0", Phase(phase), epoch), Row("1", Phase.ABLE, 0)))
            for serial, (phase, epoch) in enumerate([(1, 0), (2, 200), (3, 99), (4, 2**60)], 1)
        ]
        super().__init__(
            [
                b"\0" + request.SerializeToString(),
                b"\1" + answer(other, type(request)(digests=range(64)), NOW).SerializeToString(),
                b"\1" + found.SerializeToString(),
                *(
                    bytes((2 + number % 2,)) + write_table(table).SerializeToString()
                    for number, table in enumerate(tables)
                ),
            ]
        )

    def make(self, rng: Random) -> bytes:
        chosen = [rng.choice(self.seeds) for _ in range(rng.randint(1, 4))]
        return joined([mutated(rng, part, self.seeds) if rng.random() < 0.8 else part for part in chosen])

    def run(self, data: bytes) -> None:
        definitions = filled("n")
        ownership = member()
        ownership.set_links(["0", "1"], 0.0)
        ownership.set_members(["b", "c"], 0.0)
        for now, part in enumerate(separated(data), 1):
            if part[:1] < b"\2":
                self._exchange(definitions, part)
            else:
                self._tell(ownership, part, float(now))
        check(definitions)
        definitions.put(POLICY, "mine", POLICIES[1], NOW)
        assert definitions.read(POLICY, "mine") == POLICIES[1]
        for now in range(10, 200):
            ownership.handle_timeout(float(now))
            ownership.take_orders()
            ownership.take_tables(float(now))
        ownership.set_members([], 200.0)
        ownership.handle_timeout(240.0)
        assert phases(ownership) == {"0": Phase.RUNS, "1": Phase.RUNS}, "alone, it runs all links"

    def _exchange(self, definitions: Definitions, part: bytes) -> None:
        with contextlib.suppress(DecodeError, ExchangeError):
            if part[:1] == b"\0":
                answer(definitions, definitions_pb2.ExchangeRequest.FromString(part[1:]), NOW).SerializeToString()
            else:
                exchange = Exchange(definitions)
                exchange.receive(definitions_pb2.ExchangeAnswer.FromString(part[1:]), NOW)
                request = exchange.request()
                if request is not None:
                    request.SerializeToString()

    def _tell(self, ownership: Ownership, part: bytes, now: float) -> None:
        with contextlib.suppress(DecodeError, ValueError):
            table = read_table(link_status_pb2.OwnerTable.FromString(part[1:]))
            ownership.take_tables(now)
            if part[:1] == b"\2":
                write_table(ownership.handle_table(table, now)).SerializeToString()
            else:
                ownership.handle_answer("b", table.serial, table, now)
