"""The page of a node in a tab of a real browser."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from repository import ROOT

if TYPE_CHECKING:
    from node_process import Node, Nodes

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
LIVE_MS: Final = 60_000  # beside load; nothing waits so long when all is well
SCREEN: Final = {"width": 1280, "height": 900}
AXE: Final = ROOT / "run/packages/node_modules/axe-core/axe.min.js"
needs_axe: Final = pytest.mark.skipif(not AXE.exists(), reason="no axe-core: scripts/setup --packages")


class Window:
    """A tab. `faults` are errors of scripts and of the console, `foreign` requests that left the node."""

    def __init__(self, page: Any, base: str) -> None:
        self.page = page
        self.base = base
        self.faults: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(base) else self.foreign.append(request.url))

    async def open(self, view: str) -> None:
        await self.page.goto(f"{self.base}/#/{view}")

    async def shows(self, text: str) -> None:
        await self.page.get_by_text(text, exact=False).first.wait_for(timeout=LIVE_MS)

    async def no_more(self, text: str) -> None:
        await self.page.get_by_text(text, exact=False).first.wait_for(state="detached", timeout=LIVE_MS)

    async def click(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click()

    async def cells(self, column: int) -> list[str]:
        """The texts of a column of the first table."""
        found: list[str] = (
            await self.page.locator("table").first.locator(f"tbody td:nth-child({column})").all_inner_texts()
        )
        return found

    async def serious(self) -> list[str]:
        """What axe-core says against what is shown, in light and in dark: rules and places, of serious and critical ones."""
        told = []
        for scheme in ("light", "dark"):
            await self.page.emulate_media(color_scheme=scheme)
            await self.page.evaluate(AXE.read_text())
            found = (await self.page.evaluate("axe.run()"))["violations"]
            told += [
                f"{scheme} {item['id']}: {place['target']}"
                for item in found
                if item["impact"] in {"serious", "critical"}
                for place in item["nodes"]
            ]
        return told


def address_of(node: Node) -> str:
    return f"http://{node.config['api']['http'][0]['address'].removeprefix('tcp://')}"


async def window(browser: Any, node: Node, **options: Any) -> Window:
    page = await browser.new_page(viewport=SCREEN, **options)
    return Window(page, address_of(node))


async def federation(nodes: Nodes) -> list[Node]:
    """Three nodes with event logs, and a link of the first one to an upstream that is not there."""
    made: list[Node] = []
    for _ in range(3):
        node = nodes.make_federated(made[:1])
        node.config["plugin_order"] = ["admin", "federation", "event_log", "links"]
        node.config["data_dir"] = str(node.directory / f"{node.name}-data")
        node.config["plugins"]["event_log"] = {"dir": str(node.directory / f"{node.name}-log")}
        made.append(node)
    made[0].config["plugins"]["links"] = {
        "upstreams": {"headquarters": {"uri": f"mqtt://127.0.0.1:{nodes.free_port()}"}},
        "policies": {"orders": {"pattern": "orders/#", "definition": {"federation-upstream": "headquarters"}}},
    }
    await asyncio.gather(*(node.start() for node in made))
    await nodes.all_alive(made)
    return made
