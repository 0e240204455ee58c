"""Key queries: what a member does with its keyring when one is asked, and what the asker counts (wire-gossip 8.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.keyring import KeyRefused, Keyring, key_text
from federation.serf.messages import KEY_REQUEST, KEY_RESPONSE, KeyRequest, KeyResponse

QUERY_INSTALL_KEY: Final = "_serf_install-key"
QUERY_USE_KEY: Final = "_serf_use-key"
QUERY_REMOVE_KEY: Final = "_serf_remove-key"
QUERY_LIST_KEYS: Final = "_serf_list-keys"
QUERY_KEYS: Final = (QUERY_INSTALL_KEY, QUERY_USE_KEY, QUERY_REMOVE_KEY, QUERY_LIST_KEYS)


def do_key_query(keyring: Keyring | None, takes_plain: bool, name: str, payload: bytes) -> KeyResponse:
    """Do what the query asks for. What cannot be done is in the message of the response. takes_plain: the query may have come
    in a packet that was not encrypted, from anybody."""
    if keyring is None:
        return KeyResponse(None, "this node has no keyring; its gossip is not encrypted", "", False)
    if takes_plain:
        text = "keys are neither told nor changed while gossip_verify_incoming is false: anybody may ask"
        return KeyResponse(None, text, "", False)
    if name == QUERY_LIST_KEYS:
        keys = tuple(key_text(key) for key in keyring.keys)
        return KeyResponse(keys, "", keys[0], True)
    if payload[:1] != bytes((KEY_REQUEST,)):
        return KeyResponse(None, "the query has no key", "", False)
    try:
        key = KeyRequest.decode(payload[1:]).key
        if name == QUERY_INSTALL_KEY:
            keyring.install(key)
        elif name == QUERY_USE_KEY:
            keyring.use(key)
        else:
            keyring.remove(key)
    except (KeyRefused, WireError) as error:
        return KeyResponse(None, str(error), "", False)
    return KeyResponse(None, "", "", True)


@dataclass(slots=True)
class KeyCounts:
    """Answers of the members to one key query.

    nodes     members that were alive when it was asked
    responses of them, that answered; `errors`: of these, that could not do it
    messages  reasons and hints by member
    keys      of a list: number of members that have a key, by its base64; `primary_keys`: of those that encrypt with it
    """

    nodes: int
    responses: int = 0
    errors: int = 0
    messages: dict[str, str] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    primary_keys: dict[str, int] = field(default_factory=dict)


def count_key_responses(responses: Mapping[str, bytes], nodes: int) -> KeyCounts:
    """`responses` has the payload of each member's response, by name."""
    counts = KeyCounts(nodes)
    for name, payload in responses.items():
        counts.responses += 1
        try:
            if payload[:1] != bytes((KEY_RESPONSE,)):
                raise WireError("its answer is no key response")
            response = KeyResponse.decode(payload[1:])
        except WireError as error:
            counts.errors += 1
            counts.messages[name] = str(error)
            continue
        if not response.result:
            counts.errors += 1
        if response.message or not response.result:
            counts.messages[name] = response.message or "it could not do it, and does not say why"
        for key in dict.fromkeys(response.keys or ()):
            counts.keys[key] = counts.keys.get(key, 0) + 1
        if response.primary_key:
            counts.primary_keys[response.primary_key] = counts.primary_keys.get(response.primary_key, 0) + 1
    return counts
