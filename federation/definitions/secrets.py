"""Secrets in the values of definitions: user names and passwords of URIs, and all keys that this version does not know.

The random part of client identifiers is none: a link keeps its session when it moves, so all nodes have it with the upstream.
"""

from __future__ import annotations

from typing import Final

from federation.definitions.entry import LINK_KEY, POLICY, UPSTREAM, UPSTREAM_SET
from federation.definitions.error import DefinitionError
from federation.definitions.upstream import IGNORED_KEYS, REMOVED_KEYS, TLS_KEYS, UPSTREAM_KEYS
from federation.definitions.uri import HIDDEN, parse_uri

SHOWN_KEYS: Final = frozenset((*UPSTREAM_KEYS, *IGNORED_KEYS, *REMOVED_KEYS, "upstream"))


def without_secrets(component: str, value: object) -> object:
    """A value for readers: HIDDEN takes the place of each secret. Nodes of later versions may have components and keys that are
    not known here, with secrets."""
    if value is None or component in (POLICY, LINK_KEY):
        return value
    if component == UPSTREAM:
        return _upstream(value)
    if component == UPSTREAM_SET:
        return [_upstream(item) for item in value] if isinstance(value, list) else _upstream(value)
    return HIDDEN


def has_secrets(component: str, value: object) -> bool:
    """Return whether `without_secrets` hides a part of a value."""
    return _has_hidden(without_secrets(component, value))


def refuse_hidden(value: object) -> None:
    """Raise DefinitionError for a URI that has HIDDEN somewhere: a definition that was read is not written back without its
    secrets. One that was stored before stays."""
    for place, item in enumerate(value) if isinstance(value, list) else ((None, value),):
        uri = item.get("uri") if isinstance(item, dict) else None
        for index, text in enumerate(uri if isinstance(uri, list) else [uri]):
            if isinstance(text, str) and HIDDEN in text:
                key = f"uri[{index}]" if isinstance(uri, list) else "uri"
                raise DefinitionError(
                    key if place is None else f"[{place}].{key}",
                    f"{HIDDEN} stands for secrets that were not shown; write them. A password with {HIDDEN} has %2A for *",
                )


def _has_hidden(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_hidden, value.values()))
    if isinstance(value, list):
        return any(map(_has_hidden, value))
    return isinstance(value, str) and HIDDEN in value


def _upstream(value: object) -> object:
    if not isinstance(value, dict):
        return HIDDEN
    return {key: _shown_value(key, inner) for key, inner in value.items()}


def _shown_value(key: str, value: object) -> object:
    if key == "uri":
        return [_shown_uri(text) for text in value] if isinstance(value, list) else _shown_uri(value)
    if key == "tls" and isinstance(value, dict):
        return {name: inner if name in TLS_KEYS else HIDDEN for name, inner in value.items()}
    return value if key in SHOWN_KEYS else HIDDEN


def _shown_uri(text: object) -> str:
    try:
        return parse_uri(text).shown()
    except DefinitionError:
        return HIDDEN
