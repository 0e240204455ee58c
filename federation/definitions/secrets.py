"""Secrets in the values of definitions: user names and passwords of URIs, and all keys that this version does not know.

The random part of client identifiers is none: a link keeps its session when it moves, so all nodes have it with the upstream.
"""

from __future__ import annotations

import json
from typing import Any, Final

from federation.definitions.entry import LINK_KEY, PARAMETERS, POLICY, UPSTREAM_SET
from federation.definitions.error import DefinitionError
from federation.definitions.upstream import IGNORED_KEYS, REMOVED_KEYS, TLS_KEYS, UPSTREAM_KEYS
from federation.definitions.uri import HIDDEN, parse_uri

SHOWN_KEYS: Final = frozenset((*UPSTREAM_KEYS, *IGNORED_KEYS, *REMOVED_KEYS, "upstream"))


def without_secrets(component: str, value: object) -> object:
    """A value for readers: HIDDEN takes the place of each secret. Nodes of later versions may have components and keys that are
    not known here, with secrets."""
    if value is None or component in (POLICY, LINK_KEY):
        return value
    if component == UPSTREAM_SET and isinstance(value, list):
        return [_upstream(item) for item in value]
    return _upstream(value) if component in PARAMETERS else HIDDEN


def has_secrets(component: str, value: object) -> bool:
    """Return whether `without_secrets` hides a part of a value."""
    # YAML has values that JSON has not, such as dates in keys without an effect.
    return HIDDEN in json.dumps(without_secrets(component, value), default=str)


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


def _upstream(value: object) -> object:
    if not isinstance(value, dict):
        return HIDDEN
    found: dict[str, Any] = {key: inner if key in SHOWN_KEYS else HIDDEN for key, inner in value.items()}
    if "uri" in found:
        uri = found["uri"]
        found["uri"] = [_shown_uri(text) for text in uri] if isinstance(uri, list) else _shown_uri(uri)
    if isinstance(found.get("tls"), dict):
        found["tls"] = {name: inner if name in TLS_KEYS else HIDDEN for name, inner in found["tls"].items()}
    return found


def _shown_uri(text: object) -> str:
    try:
        return parse_uri(text).shown()
    except DefinitionError:
        return HIDDEN
