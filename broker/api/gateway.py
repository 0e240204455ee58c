"""REST without HTTP: finds the method for a verb and a path, calls its servicer in this process, and writes the JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from broker import __version__
from broker.api.errors import ApiError
from broker.api.long_calls import LongCalls
from broker.api.method import INTERNAL_TEXT, ApiMethod, CallContext
from broker.api.openapi import OpenApi
from broker.api.route import Route, method_routes
from broker.api.tokens import Role
from broker.api.transcoding import as_values, read_request, write_response

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024  # of one request over gRPC (whose own default this is) and over REST

HTTP_METHOD_NOT_ALLOWED: Final = 405

# The plugin that serves /v1/NAME, for the answer to a request when the plugin is not loaded.
PLUGINS: Final = {
    name: plugin
    for plugin, names in (
        ("admin", "clients node rates events configuration log_level subscriptions filter_subscriptions subscribe"),
        ("admin", "unsubscribe publish retained tokens topics traces alarms"),
        ("federation", "federation"),
        ("event_log", "event_log"),
        ("auth", "accounts locked_out rules"),
        ("links", "parameters policies policy-of-topic definitions federation-links group-queues"),
    )
    for name in names.split()
}


class Gateway:
    def __init__(self, long_calls: LongCalls, log: Any, needs_token: bool = False) -> None:
        self.routes: list[Route] = []
        self._long_calls = long_calls
        self._needs_token = needs_token
        self._log = log
        self._openapi = ""

    def add(self, method: ApiMethod) -> None:
        """Serve a method on the paths of its definition. Raises ValueError for a path that another method has already."""
        for route in method_routes(method):
            for other in self.routes:
                if (other.verb, other.template) == (route.verb, route.template):
                    raise ValueError(f"{route.verb} {route.template} is taken by {other.method.descriptor.full_name}")
            self.routes.append(route)

    def openapi(self) -> str:
        """The OpenAPI description of all routes, as JSON."""
        if not self._openapi:
            self._openapi = json.dumps(OpenApi(__version__, self._needs_token).document(self.routes))
        return self._openapi

    def find(self, verb: str, raw_path: str) -> tuple[Route, dict[str, str]]:
        """The route of a percent-encoded path and the fields in it. Raises ApiError: 404, or 405 naming what is allowed."""
        segments = raw_path.removeprefix("/").split("/")
        allowed: list[str] = []
        for route in self.routes:
            path_fields = route.match(segments)
            if path_fields is None:
                continue
            if route.verb == verb:
                return route, path_fields
            allowed.append(route.verb)
        if allowed:
            text = f"{verb} is not possible for {raw_path}, only {', '.join(allowed)}"
            raise MethodNotAllowed(text, allowed)
        raise ApiError(grpc.StatusCode.NOT_FOUND, self._unknown_path(raw_path, segments))

    def _unknown_path(self, raw_path: str, segments: list[str]) -> str:
        begin = segments[:2]
        plugin = PLUGINS.get(begin[1]) if len(begin) == 2 and begin[0] == "v1" else None
        if plugin is None or any(list(route.segments[:2]) == begin for route in self.routes):
            return f"there is no {raw_path}; /v1/openapi.json lists all paths"
        return (
            f'there is no {raw_path}: the plugin "{plugin}" serves it and is not loaded; '
            "name it in plugin_order of the configuration and start the node again"
        )

    async def call(
        self, route: Route, path_fields: dict[str, str], query: Iterable[tuple[str, str]], body: bytes, caller: Role
    ) -> str:
        """The JSON of the answer. Raises ApiError."""
        try:
            response = await route.method.call(read_request(route, path_fields, query, body), CallContext(), caller)
            assert isinstance(response, Message)
            return await self._long_calls.run(write_response(response))
        except ApiError:
            raise
        except Exception as error:
            self._log.error("request failed", path=route.template, exc_info=error)
            raise ApiError(grpc.StatusCode.INTERNAL, INTERNAL_TEXT) from error

    def stream(
        self, route: Route, path_fields: dict[str, str], query: Iterable[tuple[str, str]], last_event: str, caller: Role
    ) -> AsyncIterator[str]:
        """The answers of a stream as Server-Sent Events (HTML standard, section 9.2). `last_event` is the header
        Last-Event-ID, the request's field `after`; the number of an answer is its id. Raises ApiError."""
        after = route.method.descriptor.input_type.fields_by_name.get("after")
        if last_event and after is not None:
            query = [*(pair for pair in query if pair[0] != after.name), (after.name, last_event)]
        return self._events(route, read_request(route, path_fields, query, b""), caller)

    async def _events(self, route: Route, request: Message, caller: Role) -> AsyncIterator[str]:
        async for answer in route.method.stream(request, CallContext(), caller):
            assert isinstance(answer, Message)
            number = getattr(answer, "number", 0)
            yield (f"id: {number}\n" if number else "") + f"data: {json.dumps(as_values(answer))}\n\n"


class MethodNotAllowed(ApiError):
    """The path exists, for other HTTP methods."""

    def __init__(self, text: str, allowed: list[str]) -> None:
        super().__init__(grpc.StatusCode.UNIMPLEMENTED, text, HTTP_METHOD_NOT_ALLOWED)
        self.allowed = allowed
