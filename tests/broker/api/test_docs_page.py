"""The documentation page: it loads nothing that this node does not serve."""

from __future__ import annotations

import re
from typing import Any


async def fetch(rest: Any, path: str) -> tuple[int, str, str, dict[str, str]]:
    async with rest.session.get(rest.base + path, allow_redirects=False) as response:
        return response.status, response.content_type, await response.text("latin-1"), dict(response.headers)


async def test_the_page_uses_files_of_this_node_only(rest: Any) -> None:
    status, _, _, headers = await fetch(rest, "/docs/")
    assert (status, headers["Location"]) == (302, "/docs")
    status, content_type, page, headers = await fetch(rest, "/docs")
    assert (status, content_type) == (200, "text/html")
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    used = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(used) == 4
    types = {}
    for path in used:
        assert path.startswith("/docs/")
        status, types[path], text, headers = await fetch(rest, path)
        assert (status, text != "") == (200, True)
        assert "Content-Security-Policy" in headers
    assert types["/docs/swagger-ui.css"] == "text/css"
    assert types["/docs/swagger-ui-bundle.js"].endswith("javascript")
    _, _, script, _ = await fetch(rest, "/docs/start.js")
    assert re.findall(r'url: "([^"]+)"', script) == ["/v1/openapi.json"]
    assert "validatorUrl: null" in script
    assert "//" not in page + script
    _, _, style, _ = await fetch(rest, "/docs/swagger-ui.css")
    assert not re.search(r"url\((?!['\"]?data:)", style)
    assert "@import" not in style


async def test_only_the_assets_are_served(rest: Any) -> None:
    for path in (
        "/swagger-ui.css",
        "/docsswagger-ui.css",
        "/docs/index.html",
        "/docs/..%2f..%2f__init__.py",
        "/docs/../pyproject.toml",
        "/docs/swagger-ui.css/",
    ):
        status, answer = await rest.call("GET", path)
        assert (status, answer["code"]) == (404, 5)
