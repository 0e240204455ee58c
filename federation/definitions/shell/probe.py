"""Look for what an upstream names, addresses and files: what is missing may come, and is a warning when it is written."""

from __future__ import annotations

import asyncio
from typing import Final

from federation.definitions.upstream import Upstream
from federation.definitions.uri import LinkUri

PROBE_SECONDS_MAX: Final = 2.0


async def probe_upstream(upstream: Upstream) -> list[str]:
    """A text for each address that does not take a connection, and for each file that this node cannot read."""
    found = await asyncio.gather(*(_probe_uri(uri) for uri in upstream.uris))
    files = await asyncio.to_thread(_unreadable_files, upstream)
    return [text for text in (*found, *files) if text]


async def _probe_uri(uri: LinkUri) -> str:
    """Open a connection and close it. Nothing is sent, so the upstream sees no client."""
    try:
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            _, writer = await asyncio.open_connection(uri.host, uri.port)
    except TimeoutError:
        return f"uri: {uri.redacted()} does not answer within {PROBE_SECONDS_MAX:g} s"
    except OSError as error:
        return f"uri: {uri.redacted()} does not answer from this node: {error.strerror or error}"
    writer.transport.abort()
    return ""


def _unreadable_files(upstream: Upstream) -> list[str]:
    files: dict[str, None] = {}
    for uri in upstream.uris:
        tls = upstream.tls_of(uri)
        files.update(dict.fromkeys(file for file in (tls.cacertfile, tls.certfile, tls.keyfile) if file))
    texts = []
    for file in files:
        try:
            with open(file, "rb"):
                pass
        except (OSError, ValueError) as error:
            texts.append(f"tls: {file} cannot be read on this node: {getattr(error, 'strerror', None) or error}")
    return texts
