"""The page of a node: its files, who gets them, and the login."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from api_calls import PUBLISH, Service, api_settings
from broker.api import site
from broker.api.guard import ApiGuard
from broker.api.server import ApiServer
from broker.api.tokens import Role, Token, hash_token, write_tokens
from broker.server.logging import get_logger

PAGE = {site.PAGE_HEADER: "1"}
Get = Callable[..., Any]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), auto_decompress=False) as made:
        yield made


def test_the_first_load_is_small() -> None:
    files = site.read_files()
    assert sum(len(file.compressed) for file in files.values()) <= 100_000
    for file in files.values():
        assert gzip.decompress(file.compressed) == file.body


def test_what_is_vendored_is_what_was_looked_at() -> None:
    folder = site.FOLDER / "vendor"
    lines = [line.partition("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, _, name in lines}
    assert set(sums) == {file.name for file in folder.iterdir()} - {"SHA256SUMS", "LICENSES"}
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    licences = (folder / "LICENSES").read_text()
    assert all(f"== {name} " in licences for name in ("preact", "htm", "uplot"))


def test_no_file_asks_another_host_or_has_a_script_in_it() -> None:
    for path, file in site.read_files().items():
        text = file.body.decode()
        if path.startswith("/vendor/"):
            continue
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert not re.search(r"<script(?![^>]* src=)", text), path
        assert not re.search(r"innerHTML|dangerouslySet|\bon[a-z]+=\"|\beval\b", text), path
        used = re.findall(r"""(?:from |src=|href=)["'](/[^"'$]+)["']""", text)
        assert all(name in site.read_files() or name in {"/docs"} for name in used), (path, used)


async def test_files_are_served_compressed_and_known_again(make_api: Any, session: aiohttp.ClientSession) -> None:
    api, _ = make_api([], ["127.0.0.1:0"])
    await api.start()
    url = f"http://{api.http_addresses[0]}"
    async with session.get(url) as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
    async with session.get(f"{url}/app.js", headers={"Accept-Encoding": "gzip"}) as answer:
        assert b"render(" in gzip.decompress(await answer.read())
        etag = answer.headers["ETag"]
    async with session.get(f"{url}/app.js", headers={"If-None-Match": etag}) as answer:
        assert (answer.status, await answer.read()) == (304, b"")
    async with session.get(f"{url}/vendor/../site.py") as answer:
        assert answer.status == 404
    async with session.get(f"{url}/login") as answer:
        assert await answer.json() == {"needed": False, "name": "", "role": "admin"}


async def test_the_page_can_be_left_out(session: aiohttp.ClientSession) -> None:
    settings = replace(api_settings([], ["127.0.0.1:0"]), dashboard=False)
    api = ApiServer(settings, {}, get_logger("api"))
    await api.start()
    async with session.get(f"http://{api.http_addresses[0]}/app.js") as answer:
        assert answer.status == 404
    await api.stop()


async def test_an_open_address_has_no_page_without_tokens(session: aiohttp.ClientSession) -> None:
    api = ApiServer(api_settings([], ["0.0.0.0:0"]), {}, get_logger("api"))
    await api.start()
    port = api.http_addresses[0].rpartition(":")[2]
    async with session.get(f"http://127.0.0.1:{port}/") as answer:
        assert answer.status == 403
        assert "token_file" in (await answer.json(content_type=None))["message"]
    await api.stop()


async def test_login(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    file, text = tmp_path / "tokens.yml", "a-token"
    file.write_bytes(write_tokens([Token("reader", Role.READ, "2026-11-26", hash_token(text))]))
    guard = ApiGuard(str(file))
    guard.load()
    api = ApiServer(api_settings([], ["127.0.0.1:0"]), {}, get_logger("api"), guard)
    api.register(PUBLISH, Service())
    await api.start()
    url = f"http://{api.http_addresses[0]}"

    async def who() -> Any:
        async with session.get(f"{url}/login", headers=PAGE) as answer:
            return json.loads(await answer.read())

    async def log_in(body: str, headers: dict[str, str]) -> int:
        async with session.post(f"{url}/login", data=body, headers=headers) as answer:
            return answer.status

    assert await who() == {"needed": True, "name": "", "role": ""}
    for body, status in (
        ("", 400),
        ("[" * 4000, 400),
        ('{"token": "\\ud800"}', 400),
        ("[]", 400),
        ('{"token": 1}', 400),
        ('{"token": "no"}', 401),
    ):
        assert await log_in(body, PAGE) == status
    assert await log_in(json.dumps({"token": text}), {}) == 403  # a form of another site could send it
    session.cookie_jar.update_cookies({"gmqttd": text}, URL(url))  # of an earlier build
    async with session.post(f"{url}/login", data=json.dumps({"token": text}), headers=PAGE) as answer:
        assert answer.status == 200
        assert "gmqttd" not in {each.key for each in session.cookie_jar}
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert cookie.startswith(
            f"gmqttd-{url.rpartition(':')[2]}="
        )  # other ports of the host have cookies of their own
        assert text not in cookie  # but get this one
        login = cookie.partition("=")[2].partition(";")[0]
    async with session.get(f"{url}/login", headers={"Authorization": f"Bearer {login}"}) as answer:
        assert json.loads(await answer.read())["name"] == ""
    assert await who() == {"needed": True, "name": "reader", "role": "read"}
    async with session.get(f"{url}/v1/openapi.json", headers=PAGE) as answer:
        assert answer.status == 200
    # The cookie alone is nothing: a page of another site could make the browser send it.
    for headers, status in (({}, 401), (PAGE, 403)):
        async with session.post(f"{url}/v1/publish", data="{}", headers=headers) as answer:
            assert answer.status == status
    session.cookie_jar.update_cookies({"gmqttd": text}, URL(url))
    async with session.post(f"{url}/logout", headers=PAGE) as answer:
        assert answer.status == 204
    assert not list(session.cookie_jar)
    assert await who() == {"needed": True, "name": "", "role": ""}
    await api.stop()
