"""What the drivers of client libraries share. A driver runs one client of a library in a process of its own, with the packages
of run/clients: it takes calls as JSON lines on stdin and writes answers and received messages as JSON lines on stdout.

    {"call": "publish", ...}  ->  {"result": ...} or {"error": TEXT}, in order
    {"message": {...}}, {"ended": TEXT}    at any time
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final

CALL_SECONDS: Final = 30.0


_writing: Final = threading.Lock()  # libraries call from threads of their own


def tell(kind: str, value: object) -> None:
    with _writing:
        sys.stdout.write(json.dumps({kind: value}) + "\n")
        sys.stdout.flush()


def tell_message(topic: str, payload: bytes, qos: int, retain: bool, properties: Mapping[str, object]) -> None:
    tell(
        "message",
        {
            "topic": topic,
            "payload": base64.b64encode(payload).decode(),
            "qos": qos,
            "retain": retain,
            "properties": dict(properties),
        },
    )


async def serve(client: Any) -> None:
    """Carry out calls until stdin ends. A call is a coroutine method of `client`."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        arguments: dict[str, Any] = json.loads(line)
        if "payload" in arguments:
            arguments["payload"] = base64.b64decode(arguments["payload"])
        try:
            async with asyncio.timeout(CALL_SECONDS):
                result = await getattr(client, arguments.pop("call"))(**arguments)
        except Exception as error:
            tell("error", f"{type(error).__name__}: {error}")
        else:
            tell("result", result)
