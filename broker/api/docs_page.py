"""The documentation page of the REST API: Swagger UI from the installed package, so that it works without internet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from aiohttp import web
from swagger_ui_bundle import swagger_ui_path  # type: ignore[import-untyped]

DOCS_PATH: Final = "/docs"
OPENAPI_PATH: Final = "/v1/openapi.json"
ASSETS: Final = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}

# The browser keeps the page from sending requests to any other host.
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

# validatorUrl is null because the page would otherwise load a badge from a server on the internet.
START_SCRIPT: Final = f"""window.onload = () => SwaggerUIBundle({{
  url: "{OPENAPI_PATH}",
  dom_id: "#swagger-ui",
  validatorUrl: null,
  deepLinking: true
}});
"""


async def docs_response(path: str) -> web.Response | None:
    """The answer for a path of the page, None for any other path."""
    if path in ("/", f"{DOCS_PATH}/"):
        return web.Response(status=302, headers={"Location": DOCS_PATH})
    if path == DOCS_PATH:
        return web.Response(text=PAGE, content_type="text/html", headers=SECURITY_HEADERS)
    if path == f"{DOCS_PATH}/start.js":
        return web.Response(text=START_SCRIPT, content_type="text/javascript", headers=SECURITY_HEADERS)
    content_type = ASSETS.get(path.removeprefix(f"{DOCS_PATH}/"))
    if content_type is None:
        return None
    file = Path(str(swagger_ui_path)) / path.removeprefix(f"{DOCS_PATH}/")
    return web.Response(
        body=await asyncio.to_thread(file.read_bytes), content_type=content_type, headers=SECURITY_HEADERS
    )
