"""The keys of `plugins.links`: the name of this domain, and definitions that cannot be changed while the node runs."""

# not a core: stamps definitions with the time
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from broker.config.setting import Entries, EntryFault, Size, Text, Whole, extension
from broker.origin import HeaderError, check_domain
from broker.workers.shares import beside
from federation.definitions.entry import POLICY, UPSTREAM, UPSTREAM_SET, Key
from federation.definitions.error import DefinitionError
from federation.definitions.policy import doubt, parse_policy
from federation.definitions.upstream import ignored_keys, parse_upstream, parse_upstream_set

if TYPE_CHECKING:
    from broker.config.settings import Settings
    from broker.workers.shares import Place


def _check_upstream(name: str, body: Any) -> list[tuple[str, str]]:
    try:
        parse_upstream(name, body)
    except DefinitionError as error:
        raise EntryFault(error.key, error.text) from None
    return [("", text) for text in ignored_keys(body)]


def _check_set(name: str, body: Any) -> list[tuple[str, str]]:
    try:
        parse_upstream_set(name, body)
    except DefinitionError as error:
        raise EntryFault(error.key, error.text) from None
    return [("", text) for text in ignored_keys(body)]


def _check_policy(name: str, body: Any) -> list[tuple[str, str]]:
    try:
        text = doubt(parse_policy(name, body))
    except DefinitionError as error:
        raise EntryFault(error.key, error.text) from None
    return [("pattern", text)] if text else []


@dataclass(frozen=True, slots=True)
class LinksSettings:
    """Links to other brokers and clusters, as RabbitMQ's federation. The definitions of this file cannot be changed while the
    node runs; docs/upstreams-and-policies.md has their keys."""

    domain: str = extension(
        "gmqttd",
        "Name of this cluster among those that links connect: the same on all its nodes, and no other cluster's. It is "
        "part of the client identifier of each link.",
        Text("berlin", 128, is_name=True),
    )
    dir: str = extension(
        "",
        "Folder of the definitions that the API makes. It is made when its parent exists.",
        Text("/var/lib/gmqttd/links"),
        default_text="`data_dir`",
    )
    upstreams: tuple[tuple[str, Any], ...] = extension(
        (),
        "Brokers from which links take messages.",
        Entries(_check_upstream, "upstreams", "{north: {uri: mqtt://north.example.com}}", ("uri",)),
    )
    sets: tuple[tuple[str, Any], ...] = extension(
        (),
        "Upstreams that are used together. The set `all` exists by itself.",
        Entries(_check_set, "lists of upstreams", "{near: [{upstream: north}]}", ("uri",)),
    )
    policies: tuple[tuple[str, Any], ...] = extension(
        (),
        "Which topics come from which upstreams.",
        Entries(
            _check_policy,
            "policies",
            "{sensors: {pattern: sensors/#, definition: {federation-upstream-set: all}}}",
        ),
    )

    max_queues: int = extension(
        1_000,
        "Most shared groups that have a queue on a node, by policies for queues. A group beyond them gets none, unless an "
        "empty queue without members that no policy names gives way.",
        Whole(1, 100_000, 1_000),
    )
    queue_max_length: int = extension(
        100_000,
        "Most messages in the queue of a shared group whose policy has no `max-length`. The oldest are dropped.",
        Whole(1, 1_000_000_000, 100_000),
    )
    queue_max_length_bytes: int = extension(
        67_108_864,
        "Most bytes of messages in such a queue, without `max-length-bytes` in its policy.",
        Size(1024, 2**40, "64MiB"),
    )

    def for_worker(self, place: Place, settings: Settings) -> LinksSettings:
        """As `broker.workers.shares.ForWorkers`."""
        return replace(self, dir=beside(self.dir, place.index))

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Every broken rule as (key, text)."""
        try:
            check_domain(self.domain.encode())
        except HeaderError as error:
            yield "domain", error.text
        upstreams = {name: parse_upstream(name, body) for name, body in self.upstreams}
        for name, body in self.sets:
            for index, (upstream, overrides) in enumerate(parse_upstream_set(name, body).members):
                key = f"sets.{name}"
                if upstream not in upstreams:
                    yield key, f'[{index}].upstream: the file has no upstream "{upstream}"'
                    continue
                try:
                    upstreams[upstream].with_overrides(overrides)
                except DefinitionError as error:
                    yield key, str(error.below(f"[{index}]"))

    def declared(self) -> dict[Key, object]:
        """The definitions of the configuration file."""
        sections = ((UPSTREAM, self.upstreams), (UPSTREAM_SET, self.sets), (POLICY, self.policies))
        return {(component, name): body for component, section in sections for name, body in section}

    def start_warnings(self, settings: Settings, path_of: Callable[[str], str]) -> Iterator[str]:
        """As `broker.server.named_files.WarnsAtStart`: of the definitions in this file and in the folder of written ones.
        Files of TLS that are not there now fail the links that need them, and no start."""
        from federation.definitions.definitions import Definitions
        from federation.definitions.shell.stored import NO_NODE, NOT_KEPT, read_stored, stored_in
        from federation.links.shell.upstream_socket import TlsFault, client_context

        definitions = Definitions(NO_NODE, self.declared(), shares_secrets=shares_secrets(settings))
        if folder := self.dir or settings.data_dir:
            definitions.load(read_stored(stored_in(path_of(folder))), time.time())
        elif settings.api.grpc or settings.api.http:
            yield NOT_KEPT
        for what, text in definitions.warnings():
            yield f"{what}: {text}"
        faults: set[str] = set()
        for plan in definitions.resolution().links():
            for options in [plan.upstream.tls_of(uri) for uri in plan.upstream.uris if uri.is_secure]:
                try:
                    client_context(options)
                except TlsFault as fault:
                    faults.add(f'upstream "{plan.upstream.name}": {fault}')
        yield from sorted(faults)


def shares_secrets(settings: Settings) -> bool:
    """Return whether definitions with secrets go to other nodes; also where there is no federation to have any."""
    return "federation" not in settings.plugin_order or settings.plugins.federation.shares_secrets
