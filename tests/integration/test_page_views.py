"""Views of the page in a real browser: the logs of all nodes, pipelines, access; a page that is left open while its node, its
token or its answers change; many nodes and clients.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from broker.codec.packets import MQTT_5, ConnAck, Connect
from broker.workers.shares import worker_name
from browser_page import CHROMIUM, LIVE_MS, SCREEN, Window, address_of, federation, needs_axe, window
from mqtt_client import MqttClient
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Node, Nodes

ROWS: Final = 60  # of a page
PHONE: Final = {"width": 380, "height": 800}
# The parts of the page that scroll sideways.
WIDER: Final = (
    "[...document.querySelectorAll('html, section')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: scripts/setup --packages"),
]


async def rows_settle(tab: Window, column: int, is_right: Callable[[list[str]], bool]) -> list[str]:
    async def settled() -> bool:
        return is_right(await tab.cells(column))

    await eventually(settled, "the table shows what is asked for")
    return await tab.cells(column)


async def test_the_logs_of_all_nodes_are_one_time_line(nodes: Nodes, clients: Clients, browser: Any) -> None:
    """150 records at three nodes by turns: `newer` from the first time, and `older` from the end, show each once, in order."""
    made = await federation(nodes)
    writers = [await clients.connect(node.port, f"writer {node.name}") for node in made]
    total = 150
    for number in range(total):  # each is acknowledged before the next one, so that their times have this order
        await writers[number % 3].publish(f"t/{number % 2}", b"record %d." % number, qos=1)
    names = [f"record {number}." for number in range(total)]
    tab = await window(browser, made[0])
    await tab.open("log?from=2020-01-01T00:00:00.000Z")
    found = await rows_settle(tab, 5, lambda cells: cells == names[:ROWS])
    for start in (ROWS, 2 * ROWS):
        await tab.click("newer")
        found += await rows_settle(tab, 5, lambda cells, start=start: cells == names[start : start + ROWS])  # type: ignore[misc]
    assert found == names
    assert await tab.page.get_by_role("button", name="newer").is_disabled()
    await tab.click("older")
    await rows_settle(tab, 5, lambda cells: cells == names[ROWS : 2 * ROWS])
    await tab.page.get_by_role("link", name="newest").click()
    found = (await rows_settle(tab, 5, lambda cells: cells == names[: -ROWS - 1 : -1]))[::-1]
    for end in (total - ROWS, total - 2 * ROWS):
        await tab.click("older")
        found = await rows_settle(tab, 5, lambda cells, end=end: cells == names[max(0, end - ROWS) : end]) + found  # type: ignore[misc]
    assert found == names
    # By filter, of one node.
    connected = next(line for line in made[1].log().splitlines() if f'client_id="writer {made[1].name}"' in line)
    worker = re.search(r"worker=(\d+)", connected)
    log_name = worker_name(made[1].name, int(worker[1]) if worker else 0)  # each worker has a log of its own
    await tab.page.get_by_label("node").select_option(log_name)
    await tab.page.get_by_label("topic filter").fill("t/1")
    await tab.click("show")
    own = [f"record {number}." for number in range(1, total, 3) if number % 2]
    await rows_settle(tab, 5, lambda cells: cells == own[::-1])
    await tab.page.get_by_label("payloads as").select_option("hex")
    await tab.click("show")
    await rows_settle(tab, 5, lambda cells: bool(cells) and "72 65 63 6f 72 64" in cells[0])
    # A node that is gone is missing, and said so; the others are shown.
    await made[2].kill()
    await tab.open("log")
    await rows_settle(tab, 5, lambda cells: bool(cells) and f"record {total - 1}." not in cells)
    assert tab.foreign == []


async def test_readers_and_batches_of_pipelines(nodes: Nodes, clients: Clients, browser: Any) -> None:
    node = nodes.make_federated()
    node.config["plugin_order"] = ["admin", "federation", "event_log"]
    node.config["plugins"]["event_log"] = {"dir": str(node.directory / "log")}
    await node.start()
    writer = await clients.connect(node.port, "writer")
    for _ in range(10):
        await writer.publish("t", b"x", qos=1)
    _, log = await node.rest("GET", "/v1/event_log")
    hold = {"group": "reports", "query": "<b>q1</b>", "log_id": log["log_id"], "offset": "4"}
    status, _ = await node.rest("POST", "/v1/event_log/hold", hold)
    assert status == 200
    tab = await window(browser, node)
    for view in ("pipelines", "log"):
        await tab.open(view)
        for text in ("reports", "<b>q1</b>", "6 records", "ago"):
            await tab.shows(text)
    assert tab.faults == []


async def test_access_shows_accounts_rules_tokens_and_who_is_locked_out(nodes: Nodes, browser: Any) -> None:
    node = nodes.make_federated(overrides={"api": {"token_file": "tokens.yml"}})
    (node.directory / "acl").write_text("user alice\ntopic readwrite home/alice/#\npattern read own/%c\n")
    (node.directory / "accounts.yml").write_text("- {username: alice, password: right}\n")
    node.config["plugin_order"] = ["admin", "auth", "federation"]
    node.config["plugins"]["auth"] = {
        **{"hash": "plain", "password_file": str(node.directory / "accounts.yml"), "failures_per_user": 1},
        "acl_file": str(node.directory / "acl"),
    }
    await node.start()
    token = await made_token(node, "admin")
    tab = await window(browser, node)
    await tab.open("access")
    await log_in(tab, token)
    await tab.shows("nobody")
    guess = await MqttClient.open(node.port, MQTT_5)
    guess.send(Connect("guess", MQTT_5, True, 0, "alice", b"wrong", None, {}))
    assert (await guess.answer(ConnAck)).reason_code != 0
    for text in ("127.0.0.1", "home/alice/#", "readwrite", "own/%c", "all clients"):
        await tab.shows(text)
    await tab.page.get_by_role("cell", name="alice", exact=True).first.wait_for(timeout=LIVE_MS)
    # A token is made, shown once, and can be deleted.
    await tab.page.locator("select[name=role]").select_option("read")
    await tab.page.locator("input[name=name]").fill("grafana")
    await tab.click("make a token")
    await tab.shows("The token is shown this once")
    row = tab.page.get_by_role("row").filter(has_text="grafana")
    await row.wait_for(timeout=LIVE_MS)
    tab.page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await row.get_by_role("button", name="delete").click()
    await row.wait_for(state="detached", timeout=LIVE_MS)
    # A reader sees nothing of this.
    context = await browser.new_context()
    reader = Window(await context.new_page(), address_of(node))
    await reader.open("access")
    await log_in(reader, await made_token(node, "read"))
    await reader.shows("Accounts, rules and tokens are shown to the role admin")
    assert await reader.page.get_by_text("home/alice").count() == 0
    await context.close()


@needs_axe
async def test_axe_finds_nothing_serious_in_views_that_are_full(nodes: Nodes, clients: Clients, browser: Any) -> None:
    """The form to log in, a client, records, readers and their batches, rules, a new token, a locked out address."""
    node = nodes.make_federated(overrides={"api": {"token_file": "tokens.yml"}})
    (node.directory / "acl").write_text("topic readwrite #\nuser alice\ntopic readwrite home/alice/#\n")
    (node.directory / "accounts.yml").write_text("- {username: alice, password: right}\n")
    node.config["plugin_order"] = ["admin", "auth", "federation", "event_log"]
    node.config["plugins"]["event_log"] = {"dir": str(node.directory / "log")}
    node.config["plugins"]["auth"] = {
        **{"hash": "plain", "password_file": str(node.directory / "accounts.yml"), "failures_per_user": 1},
        **{"acl_file": str(node.directory / "acl"), "allow_anonymous": True},
    }
    await node.start()
    writer = await clients.connect(node.port, "writer")
    await writer.subscribe("sensors/#", qos=1)
    await writer.publish("sensors/one", b"x", qos=1, retain=True)
    guess = await MqttClient.open(node.port, MQTT_5)
    guess.send(Connect("guess", MQTT_5, True, 0, "alice", b"wrong", None, {}))
    assert (await guess.answer(ConnAck)).reason_code != 0
    tab = await window(browser, node)
    await tab.open("overview")
    await tab.shows("This node asks for a token")
    assert await tab.serious() == []
    token = await made_token(node, "admin")
    await log_in(tab, token)
    headers = {"Authorization": f"Bearer {token}"}
    log = await (await tab.page.request.get(f"{tab.base}/v1/event_log", headers=headers)).json()
    hold = {"group": "reports", "query": "q1", "log_id": log["log_id"], "offset": "0"}
    assert (await tab.page.request.post(f"{tab.base}/v1/event_log/hold", headers=headers, data=hold)).ok
    for view, text in (
        ("overview", "clients connected"),
        *(
            ("clients", "writer"),
            ("topics?topic=sensors/one", "writer"),
            ("log", "sensors/one"),
            ("pipelines", "reports"),
        ),
        ("access", "home/alice/#"),
    ):
        await tab.open(view)
        await tab.shows(text)
        assert await tab.serious() == [], view
        await tab.page.set_viewport_size(PHONE)
        assert await tab.serious() == [], f"{view} on a phone"
        assert await tab.page.evaluate(WIDER) == [], view
        await tab.page.set_viewport_size(SCREEN)
    await tab.page.locator("input[name=name]").fill("grafana")
    await tab.click("make a token")
    await tab.shows("The token is shown this once")
    assert await tab.serious() == []
    await tab.open("clients")
    await tab.page.get_by_role("link", name="writer").click()
    await tab.shows("sensors/#")
    assert await tab.serious() == []


async def test_what_is_published_from_the_page_is_what_was_chosen(nodes: Nodes, clients: Clients, browser: Any) -> None:
    node = nodes.make_federated()
    await node.start()
    reader = await clients.connect(node.port, "reader")
    await reader.subscribe("a/#", qos=2)
    tab = await window(browser, node)
    await tab.open("topics")
    publish = tab.page.locator("form").filter(has=tab.page.get_by_role("button", name="publish", exact=True))
    await publish.get_by_label("topic").fill("a/b")
    await publish.get_by_label("payload").fill("hello")
    await publish.locator("select").select_option("2")
    await publish.get_by_label("retained").check()
    await publish.get_by_role("button").click()
    message = await reader.message()
    assert (message.topic, message.payload, message.qos) == (b"a/b", b"hello", 2)
    assert (await node.rest("GET", "/v1/retained/a%2Fb"))[1]["qos"] == 2
    assert tab.faults == []


async def made_token(node: Node, role: str) -> str:
    command = [*node.program(), "-c", str(node.config_path), "token", "create", "--role", role]
    done = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={"PYTHONSAFEPATH": "1", "PATH": "/usr/bin:/bin"}
    )
    output, _ = await done.communicate()
    before = node.log().count("tokens=")
    os.kill(node.pid, signal.SIGHUP)
    await eventually(lambda: node.log().count("tokens=") > before, "the tokens are read again")
    return output.decode().strip()


async def log_in(tab: Window, token: str) -> None:
    await tab.page.get_by_label("token").fill(token)
    await tab.click("log in")


async def test_a_page_that_is_left_open_over_another_token_asks_for_it(nodes: Nodes, browser: Any) -> None:
    node = nodes.make_federated(overrides={"api": {"token_file": "tokens.yml"}})
    await node.start()
    tab = await window(browser, node)
    await tab.open("overview")
    await log_in(tab, await made_token(node, "read"))
    await tab.shows("clients connected")
    (node.directory / "tokens.yml").unlink()
    token = await made_token(node, "read")
    await tab.shows("This node asks for a token")
    await log_in(tab, token)
    await tab.shows("clients connected")
    assert tab.page.url.endswith("#/overview")


async def test_answers_that_are_slow_half_or_refused_are_told_and_pass(nodes: Nodes, browser: Any) -> None:
    node = nodes.make_federated()
    await node.start()
    tab = await window(browser, node)
    page = tab.page
    # The stream of events is refused at first.
    await page.route("**/v1/events", lambda route: route.fulfill(status=503, body="busy"))
    await tab.open("overview")
    await tab.shows("clients connected")
    await page.unroute("**/v1/events")

    async def event_is_shown() -> bool:
        await node.rest("PUT", "/v1/log_level", {"level": "info"})
        return bool(await page.get_by_text("the level of the log was changed by the API").count())

    await eventually(event_is_shown, "events are shown after the stream was refused")
    # Slow.
    release = asyncio.Event()

    async def held(route: Any) -> None:
        await release.wait()
        await route.continue_()

    await page.route("**/v1/node", held)
    await tab.shows("The node answers slowly")
    release.set()
    await tab.no_more("The node answers slowly")
    await page.unroute("**/v1/node")
    # Half of an answer.
    await page.route("**/v1/alarms", lambda route: route.fulfill(status=200, body='{"alarms": [{"level":'))
    await tab.shows("the answer came only in part")
    await page.unroute("**/v1/alarms")
    await tab.no_more("the answer came only in part")
    # A refusal that is no JSON.
    await page.route("**/v1/federation/members", lambda route: route.fulfill(status=502, body="<html>proxy</html>"))
    await tab.open("clients")
    await tab.open("overview")
    await tab.shows("nothing is wrong")
    await page.unroute("**/v1/federation/members")
    # Another version, after an upgrade.
    _, told = await node.rest("GET", "/v1/node")
    await page.route(
        "**/v1/node", lambda route: route.fulfill(status=200, body=json.dumps({**told, "version": "9.9.9"}))
    )
    await tab.shows("The node runs version 9.9.9 now")
    await tab.page.get_by_role("link", name="load this page again").wait_for(timeout=LIVE_MS)


TIME: Final = "2026-01-01T00:00:00Z"
GAUGES: Final = ("clients", "sessions", "messages_waiting")
NODES: Final = 50
CLIENTS: Final = 100_000


class Large:
    """Answers of the API of a cluster of NODES nodes with CLIENTS clients, in place of those of the node."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.node = {
            **node,
            "clients_connected": CLIENTS,
            "sessions": CLIENTS,
            "plugins": ["admin", "federation", "event_log", "links"],
        }
        self.names = [f"node{number:02}" for number in range(1, NODES + 1)]
        self.node["node_name"] = self.names[0]

    def answer(self, url: str) -> object:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        answers: dict[str, Callable[[], object]] = {
            "/v1/node": lambda: self.node,
            "/v1/alarms": lambda: {"alarms": []},
            "/v1/rates": self.rates,
            "/v1/federation/members": lambda: {"members": [self.member(name) for name in self.names]},
            "/v1/federation/peers": lambda: {"peers": [self.peer(name) for name in self.names[1:]]},
            "/v1/federation-links": lambda: {"links": [], "unanswered": []},
            "/v1/clients": lambda: self.clients(int(query.get("page", 1)), int(query["page_size"])),
            "/v1/event_log": lambda: self.log(query.get("node", self.names[0])),
            "/v1/event_log/records": lambda: {"records": [], "next_offset": "0", "end": True},
        }
        return answers[parts.path]()

    def rates(self) -> object:
        names = ("messages_received", "messages_sent", "messages_dropped", "bytes_received", "bytes_sent", *GAUGES)
        series = [{"name": name, "values": [float(number) for number in range(360)]} for name in names]
        return {"newest": TIME, "interval_seconds": 10.0, "series": series}

    def member(self, name: str) -> object:
        place = {"addr": "192.0.2.1:8902", "zone": "a", "since": TIME}
        status = "STATUS_FAILED" if name == self.names[-1] else "STATUS_ALIVE"
        return {"name": name, "status": status, "suspected": False, **place}

    def peer(self, name: str) -> object:
        figures = dict.fromkeys(("bytes_sent", "bytes_received", "outbox_bytes", "stored_bytes"), "1000000")
        state = {"state": "streaming", "stream": "direct", "tls": True, "behind": False, "dropped": {}}
        return {"node_name": name, "outbox_seconds": 0.0, **state, **figures}

    def clients(self, page: int, size: int) -> object:
        first = (page - 1) * size
        names = [f"client {number:06}" for number in range(first, min(CLIENTS, first + size))]
        same = {"version": 5, "connected_at": TIME, "remote_addr": "192.0.2.1:1"}
        return {"clients": [{"client_id": name, **same} for name in names], "total_count": CLIENTS}

    def log(self, node: str) -> object:
        others = [{"node": name, "status": "ALIVE", "has_log": True} for name in self.names if name != node]
        empty = {"first_offset": "0", "next_offset": "0", "log_id": "x", "holds": [], "bytes": "0"}
        return {"node": node, "members": others, **empty}


async def test_fifty_nodes_and_a_hundred_thousand_clients(nodes: Nodes, browser: Any, record_property: Any) -> None:
    node = nodes.make_federated()
    await node.start()
    _, told = await node.rest("GET", "/v1/node")
    large = Large(told)
    tab = await window(browser, node)

    async def answer(route: Any) -> None:
        await route.fulfill(
            status=200, content_type="application/json", body=json.dumps(large.answer(route.request.url))
        )

    await tab.page.route(lambda url: "/v1/" in url and not url.endswith("/v1/events"), answer)
    painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    figures = {}
    for view, text in (("overview", "node49"), ("clients", "client 000059"), ("log", "node50")):
        await tab.page.goto("about:blank")
        await tab.open(view)
        await tab.page.locator("main td").filter(has_text=text).first.wait_for(timeout=LIVE_MS)
        figures[view] = await tab.page.evaluate(f"[{painted}, performance.now()]")
    await tab.open("overview")
    branches = tab.page.locator(".branches li")
    await branches.nth(NODES - 2).wait_for(timeout=LIVE_MS)
    assert (await branches.first.inner_text()).startswith(large.names[-1])  # it has failed: what is wrong comes first
    assert await branches.count() == NODES - 1
    await tab.open("clients")
    await rows_settle(tab, 1, lambda cells: len(cells) == ROWS)
    await tab.click("next")
    found = await rows_settle(tab, 1, lambda cells: cells[:1] == ["client 000060"])
    assert len(found) == ROWS
    await tab.shows("page 2 of 1,667, 100,000 in all")
    await tab.open(f"clients?page={-(-CLIENTS // ROWS)}")
    assert len(await rows_settle(tab, 1, lambda cells: cells[-1:] == [f"client {CLIENTS - 1:06}"])) == CLIENTS % ROWS
    for view, (first, shown) in figures.items():
        print(f"{view}: first paint after {first:.0f} ms, rows after {shown:.0f} ms")
    record_property("first_paint_ms", {view: first for view, (first, _) in figures.items()})
    assert (tab.faults, tab.foreign) == ([], [])
