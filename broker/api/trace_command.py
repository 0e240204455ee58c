"""`gmqttd trace`: begins a trace over the REST API of a node and prints its lines."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from broker.server.command_fault import CommandFault
from broker.server.logging import quoted_text

WAIT_SECONDS: Final = 5  # of one call for the next line
CALL_SECONDS_MAX: Final = 20.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class TraceApi:
    """Calls of one node's REST API. Raises CommandFault."""

    def __init__(self, url: str, token: str, ca_file: str | None = None) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise CommandFault(f"--api is {url}, must be a URL such as http://127.0.0.1:8083")
        self._url = url.rstrip("/")
        self._token = token
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if ca_file is not None:
            try:
                context = ssl.create_default_context(cafile=ca_file)
            except OSError as error:
                raise CommandFault(f"--cacert: {ca_file} cannot be used: {error.strerror or error}") from None
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=CALL_SECONDS_MAX) as answer:
                return self._read(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                text = self._read(error.read(ANSWER_BYTES_MAX)).get("message", error.reason)
            raise CommandFault(f"{self._url}: {text}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CommandFault(f"{self._url} cannot be reached: {getattr(error, 'reason', error)}") from None

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise CommandFault(f"{self._url} is not the REST API of a node: its answer is not JSON")
        return answer


def follow(api: TraceApi, selection: Mapping[str, str], seconds: int) -> Generator[str]:
    """The lines of a new trace as they come, until it ends. The trace is deleted with the iterator."""
    path = f"/v1/traces/{api.call('POST', '/v1/traces', {**selection, 'seconds': seconds, 'log': False})['id']}"
    last = 0
    try:
        while True:
            page = api.call("GET", f"{path}/lines?after={last}&wait_seconds={WAIT_SECONDS}")
            for line in page["lines"]:
                number = int(line["number"])
                yield from left_out(number - last - 1)
                yield line_text(line)
                last = number
            if page["ended"]:
                yield from left_out(int(page["packets"]) - last)
                return
    finally:
        with contextlib.suppress(CommandFault):
            api.call("DELETE", path)


def left_out(count: int) -> Iterator[str]:
    if count > 0:
        yield f"… {count} packets left out"


def line_text(line: Mapping[str, Any]) -> str:
    """`TIME DIRECTION CLIENT PACKET name=value …` of a TraceLine in JSON."""
    seconds, _, fraction = line["time"].rstrip("Z").partition(".")
    client = quoted_text(line["client_id"]) if line["client_id"] else line["remote_addr"]
    pieces = [f"{seconds}.{fraction[:3]:0<3}Z", f"{line['direction']:<8}", client, line["packet"]]
    pieces += [f"{field['name']}={quoted_text(field['value'])}" for field in line["fields"]]
    return " ".join(pieces)
