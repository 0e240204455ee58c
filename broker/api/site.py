"""The page of a node for browsers, at `/` of its REST addresses: its files, and the login.

The page calls the REST API as everybody does. Where tokens are needed, the browser keeps a cookie that no script can read: not
the token, but a login that stands for it at this node (`ApiGuard.login_of`). The cookie counts only for requests that no page
of another site can send: with PAGE_HEADER (it would need the consent of the API to a preflight request, Fetch standard, CORS
protocol), or, to read, with the browser's word that the page is of this node (Sec-Fetch-Site).
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from pathlib import Path
from typing import Final, NamedTuple

import grpc
from aiohttp import hdrs, web

from broker.api.errors import ApiError, invalid_argument
from broker.api.guard import LOGIN, LOGIN_SECONDS, ApiGuard
from broker.api.tokens import Role

FOLDER: Final = Path(__file__).with_name("dashboard")
FILES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
START: Final = "/index.html"
LOGIN_PATH: Final = "/login"
LOGOUT_PATH: Final = "/logout"
COOKIE: Final = "gmqttd"  # and the port: all ports of a host share their cookies
PAGE_HEADER: Final = "X-Gmqttd-Page"
LOGIN_BYTES_MAX: Final = 4096
LOGIN_SECONDS_MAX: Final = 10.0  # for the body to arrive
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
NO_LOGIN: Final = (
    "this address is open to other machines, so the page needs a login: set api.token_file, and make a token with "
    "`gmqttd token create`; or bind the address to 127.0.0.1"
)


class SiteFile(NamedTuple):
    content_type: str
    body: bytes
    compressed: bytes
    etag: str


def read_files(folder: Path = FOLDER) -> dict[str, SiteFile]:
    """The files of the page by their path in a URL. Does input."""
    found: dict[str, SiteFile] = {}
    for file in sorted(folder.rglob("*")):
        content_type = FILES.get(file.suffix)
        if content_type is not None:
            body = file.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            path = f"/{file.relative_to(folder).as_posix()}"
            found[path] = SiteFile(content_type, body, gzip.compress(body, 9, mtime=0), etag)
    return found


class Site:
    """The page. Files are read once, when a browser asks for the first of them."""

    def __init__(self, guard: ApiGuard) -> None:
        self._guard = guard
        self._files: dict[str, SiteFile] | None = None

    def authorizations(self, request: web.BaseRequest) -> list[str]:
        """All values of the header `Authorization`, or what the cookie of the page stands for."""
        headers = request.headers
        found = headers.getall(hdrs.AUTHORIZATION, [])
        # An EventSource of the page sends no headers of its own; the browser says where it comes from.
        of_page = PAGE_HEADER in headers or (
            request.method == hdrs.METH_GET and headers.get("Sec-Fetch-Site") == "same-origin"
        )
        if not found and of_page and (login := request.cookies.get(cookie_name(request))):
            return [f"{LOGIN} {login}"]
        return list(found)

    async def response(self, request: web.BaseRequest, on_loopback: bool) -> web.Response | None:
        """The answer for a path of the page, None for any other path. Raises ApiError."""
        path = request.path
        if path == LOGIN_PATH and request.method == hdrs.METH_GET:
            return self._who(request)
        if path == LOGIN_PATH and request.method == hdrs.METH_POST:
            return await self._login(request)
        if path == LOGOUT_PATH and request.method == hdrs.METH_POST:
            response = web.Response(status=204)
            response.del_cookie(cookie_name(request), path="/")
            _forget_former(request, response)
            return response
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            return None
        if self._files is None:
            self._files = await asyncio.to_thread(read_files)
        file = self._files.get(START if path == "/" else path)
        if file is None:
            return None
        if not (on_loopback or self._guard.is_on):
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, NO_LOGIN)
        return _file_response(file, request)

    def _who(self, request: web.BaseRequest) -> web.Response:
        """Tell whether a login is needed, and whose token the browser has."""
        token = self._guard.token_of(self.authorizations(request))
        role = (token.role if token is not None else None) if self._guard.is_on else Role.ADMIN
        found = {
            "needed": self._guard.is_on,
            "name": token.name if token is not None else "",
            "role": role.name.lower() if role is not None else "",
        }
        return _json(found)

    async def _login(self, request: web.BaseRequest) -> web.Response:
        if PAGE_HEADER not in request.headers:
            raise ApiError(grpc.StatusCode.PERMISSION_DENIED, f"a login comes from the page, with {PAGE_HEADER}")
        try:
            async with asyncio.timeout(LOGIN_SECONDS_MAX):
                data = await request.content.readexactly(min(request.content_length or 0, LOGIN_BYTES_MAX))
            token = json.loads(data)["token"]
            is_token = isinstance(token, str) and token.isascii()
        except (ValueError, LookupError, TypeError, RecursionError, EOFError, TimeoutError):
            is_token = False
        if not is_token:
            raise invalid_argument('the body is not {"token": "…"}, with its Content-Length')
        authorizations = [f"Bearer {token}"]
        self._guard.check(authorizations, Role.READ)
        response = _json({})
        found = self._guard.token_of(authorizations)
        if found is not None:  # else no login is needed
            response.set_cookie(
                cookie_name(request),
                self._guard.login_of(found),
                max_age=LOGIN_SECONDS,
                path="/",
                httponly=True,
                samesite="Strict",
                secure=request.secure,
            )
            _forget_former(request, response)
        return response


def cookie_name(request: web.BaseRequest) -> str:
    port = request.headers.get(hdrs.HOST, "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdigit() else COOKIE


def _forget_former(request: web.BaseRequest, response: web.Response) -> None:
    """Delete the cookie of earlier builds, which has the token itself."""
    if COOKIE in request.cookies and cookie_name(request) != COOKIE:
        response.del_cookie(COOKIE, path="/")


def _file_response(file: SiteFile, request: web.BaseRequest) -> web.Response:
    headers = {
        **SECURITY_HEADERS,
        hdrs.CONTENT_TYPE: file.content_type,
        hdrs.ETAG: file.etag,
        hdrs.CACHE_CONTROL: "no-cache",  # asked for again each time, and answered with 304
        hdrs.VARY: hdrs.ACCEPT_ENCODING,
    }
    if file.etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
        return web.Response(status=304, headers=headers)
    if "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=file.compressed, headers=headers)
    return web.Response(body=file.body, headers=headers)


def _json(found: dict[str, object]) -> web.Response:
    return web.Response(
        text=json.dumps(found), content_type="application/json", headers={hdrs.CACHE_CONTROL: "no-store"}
    )
