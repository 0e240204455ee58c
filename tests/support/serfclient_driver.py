"""Run by the Python of run/clients: calls a node with the library `serfclient`, and prints what it got as JSON.

serfclient_driver.py PORT AUTH GOSSIP_ADDRESS
"""

from __future__ import annotations

import json
import sys
from typing import Any

from serfclient.client import SerfClient  # type: ignore[import-not-found]


def plain(value: Any) -> Any:
    """A value without bytes."""
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def main() -> None:
    port, auth, address = sys.argv[1:]
    client = SerfClient(port=int(port), rpc_auth=auth, timeout=30)
    found: dict[str, Any] = {}
    found["join"] = client.join(address)
    found["members"] = client.members()
    found["filtered"] = client.members(status="alive", tags={"fed_addr": ".*"})
    found["stats"] = client.stats()
    found["force_leave"] = client.force_leave("nobody")
    stream = SerfClient(port=int(port), rpc_auth=auth, timeout=30)
    events = stream.stream(["user:deploy", "query"])
    found["event"] = client.event("deploy", "now", coalesce=False)
    found["streamed"] = next(iter(events.body))
    client.close()
    stream.close()
    print(json.dumps({name: {"head": plain(one.head), "body": plain(one.body)} for name, one in found.items()}))


if __name__ == "__main__":
    main()
