"""The page in a real browser, against three real nodes with traffic, a link and a node that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from browser_page import CHROMIUM, LIVE_MS, Window, address_of, federation, needs_axe, window
from node_process import LANE_WORKERS
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Nodes

VIEWS: Final = ("overview", "clients", "topics?topic=sensors/one", "log", "links", "pipelines", "access")
WRITERS: Final = 1 if LANE_WORKERS == 1 else 12  # each worker has a log of its own, and some of so many clients
NAME: Final = "<img src=x onerror=alert(1)>\u202egnp"  # markup, and a mark that turns the writing around
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: scripts/setup --packages"),
]


async def test_each_view_shows_what_the_api_says(nodes: Nodes, clients: Clients, browser: Any, tmp_path: Path) -> None:
    first, second, third = await federation(nodes)
    subscriber = await clients.connect(first.port, NAME, clean_start=False)
    await subscriber.subscribe("sensors/#", "orders/#", qos=1)
    publisher = await clients.connect(second.port, "publisher")

    async def came() -> bool:  # the other node hears of the subscription a moment later
        await publisher.publish("sensors/one", b"x", qos=1)
        return not subscriber.messages.empty()

    await eventually(came, "a message of the other node comes")
    tab = await window(browser, first)
    await tab.open("overview")
    for name in (first.name, second.name, third.name, "headquarters"):
        await tab.shows(name)
    await tab.shows("to headquarters is error")
    # Live: a node is killed, and the page says so without being loaded again.
    await third.kill()
    await tab.shows(f"member {third.name} is failed")
    await tab.open("clients")
    await tab.shows("<img src=x onerror=alert(1)>\\u202egnp")
    await tab.page.get_by_role("link", name="onerror").click()
    await tab.shows("sensors/#")
    await tab.shows(f"{first.name} (here)")
    await tab.open("topics")
    await tab.page.get_by_label("topic, or topic filter").fill("sensors/two")
    await tab.page.get_by_role("button", name="show", exact=True).click()
    await tab.shows("Who gets a message of sensors/two")
    await tab.page.get_by_role("button", name="show them").click()
    await tab.shows("listening")
    await publisher.publish("sensors/two", b'{"value": 1}', qos=0, retain=True)
    await tab.page.get_by_role("cell", name='{"value": 1}').nth(1).wait_for(timeout=LIVE_MS)  # live, and retained
    await tab.open("log")
    for node in (first, second):
        await tab.page.get_by_role("link", name=node.name, exact=True).wait_for(timeout=LIVE_MS)
    for _ in range(WRITERS):
        await (await clients.connect(first.port)).publish("logged/one", b"kept", qos=1)
    await tab.page.get_by_role("cell", name="kept").first.wait_for(timeout=LIVE_MS)
    await tab.open("links")
    await tab.shows("headquarters")
    await tab.page.get_by_role("link", name="headquarters").click()
    await tab.shows("evidence")
    await tab.open("pipelines")
    await tab.shows("no query reads the logs")
    await tab.open("access")
    await tab.shows("The plugin auth does not run")
    # Kick from the page.
    await tab.open("clients/publisher")
    await tab.shows("another one may have it")
    second_tab = await window(browser, second)
    await second_tab.open("clients/publisher")
    second_tab.page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await second_tab.page.get_by_role("button", name="disconnect").click()
    await eventually(publisher.closed.is_set, "the client is disconnected")
    assert tab.foreign == second_tab.foreign == []
    # The only error is that of the client that is not on this node.
    assert [text for text in tab.faults if "404" not in text] == []
    await tab.page.screenshot(path=str(tmp_path / "page.png"))


@needs_axe
async def test_axe_finds_nothing_serious(nodes: Nodes, clients: Clients, browser: Any) -> None:
    node, *_ = await federation(nodes)
    subscriber = await clients.connect(node.port, "view")
    await subscriber.subscribe("sensors/#", "orders/#")
    await subscriber.publish("sensors/one", b"x", qos=1, retain=True)
    tab = await window(browser, node)
    for view in VIEWS:
        await tab.open(view)
        await tab.page.locator("main section").first.wait_for(timeout=LIVE_MS)
        assert await tab.serious() == [], view


async def test_a_page_that_is_left_open_says_when_the_node_is_away(nodes: Nodes, browser: Any) -> None:
    node = nodes.make_federated()
    await node.start()
    tab = await window(browser, node)
    await tab.open("overview")
    await tab.shows("clients connected")
    await node.kill()
    await tab.shows("The node does not answer")
    await node.start()
    await tab.page.get_by_text("The node does not answer").wait_for(state="detached", timeout=LIVE_MS)


async def test_login_and_roles(nodes: Nodes, browser: Any) -> None:
    node = nodes.make_federated(overrides={"api": {"token_file": "tokens.yml"}})
    await node.start()
    made = {}
    for role in ("read", "admin"):
        command = [*node.program(), "-c", str(node.config_path), "token", "create", "--role", role]
        done = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env={"PYTHONSAFEPATH": "1", "PATH": "/usr/bin:/bin"}
        )
        output, _ = await done.communicate()
        made[role] = output.decode().strip()
    os.kill(node.pid, signal.SIGHUP)
    await node.logged("tokens=2")
    for role, may_publish in (("read", False), ("admin", True)):
        context = await browser.new_context()
        page = await context.new_page()
        tab = Window(page, address_of(node))
        await tab.open("topics")
        await page.get_by_label("token").fill("wrong")
        await page.get_by_role("button", name="log in").click()
        await tab.shows("the token is not known")
        await page.get_by_label("token").fill(made[role])
        await page.get_by_role("button", name="log in").click()
        await tab.shows("Traffic that enters this node")
        assert await page.get_by_role("button", name="publish", exact=True).count() == int(may_publish)
        assert "gmqttd" not in await page.evaluate("document.cookie")  # no script reads it
        await page.get_by_role("button", name="log out").click()
        await tab.shows("This node asks for a token")
        await context.close()
