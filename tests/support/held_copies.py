"""`python -m broker` whose worker 1 begins the copy of its store when a pipe, the first argument, is opened for writing and
closed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from broker.server.cli import main
from broker.server.lifecycle import Server


def run(pipe: Path) -> None:
    copy_store = Server.copy_store

    async def held(server: Server, folder: Path) -> bool:
        if server.worker is not None and server.worker.place.index == 1:
            await asyncio.to_thread(pipe.read_bytes)
        return await copy_store(server, folder)

    Server.copy_store = held  # type: ignore[assignment,method-assign]
    main()


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)))
