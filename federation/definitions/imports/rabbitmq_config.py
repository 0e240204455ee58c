"""The federation section of an old `rabbitmq.config`: `connections`, `upstream_sets` and `exchanges` as Erlang terms.

A connection becomes an upstream, a set a set, a federated exchange a policy. The exchange and the virtual host of the other
side become a mapping of topics in the members of the set.
"""

from __future__ import annotations

from typing import Any, Final

from federation.definitions.imports.amqp_uri import SCHEMES, mqtt_uri
from federation.definitions.imports.erlang_properties import Properties, items
from federation.definitions.imports.erlang_terms import Atom, Term, TermError, parse_terms
from federation.definitions.imports.imported import Imported, ImportFault
from federation.definitions.imports.namespaces import DEFAULT_VHOST, mapping_rule, topics_of
from federation.definitions.upstream import RECEIVE_MAXIMUM_MAX

SECTION: Final = "rabbitmq_federation"
TLS_KEYS: Final = {
    "cacertfile": "cacertfile",
    "certfile": "certfile",
    "keyfile": "keyfile",
    "server_name_indication": "server-name-indication",
    "verify": "verify",
}
RECONNECT_DELAY: Final = 1  # seconds; the default of that plugin, not of today's
GUEST: Final = "guest"  # default user name and password of RabbitMQ


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
        self._lists: list[Properties] = []
        whole = self._properties(section, SECTION)
        self._vhosts: dict[str, str | None] = {}
        for name, term in whole.named("connections").items():
            self._connection(name, self._properties(term, f'connection "{name}"'))
        self._sets = {name: self._members(name, term) for name, term in whole.named("upstream_sets").items()}
        exchanges = [self._exchange(term) for term in whole.items("exchanges")]
        for name in self._sets:
            self._translate_set(name, [found for found in exchanges if found.text("upstream_set") == name])
        if username := whole.text("local_username"):
            for upstream in self.imported.upstreams.values():
                upstream["local-username"] = username
        if node_name := whole.text("local_nodename"):
            text = f"local_nodename is the domain: set plugins.links.domain: {node_name} on every node of this cluster"
            self._warn(whole.line_of("local_nodename"), text)
        for found in self._lists:
            for line, text in found.unread():
                self._warn(line, text)

    def _warn(self, line: int, text: str) -> None:
        self.imported.warn(f"line {line}", text)

    def _warn_key(self, found: Properties, key: str, text: str) -> None:
        self._warn(found.line_of(key), f"{found.place}: {text}")

    def _properties(self, term: Term, place: str) -> Properties:
        self._lists.append(Properties(term, place))
        return self._lists[-1]

    def _connection(self, name: str, found: Properties) -> None:
        protocol = found.word("protocol") or "amqp"
        if protocol not in SCHEMES:
            raise TermError(found.line_of("protocol"), f"{found.place}: protocol is not one of {', '.join(SCHEMES)}")
        value: dict[str, Any] = {"uri": self._uri(found, SCHEMES[protocol])}
        prefetch = found.number("prefetch_count")
        if prefetch is not None:
            value["prefetch-count"] = min(prefetch, RECEIVE_MAXIMUM_MAX)
            if prefetch > RECEIVE_MAXIMUM_MAX:
                self._warn_key(found, "prefetch_count", f"prefetch_count is {RECEIVE_MAXIMUM_MAX} here")
        delay = found.number("reconnect_delay")
        value["reconnect-delay"] = RECONNECT_DELAY if delay is None else delay
        for key, ours in (("expires", "expires"), ("message_ttl", "message-ttl")):
            number = found.number(key)
            if number is not None:
                value[ours] = number
        if found.get("ha_policy"):
            text = "ha_policy has no meaning here: the upstream decides whether it replicates the session of a link"
            self._warn_key(found, "ha_policy", text)
        if tls := self._tls(found, protocol):
            value["tls"] = tls
        self.imported.upstreams[name] = value
        self._vhosts[name] = found.text("virtual_host")

    def _uri(self, found: Properties, scheme: str) -> str:
        host = found.required("host")
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
            self._warn_key(found, "port", text)
        return uri

    def _tls(self, found: Properties, protocol: str) -> dict[str, str]:
        term = found.get("ssl_options")
        if term is None:
            return {}
        options = self._properties(term, f"{found.place}: ssl_options")
        if options.get("fail_if_no_peer_cert"):
            text = "fail_if_no_peer_cert has no meaning here: it is an option of servers"
            self._warn_key(options, "fail_if_no_peer_cert", text)
        tls = {ours: word for key, ours in TLS_KEYS.items() if (word := options.word(key))}
        if protocol == "amqp":
            self._warn(found.line_of("ssl_options"), f"{options.place} are left out: the protocol is amqp, without TLS")
            return {}
        if "verify" not in tls:
            text = "without verify Erlang did not verify the certificate of the upstream; a link here does"
            self._warn(found.line_of("ssl_options"), f"{options.place}: {text}")
        return tls

    def _members(self, name: str, term: Term) -> list[Properties]:
        place = f'upstream set "{name}"'
        members = [self._properties(item, f"{place}: an upstream exchange") for item in items(term, place)]
        for found in members:
            connection = found.required("connection")
            if connection not in self.imported.upstreams:
                raise TermError(found.line_of("connection"), f'{found.place}: there is no connection "{connection}"')
        return members

    def _exchange(self, term: Term) -> Properties:
        found = self._properties(term, "an exchange")
        found.place = f'exchange "{found.required("exchange")}"'
        if (kind := found.word("type")) not in (None, "topic"):
            text = f"its type is {kind}, not topic: topics here are matched as by a topic exchange"
            self._warn_key(found, "type", text)
        for key, default in (("durable", "true"), ("auto_delete", "false"), ("internal", "false")):
            if found.word(key) not in (None, default):
                self._warn_key(found, key, f"{key} has no meaning here: topics are not declared")
        upstream_set = found.required("upstream_set")
        if upstream_set not in self._sets:
            raise TermError(found.line_of("upstream_set"), f'{found.place}: there is no upstream set "{upstream_set}"')
        return found

    def _translate_set(self, name: str, exchanges: list[Properties]) -> None:
        """The set as it is, with the policies of its exchanges. Exchanges that need other mappings get sets of their own."""
        members = self._sets[name]
        if not exchanges:
            for member in members:
                if member.get("exchange") or self._vhosts[member.required("connection")] is not None:
                    text = (
                        "no exchange of the file has this set: give its member the mapping, exchange: UPSTREAM -> LOCAL"
                    )
                    self._warn(member.line, f'upstream set "{name}": {text}')
            self.imported.sets[name] = [_value(member) for member in members]
        for exchange in exchanges:
            exchange_name = exchange.required("exchange")
            vhost = exchange.text("virtual_host") or DEFAULT_VHOST
            local = topics_of(vhost, exchange_name)
            values = [_value(member) for member in members]
            for value, member in zip(values, members, strict=True):
                upstream_vhost = self._vhosts[value["upstream"]] or vhost
                upstream = topics_of(upstream_vhost, member.text("exchange") or exchange_name)
                if upstream != local:
                    value["exchange"] = mapping_rule(upstream, local)
            plain = exchange_name.replace("/", ".")  # names of definitions are one level of a topic
            set_name = name
            if self.imported.sets.setdefault(name, values) != values:
                set_name = f"{name}:{plain}"
                self.imported.sets[set_name] = values
            self.imported.add_policy(f"line {exchange.line}", plain, local, "federation-upstream-set", set_name)


def _value(member: Properties) -> dict[str, Any]:
    """A member of a set, without a mapping."""
    max_hops = member.number("max_hops")
    return {"upstream": member.required("connection")} | ({} if max_hops is None else {"max-hops": max_hops})
