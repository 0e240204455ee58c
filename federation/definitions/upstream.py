"""An upstream: another broker or cluster that links take messages from, with the keys and defaults of RabbitMQ; and sets of
upstreams: `[{"upstream": NAME, KEY: OVERRIDE, …}, …]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from broker.errors import MqttError
from broker.routing.names import check_topic_filter, parse_filter
from federation.definitions.error import (
    DefinitionError,
    Readers,
    check_name,
    read_fields,
    read_flag,
    read_number,
    read_text,
    read_whole,
    read_word,
    shown,
)
from federation.definitions.uri import EXAMPLE, VERIFY, LinkUri, is_host, parse_uri
from federation.topics.mapping import RULES_MAX, MappingError, TopicMapping

URIS_MAX: Final = 16  # of one upstream
HOPS_MAX: Final = 255
RECEIVE_MAXIMUM_MAX: Final = 65535
SECONDS_MAX: Final = 0xFFFF_FFFE  # of Session Expiry Interval; 0xFFFFFFFF means never [MQTT5 3.1.2.11.2]
DELAY_MIN: Final = 0.1  # also for a reconnect-delay of 0, with which RabbitMQ tries again at once
DELAY_MAX: Final = 86_400.0
CONSUMER_TAG_BYTES_MAX: Final = 256
ALL: Final = "all"
"""The set of all upstreams, which exists by itself."""
MEMBERS_MAX: Final = 1000  # of one set

# Keys of RabbitMQ that have no counterpart here: accepted, with a warning that says why.
IGNORED_KEYS: Final = {
    "queue-type": "the session at the upstream is its queue; the upstream decides where it keeps sessions",
    "bind-nowait": "subscriptions are always sent in batches, without waiting for each",
    "channel-use-mode": "MQTT has no channels; a link has one connection",
    "ha-policy": "the session at the upstream is its queue; the upstream decides whether it is replicated",
}

# Keys of earlier versions: as above. A definition that has one is warned of wherever it comes from.
REMOVED_KEYS: Final = {
    "content-window": "it is no longer supported; prefixes in exchange keep two directions over one broker apart",
}

TRUST_USER_ID: Final = "trust-user-id"
NO_USER_IDS: Final = (
    "MQTT does not say who has published a message, so messages of a link are those of its local-username"
)


class AckMode(Enum):
    """The event after which a message is acknowledged to the upstream. NO_ACK: never, QoS 0."""

    ON_CONFIRM = "on-confirm"
    ON_PUBLISH = "on-publish"
    NO_ACK = "no-ack"


class Direction(Enum):
    """IN: messages are taken from the upstream. OUT: they are published to it (RabbitMQ's shovel)."""

    IN = "in"
    OUT = "out"


class InterestMode(Enum):
    """SUBSCRIPTIONS: a link subscribes to what local clients want. ALL: to all that its policies allow."""

    SUBSCRIPTIONS = "subscriptions"
    ALL = "all"


class ResourceCleanupMode(Enum):
    """DEFAULT: a link that ends deletes its session at the upstream. NEVER: the session stays until it expires."""

    DEFAULT = "default"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """PEM files on this node; "" means none. `server_name`: name in the certificate; "" means the host of the URI."""

    cacertfile: str = ""
    certfile: str = ""
    keyfile: str = ""
    verify: bool = True
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Upstream:
    """Times are seconds. The keys in JSON have hyphens, and expires and message-ttl are milliseconds there.

    expires           how long the upstream keeps the session of a link that is away; None: for ever
    message_ttl       longest wait of a message at the upstream; None: no limit
    exchange          rules of the topic mapping (federation/topics/mapping.py); () maps nothing
    queue             filter of the group at the upstream; "" is the same as here
    consumer_tag      client identifier at the upstream; "" is chosen by the link
    local_username    account whose rights the link has here; "" is none
    """

    name: str
    uris: tuple[LinkUri, ...]
    prefetch_count: int = 1000
    ack_mode: AckMode = AckMode.ON_CONFIRM
    reconnect_delay: float = 5.0
    max_hops: int = 1
    expires: float | None = None
    message_ttl: float | None = None
    exchange: tuple[str, ...] = ()
    queue: str = ""
    consumer_tag: str = ""
    resource_cleanup_mode: ResourceCleanupMode = ResourceCleanupMode.DEFAULT
    tls: TlsOptions = TlsOptions()
    local_username: str = ""
    direction: Direction = Direction.IN
    interest: InterestMode = InterestMode.SUBSCRIPTIONS

    def tls_of(self, uri: LinkUri) -> TlsOptions:
        """The TLS options for one of the URIs: its query overrides those of the upstream."""
        tls = self.tls
        return TlsOptions(
            uri.option("cacertfile") or tls.cacertfile,
            uri.option("certfile") or tls.certfile,
            uri.option("keyfile") or tls.keyfile,
            uri.option("verify") == "verify_peer" if uri.option("verify") else tls.verify,
            uri.option("server_name_indication") or tls.server_name,
        )

    def with_overrides(self, overrides: tuple[tuple[str, Any], ...]) -> Upstream:
        """The upstream with some fields of a member of a set. Raises DefinitionError when they do not fit together."""
        made = replace(self, **dict(overrides))
        _check_whole_upstream(made)
        return made


@dataclass(frozen=True, slots=True)
class UpstreamSet:
    """`members`: (name of an upstream, the fields of Upstream that this member overrides as (field, value))."""

    name: str
    members: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


def _one_or_more(key: str, value: object, maximum: int, what: str) -> list[tuple[str, object]]:
    """(key, value) of a value by itself, or of each item of a list."""
    if not isinstance(value, list | tuple):
        return [(key, value)]
    if not 1 <= len(value) <= maximum:
        raise DefinitionError(key, f"the list has {len(value)} {what}, 1..{maximum} are possible")
    return [(f"{key}[{index}]", item) for index, item in enumerate(value)]


def _read_uris(key: str, value: object) -> tuple[LinkUri, ...]:
    uris = tuple(parse_uri(text, place) for place, text in _one_or_more(key, value, URIS_MAX, "URIs"))
    if len(set(uris)) < len(uris):
        raise DefinitionError(key, "one URI stands in the list twice")
    return uris


def _read_rules(key: str, value: object) -> tuple[str, ...]:
    rules = tuple(read_text(place, rule) for place, rule in _one_or_more(key, value, RULES_MAX, "rules"))
    try:
        TopicMapping(rules)
    except MappingError as error:
        raise DefinitionError(key, str(error)) from None
    return rules


def _read_verify(key: str, value: object) -> bool:
    return read_word(key, value, VERIFY) == VERIFY[0]


def _read_tls(key: str, value: object) -> TlsOptions:
    return TlsOptions(**dict(read_fields(key, value, _TLS_READERS)))


def _read_milliseconds(key: str, value: object) -> float:
    return read_number(key, value, 1, SECONDS_MAX * 1000, "milliseconds") / 1000


def _read_delay(key: str, value: object) -> float:
    return max(DELAY_MIN, read_number(key, value, 0, DELAY_MAX, "seconds"))


def _refuse_trust(key: str, value: object) -> None:
    if read_flag(key, value):
        raise DefinitionError(key, f"true is not possible: {NO_USER_IDS}; leave the key out")


def _word_of(kind: type[Enum]) -> Callable[[str, object], Enum]:
    words = tuple(member.value for member in kind)
    return lambda key, value: kind(read_word(key, value, words))


def _whole_up_to(maximum: int) -> Callable[[str, object], int]:
    return lambda key, value: read_whole(key, value, 1, maximum)


_TLS_READERS: Final[Readers] = {
    "cacertfile": ("cacertfile", read_text),
    "certfile": ("certfile", read_text),
    "keyfile": ("keyfile", read_text),
    "verify": ("verify", _read_verify),
    "server-name-indication": ("server_name", read_text),
}
_READERS: Final[Readers] = {
    "uri": ("uris", _read_uris),
    "prefetch-count": ("prefetch_count", _whole_up_to(RECEIVE_MAXIMUM_MAX)),
    "ack-mode": ("ack_mode", _word_of(AckMode)),
    "reconnect-delay": ("reconnect_delay", _read_delay),
    TRUST_USER_ID: ("", _refuse_trust),
    "max-hops": ("max_hops", _whole_up_to(HOPS_MAX)),
    "expires": ("expires", _read_milliseconds),
    "message-ttl": ("message_ttl", _read_milliseconds),
    "exchange": ("exchange", _read_rules),
    "queue": ("queue", read_text),
    "consumer-tag": ("consumer_tag", lambda key, value: read_text(key, value, CONSUMER_TAG_BYTES_MAX)),
    "resource-cleanup-mode": ("resource_cleanup_mode", _word_of(ResourceCleanupMode)),
    "tls": ("tls", _read_tls),
    "local-username": ("local_username", read_text),
    "direction": ("direction", _word_of(Direction)),
    "interest": ("interest", _word_of(InterestMode)),
}
UPSTREAM_KEYS: Final = tuple(_READERS)
TLS_KEYS: Final = tuple(_TLS_READERS)


def parse_upstream(name: object, value: object) -> Upstream:
    """An upstream from the value of its parameter: an object with at least `uri`. Raises DefinitionError."""
    checked = check_name("name", name)
    fields = dict(parse_upstream_keys("", value))
    if "uris" not in fields:
        raise DefinitionError("uri", f"this key is missing; {EXAMPLE}")
    upstream = Upstream(checked, **fields)
    _check_whole_upstream(upstream)
    return upstream


def parse_upstream_keys(prefix: str, value: object) -> tuple[tuple[str, Any], ...]:
    """The keys of an upstream that an object sets, as (field, value) sorted by field. `prefix` is for errors."""
    return read_fields(prefix, value, _READERS, IGNORED_KEYS | REMOVED_KEYS)


def parse_upstream_set(name: object, value: object) -> UpstreamSet:
    """A set from the value of its parameter. Raises DefinitionError. Whether the upstreams exist is not asked here."""
    checked = check_name("name", name)
    if checked == ALL:
        raise DefinitionError("name", f'the set "{ALL}" is all upstreams and exists by itself')
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MEMBERS_MAX:
        text = f'a set is a list of 1..{MEMBERS_MAX} members; for example [{{"upstream": "a"}}, {{"upstream": "b"}}]'
        raise DefinitionError("", text)
    members = []
    for index, member in enumerate(value):
        key = f"[{index}]"
        if not isinstance(member, dict) or "upstream" not in member:
            raise DefinitionError(key, 'a member is an object with the key upstream; for example {"upstream": "a"}')
        upstream = check_name(f"{key}.upstream", member["upstream"])
        overrides = parse_upstream_keys(key, {inner: member[inner] for inner in member if inner != "upstream"})
        if (upstream, overrides) in members:
            raise DefinitionError(key, f'the upstream "{upstream}" stands in the set twice with the same keys')
        members.append((upstream, overrides))
    return UpstreamSet(checked, tuple(members))


def ignored_keys(value: object) -> list[str]:
    """A warning for each key of an upstream, or of the members of a set, that has no effect here."""
    return _without_effect(value, IGNORED_KEYS | REMOVED_KEYS)


def removed_keys(value: object) -> list[str]:
    """As `ignored_keys`, for those that had an effect in an earlier version."""
    return _without_effect(value, REMOVED_KEYS)


def _without_effect(value: object, keys: Mapping[str, str]) -> list[str]:
    if isinstance(value, list | tuple):
        return [f"[{index}].{text}" for index, item in enumerate(value) for text in _without_effect(item, keys)]
    if not isinstance(value, Mapping):
        return []
    return [f"{key} has no effect: {why}" for key, why in keys.items() if key in value]


def _check_whole_upstream(upstream: Upstream) -> None:
    """Refuse keys that exclude each other."""
    tls = upstream.tls
    if tls != TlsOptions() and not any(uri.is_secure for uri in upstream.uris):
        raise DefinitionError("tls", "no URI has TLS; use mqtts:// or wss://")
    for index, uri in enumerate(upstream.uris):
        key = f"uri[{index}]" if len(upstream.uris) > 1 else "uri"
        options = upstream.tls_of(uri)
        if uri.is_secure and bool(options.certfile) != bool(options.keyfile):
            own = "tls" if bool(tls.certfile) != bool(tls.keyfile) else key
            raise DefinitionError(own, "certfile and keyfile belong together; one of them is missing")
        if options.server_name and not is_host(options.server_name):
            in_uri = uri.option("server_name_indication")
            key = f"{key}?server_name_indication" if in_uri else "tls.server-name-indication"
            raise DefinitionError(key, f"{shown(options.server_name)} is neither the name of a host nor an IP address")
        if uri.is_external and not options.certfile:
            raise DefinitionError(key, "auth_mechanism external needs certfile and keyfile")
    if upstream.direction is Direction.OUT and upstream.queue:
        raise DefinitionError("queue", "an upstream with direction out has no queue; queues are pulled only")
    if upstream.queue and not _is_group(upstream.queue.encode()):
        raise DefinitionError("queue", f"{shown(upstream.queue)} is not $share/GROUP/FILTER, the group at the upstream")


def _is_group(full: bytes) -> bool:
    try:
        check_topic_filter(full)
        return parse_filter(full)[0] != b""
    except MqttError:
        return False
