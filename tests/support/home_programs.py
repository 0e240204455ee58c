"""Programs of home automation, each a process at a node, with the settings of docs/how-to/home-automation.md.

`scripts/setup --packages` brings them where they are to be had.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from repository import ROOT
from waiting import eventually

PAGE: Final = ROOT / "docs/how-to/home-automation.md"
NODE_JS: Final = shutil.which("node")
PACKAGES: Final = ROOT / "run/packages"
NODE_RED: Final = PACKAGES / "node_modules/node-red/red.js"
ZIGBEE2MQTT: Final = PACKAGES / "node_modules/zigbee2mqtt/index.js"
RADIO: Final = ROOT / "tests/support/zigbee_radio.cjs"
TELEGRAF: Final = PACKAGES / "bin/telegraf"
HOME_ASSISTANT: Final = PACKAGES / "homeassistant/bin/hass"
SECONDS: Final = 400.0  # that each of them may take to start, beside other work


def documented(heading: str, port: int) -> str:
    """The indented block of that part of the page, for the node at this port of this machine."""
    part = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = "\n".join(line[4:] for line in part.splitlines() if line.startswith("    "))
    assert "192.0.2.1:1883" in block, heading
    return block.replace("192.0.2.1:1883", f"127.0.0.1:{port}")


class Program:
    """A process in its own folder, whose output is its log."""

    def __init__(self, folder: Path, *command: str | Path, **variables: str) -> None:
        folder.mkdir()
        self.folder = folder
        self._command = [str(word) for word in command]
        self._variables = variables
        self._log = folder / "log"
        self._process: asyncio.subprocess.Process | None = None

    def text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def start(self, words: str) -> None:
        """Return when its log has these words once more."""
        before = self.text().count(words)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self.folder,
                env={**os.environ, **self._variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # with what it starts
            )
        await eventually(lambda: self.text().count(words) > before, f"{words} in {self._log}", SECONDS)

    async def end(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, number)
            await self._process.wait()
            self._process = None


def node_red(folder: Path, port: int, editor_port: int) -> Program:
    flows = folder / "flows.json"
    red = Program(folder, NODE_JS or "", NODE_RED, "--userDir", folder / "user", "--port", str(editor_port), flows)
    flows.write_text(json.dumps(node_red_flows(port)))
    return red


def node_red_flows(port: int) -> list[dict[str, Any]]:
    """Reads temperatures of zigbee2mqtt, and publishes them in another unit."""
    status = {"Topic": "node-red/status", "Qos": "1", "Retain": "true"}
    words = {"birth": "online", "will": "offline"}
    broker = {
        **{"id": "b1", "type": "mqtt-broker", "broker": "127.0.0.1", "port": str(port), "clientid": "node-red"},
        **{"autoConnect": True, "usetls": False, "protocolVersion": "5", "keepalive": "60"},
        **{"cleansession": False, "sessionExpiry": "3600"},
        **{f"{word}{name}": value for word in words for name, value in status.items()},
        **{f"{word}Payload": text for word, text in words.items()},
    }
    function = (
        "msg.topic = 'house/' + msg.topic.split('/')[1];\n"
        "msg.payload = {fahrenheit: msg.payload.temperature * 1.8 + 32};\nreturn msg;"
    )
    tab = {"z": "t1", "broker": "b1"}
    return [
        {"id": "t1", "type": "tab", "label": "house"},
        broker,
        {
            **{"id": "i1", "type": "mqtt in", "topic": "zigbee2mqtt/+", "qos": "2", "datatype": "auto-detect"},
            **{"nl": False, "rap": True, "rh": 0, "inputs": 0, "wires": [["f1"]], **tab},
        },
        {"id": "f1", "type": "function", "z": "t1", "func": function, "outputs": 1, "wires": [["o1"]]},
        {"id": "o1", "type": "mqtt out", "topic": "", "qos": "1", "retain": "true", "wires": [], **tab},
    ]


def zigbee2mqtt(folder: Path, port: int) -> Program:
    """It knows the sensor `kitchen` and the outlet `outlet` of zigbee_radio.cjs."""
    made = Program(folder, NODE_JS or "", "--require", RADIO, ZIGBEE2MQTT, ZIGBEE2MQTT_DATA=str(folder))
    (folder / "secret.yaml").write_text("mqtt_password: secret\n")
    (folder / "configuration.yaml").write_text(
        documented("zigbee2mqtt", port)
        + """
serial: {port: /dev/null, adapter: zstack}
homeassistant: {enabled: true}
frontend: {enabled: false}
advanced: {log_output: [console]}
devices:
  "0x0000000000000201": {friendly_name: kitchen}
  "0x0000000000000301": {friendly_name: outlet}
"""
    )
    return made


def telegraf(folder: Path, port: int) -> Program:
    """Writes what it reads to `out` in its folder."""
    made = Program(folder, TELEGRAF, "--config", folder / "telegraf.conf")
    (folder / "telegraf.conf").write_text(
        "[agent]\n  interval = '1s'\n  flush_interval = '1s'\n"
        + documented("Telegraf", port)
        + f"\n[[outputs.file]]\n  files = ['{folder / 'out'}']\n"
    )
    return made


def preset(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """What a form of Home Assistant has in it before anybody writes; its parts that are folded are forms, too."""
    found: dict[str, Any] = {}
    for field in fields:
        selector = field.get("selector", {})
        if field.get("type") == "expandable":
            found[field["name"]] = preset(field["schema"])
        elif "default" in field:
            found[field["name"]] = field["default"]
        elif field.get("required") and "boolean" in selector:
            found[field["name"]] = False
        elif field.get("required") and "select" in selector:
            first = selector["select"]["options"][0]
            found[field["name"]] = first["value"] if isinstance(first, dict) else first
    return found


class HomeAssistant:
    """The process, and calls of its HTTP API as those that its own pages make."""

    def __init__(self, folder: Path, mqtt_port: int, http_port: int) -> None:
        self.program = Program(folder, HOME_ASSISTANT, "--config", folder, "--skip-pip", "--verbose")
        text = f"http: {{server_host: 127.0.0.1, server_port: {http_port}}}\napi:\nconfig:\nonboarding:\nfrontend:\n"
        (folder / "configuration.yaml").write_text(text)
        self._mqtt_port = mqtt_port
        self._url = f"http://127.0.0.1:{http_port}"
        self._token = ""

    async def call(self, path: str, body: object = None) -> Any:
        """GET without a body, else POST. Raises OSError."""

        def asked() -> Any:
            headers = {"Content-Type": "application/json"}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            data = None if body is None else json.dumps(body).encode()
            if path == "/auth/token":
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                data = urllib.parse.urlencode(body).encode()  # type: ignore[arg-type]
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            request = urllib.request.Request(f"{self._url}{path}", data, headers)
            try:
                with opener.open(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{path}: {error}: {error.read().decode(errors='replace')}") from error

        return await asyncio.to_thread(asked)

    async def start(self) -> None:
        await self.program.start("Home Assistant initialized")

    async def set_up(self) -> None:
        """Make the first user, and add the integration MQTT."""
        client = f"{self._url}/"
        user = {"name": "owner", "username": "owner", "password": "secret", "language": "en", "client_id": client}
        code = (await self.call("/api/onboarding/users", user))["auth_code"]
        grant = {"grant_type": "authorization_code", "code": code, "client_id": client}
        self._token = (await self.call("/auth/token", grant))["access_token"]
        flow = await self.call("/api/config/config_entries/flow", {"handler": "mqtt"})
        broker = {**preset(flow["data_schema"]), "broker": "127.0.0.1", "port": self._mqtt_port}
        done = await self.call(f"/api/config/config_entries/flow/{flow['flow_id']}", broker)
        assert done["type"] == "create_entry", done

    async def states(self) -> dict[str, str]:
        return {state["entity_id"]: state["state"] for state in await self.call("/api/states")}
