"""The OpenAPI page: Swagger UI from the installed package, so that it works without internet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiohttp import web
from swagger_ui_bundle import swagger_ui_path  # type: ignore[import-untyped]

DOCS_PATH: Final = "/docs"
OPENAPI_PATH: Final = "/v1/openapi.json"
ASSETS: Final = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")

# The browser itself keeps the page from asking anybody else.
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
}

PAGE: Final = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>gmqttd API</title>
<link rel="stylesheet" href="{DOCS_PATH}/swagger-ui.css">
<link rel="icon" type="image/png" href="{DOCS_PATH}/favicon-32x32.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="{DOCS_PATH}/swagger-ui-bundle.js"></script>
<script src="{DOCS_PATH}/start.js"></script>
</body>
</html>
"""

# validatorUrl: null, or the page would show a badge from a server on the internet.
START_SCRIPT: Final = f"""window.onload = () => SwaggerUIBundle({{
  url: "{OPENAPI_PATH}",
  dom_id: "#swagger-ui",
  validatorUrl: null,
  deepLinking: true
}});
"""


async def show_page(_request: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html", headers=SECURITY_HEADERS)


async def show_start_script(_request: web.Request) -> web.Response:
    return web.Response(text=START_SCRIPT, content_type="text/javascript", headers=SECURITY_HEADERS)


async def show_asset(request: web.Request) -> web.FileResponse:
    return web.FileResponse(Path(str(swagger_ui_path)) / request.path.rpartition("/")[2], headers=SECURITY_HEADERS)


async def redirect_to_docs(_request: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": DOCS_PATH})


def add_docs_routes(app: web.Application) -> None:
    """The page, its assets by name, and the redirects to it."""
    app.router.add_get("/", redirect_to_docs)
    app.router.add_get(f"{DOCS_PATH}/", redirect_to_docs)
    app.router.add_get(DOCS_PATH, show_page)
    app.router.add_get(f"{DOCS_PATH}/start.js", show_start_script)
    for name in ASSETS:
        app.router.add_get(f"{DOCS_PATH}/{name}", show_asset)
