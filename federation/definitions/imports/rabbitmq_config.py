"""The federation section of an old `rabbitmq.config`: `connections`, `upstream_sets` and `exchanges` as Erlang terms.

A connection becomes an upstream, a set a set, a federated exchange a policy. The exchange and the virtual host of the other
side become a mapping of topics in the members of the set.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from federation.definitions.imports.amqp_uri import SCHEMES, mqtt_uri
from federation.definitions.imports.erlang_properties import Properties, items, named_items
from federation.definitions.imports.erlang_terms import Atom, Term, TermError, parse_terms
from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.namespaces import DEFAULT_VHOST, mapping_rule, topics_of
from federation.definitions.upstream import RECEIVE_MAXIMUM_MAX

SECTION: Final = "rabbitmq_federation"
SECTION_KEYS: Final = ("exchanges", "upstream_sets", "connections", "local_username", "local_nodename")
CONNECTION_KEYS: Final = (
    "host",
    "protocol",
    "port",
    "virtual_host",
    "username",
    "password",
    "mechanism",
    "prefetch_count",
    "reconnect_delay",
    "heartbeat",
    "expires",
    "message_ttl",
    "ha_policy",
    "ssl_options",
)
MEMBER_KEYS: Final = ("connection", "exchange", "max_hops")
EXCHANGE_KEYS: Final = ("exchange", "virtual_host", "type", "durable", "auto_delete", "internal", "upstream_set")
TLS_KEYS: Final = {
    "cacertfile": "cacertfile",
    "certfile": "certfile",
    "keyfile": "keyfile",
    "server_name_indication": "server-name-indication",
}
RECONNECT_DELAY: Final = 1  # seconds; the default of that plugin, not of today's
GUEST: Final = "guest"  # default user name and password of RabbitMQ


class _Member(NamedTuple):
    """exchange  of the upstream; None: the name of the federated exchange"""

    line: int
    connection: str
    exchange: str | None
    max_hops: int | float | None


class _Exchange(NamedTuple):
    line: int
    name: str
    vhost: str
    upstream_set: str


def import_config(text: str) -> Imported:
    """Translate a file. Raises ImportFault, with the line."""
    try:
        found = _Config(_section(parse_terms(text))).imported
    except TermError as error:
        raise ImportFault(str(error)) from None
    found.rank_policies()
    found.check()
    return found


def _section(terms: list[Term]) -> Term:
    """The value of `{rabbitmq_federation, [...]}`: a term by itself, or an item of the list of all applications."""
    for term in terms:
        for item in term.value if isinstance(term.value, list) else [term]:
            if isinstance(item.value, tuple) and len(item.value) == 2 and item.value[0].value == Atom(SECTION):
                return item.value[1]
    raise TermError(1, f"the file has no {{{SECTION}, [...]}}")


class _Config:
    """One section; `imported` is what it means."""

    def __init__(self, section: Term) -> None:
        self.imported = Imported()
        whole = Properties(section, SECTION)
        self._warn_unknown(whole, SECTION_KEYS)
        self._vhosts: dict[str, str | None] = {}
        connections = whole.get("connections")
        for name, term in named_items(connections, "connections") if connections else []:
            self._connection(name, Properties(term, f'connection "{name}"'))
        sets = whole.get("upstream_sets")
        self._sets = {
            name: self._members(name, term) for name, term in (named_items(sets, "upstream_sets") if sets else [])
        }
        listed = whole.get("exchanges")
        exchanges = [self._exchange(term) for term in (items(listed, "exchanges") if listed else [])]
        for name in self._sets:
            self._translate_set(name, [exchange for exchange in exchanges if exchange.upstream_set == name])
        if username := whole.text("local_username"):
            for upstream in self.imported.upstreams.values():
                upstream["local-username"] = username
        if node_name := whole.text("local_nodename"):
            text = f"local_nodename is the domain: set plugins.links.domain: {node_name} on every node of this cluster"
            self._warn(whole.line_of("local_nodename"), text)

    def _warn(self, line: int, text: str) -> None:
        self.imported.warn(f"line {line}", text)

    def _warn_unknown(self, properties: Properties, known: tuple[str, ...]) -> None:
        for line, text in properties.unknown(known):
            self._warn(line, text)

    def _connection(self, name: str, found: Properties) -> None:
        self._warn_unknown(found, CONNECTION_KEYS)
        protocol = found.word("protocol") or "amqp"
        if protocol not in SCHEMES:
            raise TermError(found.line_of("protocol"), f"{found.place}: protocol is not one of {', '.join(SCHEMES)}")
        value: dict[str, Any] = {"uri": self._uri(found, SCHEMES[protocol])}
        prefetch = found.number("prefetch_count")
        if prefetch is not None:
            value["prefetch-count"] = min(prefetch, RECEIVE_MAXIMUM_MAX)
            if prefetch > RECEIVE_MAXIMUM_MAX:
                self._warn(
                    found.line_of("prefetch_count"), f"{found.place}: prefetch_count is {RECEIVE_MAXIMUM_MAX} here"
                )
        delay = found.number("reconnect_delay")
        value["reconnect-delay"] = RECONNECT_DELAY if delay is None else delay
        for key, ours in (("expires", "expires"), ("message_ttl", "message-ttl")):
            number = found.number(key)
            if number is not None:
                value[ours] = number
        if found.get("ha_policy"):
            text = "ha_policy has no meaning here: the upstream decides whether it replicates the session of a link"
            self._warn(found.line_of("ha_policy"), f"{found.place}: {text}")
        if tls := self._tls(found, protocol):
            value["tls"] = tls
        self.imported.upstreams[name] = value
        self._vhosts[name] = found.text("virtual_host")

    def _uri(self, found: Properties, scheme: str) -> str:
        host = found.text("host")
        if host is None:
            raise TermError(found.line, f"{found.place}: host is missing")
        port = found.number("port")
        if port is not None and not (isinstance(port, int) and 0 < port < 65536):
            raise TermError(found.line_of("port"), f"{found.place}: port is not one of 1..65535")
        mechanism = found.word("mechanism") or "default"
        username, password = found.text("username"), found.text("password")
        query: list[tuple[str, str]] = []
        if mechanism == "EXTERNAL":
            query.append(("auth_mechanism", "external"))
            username = password = None
        elif mechanism not in ("default", "PLAIN", "AMQPLAIN"):
            raise TermError(found.line_of("mechanism"), f"{found.place}: mechanism is neither default nor 'EXTERNAL'")
        elif username is None:
            username, password = GUEST, password or GUEST
            self._warn(found.line, f"{found.place}: no username: the uri has guest, which was the default")
        elif password is None:
            password = GUEST
            self._warn(found.line, f"{found.place}: no password: the uri has that of guest, which was the default")
        heartbeat = found.number("heartbeat")
        if heartbeat is not None:
            query.append(("heartbeat", f"{heartbeat:g}"))
        uri, warnings = mqtt_uri(scheme, host, port, username, password, query)
        for text in warnings:
            self._warn(found.line_of("port"), f"{found.place}: {text}")
        return uri

    def _tls(self, found: Properties, protocol: str) -> dict[str, str]:
        term = found.get("ssl_options")
        if term is None:
            return {}
        options = Properties(term, f"{found.place}: ssl_options")
        self._warn_unknown(options, (*TLS_KEYS, "verify", "fail_if_no_peer_cert"))
        if options.get("fail_if_no_peer_cert"):
            line = options.line_of("fail_if_no_peer_cert")
            self._warn(line, f"{options.place}: fail_if_no_peer_cert has no meaning here: it is an option of servers")
        tls = {ours: text for key, ours in TLS_KEYS.items() if (text := options.word(key))}
        verify = options.word("verify")
        if verify:
            tls["verify"] = verify
        if protocol == "amqp":
            self._warn(found.line_of("ssl_options"), f"{options.place} are left out: the protocol is amqp, without TLS")
            return {}
        if verify is None:
            text = "without verify Erlang did not verify the certificate of the upstream; a link here does"
            self._warn(found.line_of("ssl_options"), f"{options.place}: {text}")
        return tls

    def _members(self, name: str, term: Term) -> list[_Member]:
        place = f'upstream set "{name}"'
        members = []
        for item in items(term, place):
            found = Properties(item, f"{place}: an upstream exchange")
            self._warn_unknown(found, MEMBER_KEYS)
            connection = found.text("connection")
            if connection is None:
                raise TermError(item.line, f"{found.place}: connection is missing")
            if connection not in self.imported.upstreams:
                raise TermError(found.line_of("connection"), f'{found.place}: there is no connection "{connection}"')
            members.append(_Member(item.line, connection, found.text("exchange"), found.number("max_hops")))
        return members

    def _exchange(self, term: Term) -> _Exchange:
        found = Properties(term, "an exchange")
        name = found.text("exchange")
        if name is None:
            raise TermError(term.line, "an exchange has no {exchange, NAME}")
        found.place = f'exchange "{name}"'
        self._warn_unknown(found, EXCHANGE_KEYS)
        if (kind := found.word("type")) not in (None, "topic"):
            text = f"its type is {kind}, not topic: topics here are matched as by a topic exchange"
            self._warn(found.line_of("type"), f"{found.place}: {text}")
        for key, default in (("durable", "true"), ("auto_delete", "false"), ("internal", "false")):
            if found.word(key) not in (None, default):
                self._warn(found.line_of(key), f"{found.place}: {key} has no meaning here: topics are not declared")
        upstream_set = found.text("upstream_set")
        if upstream_set is None:
            raise TermError(term.line, f"{found.place}: upstream_set is missing")
        if upstream_set not in self._sets:
            raise TermError(found.line_of("upstream_set"), f'{found.place}: there is no upstream set "{upstream_set}"')
        return _Exchange(term.line, name, found.text("virtual_host") or DEFAULT_VHOST, upstream_set)

    def _translate_set(self, name: str, exchanges: list[_Exchange]) -> None:
        """The set as it is, with the policies of its exchanges. Exchanges that need other mappings get sets of their own."""
        if not exchanges:
            for member in self._sets[name]:
                if member.exchange is not None or self._vhosts[member.connection] is not None:
                    text = (
                        "no exchange of the file has this set: give its member the mapping, exchange: UPSTREAM -> LOCAL"
                    )
                    self._warn(member.line, f'upstream set "{name}": {text}')
            self.imported.sets[name] = [self._value(member, None) for member in self._sets[name]]
        for exchange in exchanges:
            members = [self._value(member, exchange) for member in self._sets[name]]
            set_name = name
            if self.imported.sets.setdefault(name, members) != members:
                set_name = f"{name}:{_plain(exchange.name)}"
                self.imported.sets[set_name] = members
            self.imported.add_policy(
                f"line {exchange.line}",
                _plain(exchange.name),
                {
                    "pattern": topics_of(exchange.vhost, exchange.name),
                    "apply-to": "topics",
                    "priority": 0,
                    "definition": {"federation-upstream-set": set_name},
                },
            )

    def _value(self, member: _Member, exchange: _Exchange | None) -> dict[str, Any]:
        value: dict[str, Any] = {"upstream": member.connection}
        if member.max_hops is not None:
            value["max-hops"] = member.max_hops
        if exchange is not None:
            local = topics_of(exchange.vhost, exchange.name)
            upstream = topics_of(self._vhosts[member.connection] or exchange.vhost, member.exchange or exchange.name)
            if upstream != local:
                value["exchange"] = mapping_rule(upstream, local)
        return value


def _plain(name: str) -> str:
    """A name of RabbitMQ as one level of a topic, which names of definitions are."""
    return name.replace("/", ".")
