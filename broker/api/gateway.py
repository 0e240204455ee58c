"""REST: finds the method of an HTTP request and calls its servicer in the process, without a hop over the network."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import grpc
from aiohttp import web
from google.protobuf.message import Message

from broker.api.errors import ApiError
from broker.api.method import INTERNAL_TEXT, ApiMethod, CallContext
from broker.api.route import Route, method_routes
from broker.api.transcoding import one_line, read_request, write_response

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024  # of one request, over gRPC (its own default) and over REST alike
CALLS_MAX: Final = 256  # requests at once; more are refused with RESOURCE_EXHAUSTED
LOOP_BYTES_MAX: Final = 8192  # of an encoded answer whose JSON (1 ms) is made on the loop; a larger one in a thread
BODY_SECONDS_MAX: Final = 30.0  # for a body to arrive

HTTP_METHOD_NOT_ALLOWED: Final = 405
HTTP_CONTENT_TOO_LARGE: Final = 413


class Gateway:
    """The routes of all registered methods. Every answer is JSON, errors too."""

    def __init__(self, log: Any) -> None:
        self.routes: list[Route] = []
        self.calls_refused = 0
        self._calls = 0
        self._log = log

    def add(self, method: ApiMethod) -> None:
        """Raises ValueError for a path that another method has already."""
        for route in method_routes(method):
            for other in self.routes:
                if (other.verb, other.template) == (route.verb, route.template):
                    raise ValueError(f"{route.verb} {route.template} is taken by {other.method.descriptor.full_name}")
            self.routes.append(route)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request. The content type does not matter: curl names form data where JSON is meant."""
        if self._calls >= CALLS_MAX:
            self.calls_refused += 1
            return error_response(
                ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{CALLS_MAX} calls are running already")
            )
        self._calls += 1
        try:
            return json_response(await as_json(await self._call(request)))
        except ApiError as error:
            return error_response(error)
        except Exception as error:
            # What only the peer can cause while its body is read (a broken encoding) ends here too; never a traceback.
            self._log.error("request failed", path=request.path, exc_info=error)
            return error_response(ApiError(grpc.StatusCode.INTERNAL, INTERNAL_TEXT))
        finally:
            self._calls -= 1

    async def _call(self, request: web.Request) -> Message:
        route, path_fields = self.find(request.method, request.rel_url.raw_path)
        body = await read_body(request)
        message = read_request(route, path_fields, list(request.query.items()), body)
        return await route.method.call(message, CallContext())

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
        raise ApiError(grpc.StatusCode.NOT_FOUND, f"there is no {raw_path}; /v1/openapi.json lists all paths")


class MethodNotAllowed(ApiError):
    """The path exists, for other HTTP methods."""

    def __init__(self, text: str, allowed: list[str]) -> None:
        super().__init__(grpc.StatusCode.UNIMPLEMENTED, text, HTTP_METHOD_NOT_ALLOWED)
        self.allowed = allowed


async def as_json(response: Message) -> str:
    """A page of 1000 clients takes 80 ms of Python: in a thread, MQTT clients wait for at most a slice of it."""
    if response.ByteSize() <= LOOP_BYTES_MAX:
        return write_response(response)
    return await asyncio.to_thread(write_response, response)


async def read_body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await request.read()
    except TimeoutError:
        text = f"the body did not arrive within {BODY_SECONDS_MAX:.0f} s"
        raise ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, text) from None
    except web.HTTPRequestEntityTooLarge:
        text = f"the body is larger than {REQUEST_BYTES_MAX} bytes"
        raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, HTTP_CONTENT_TOO_LARGE) from None
    except web.RequestPayloadError as error:
        raise ApiError(grpc.StatusCode.INVALID_ARGUMENT, f"the body cannot be read: {one_line(error)}") from None


def json_response(text: str, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def error_response(error: ApiError) -> web.Response:
    # ASCII only: the text may quote what is no UTF-8 (a lone surrogate in the request's JSON).
    text = json.dumps({"code": error.number, "message": error.text, "details": []})
    headers = {"Allow": ", ".join(error.allowed)} if isinstance(error, MethodNotAllowed) else None
    return json_response(text, error.http_status, headers)
