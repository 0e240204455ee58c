"""Client identifiers that belong to users: the rule of `mqtt.client_id_by_user`.

Each identifier belongs to one user at most. Otherwise a client could take over the session of another account, with its queue.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.reason_codes import CLIENT_IDENTIFIER_NOT_VALID
from broker.codec.wire import STRING_BYTES_MAX
from broker.errors import MqttError

BY_NOBODY: Final = "off"
BY_EQUALITY: Final = "equal"
SEPARATOR: Final = ":"


def client_id_of(rule: str, client_id: str, is_assigned: bool, username: str) -> str:
    """The client identifier of the session. Raises MqttError for one that is not the user's.

    client_id    of CONNECT, or the one that the server assigns
    is_assigned  CONNECT had none. Nobody else has this identifier, so that a client without a user name may have it
    """
    if rule == BY_NOBODY:
        return client_id
    if not username:
        if is_assigned:
            return client_id
        text = "a client without a user name may have no client identifier of its own (client_id_by_user)"
        raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, text)
    if rule == BY_EQUALITY:
        return username
    if is_assigned:
        assigned = username + SEPARATOR + client_id
        if len(assigned.encode()) > STRING_BYTES_MAX:
            raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "the user name leaves no space for a client identifier")
        return assigned
    # The last separator counts, so that user names may have some: `a:b:c` belongs to the user `a:b`, and not to `a`.
    if client_id.rpartition(SEPARATOR)[0] != username:
        text = (
            f"the client identifier is not the user name, {SEPARATOR} and text without {SEPARATOR} (client_id_by_user)"
        )
        raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, text)
    return client_id
