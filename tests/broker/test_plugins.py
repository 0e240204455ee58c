"""Plugins of other distributions: their entry points, and settings that are checked, printed and described."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from waiting import DEADLINE
from wording import check_named

SETTINGS: Final = '''
from dataclasses import dataclass, field

from broker.config.addresses import Address
from broker.config.setting import AddressText, Duration, Section, Setting, Text, Whole, described, setting


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered."""

    text: str = setting("hello", "The words of the answer.", Text("hello"))
    count: int = setting(2, "How often they are said.", Whole(1, 9, 2))


@dataclass(frozen=True, slots=True)
class GreeterSettings:
    """Greets whoever asks. More about it."""

    address: Address = setting(Address("tcp", "", 7000), "Where it listens.", AddressText(":7000", listens=True))
    delay: float = setting(5.0, "Time before the answer.", Duration(0.0, "5s"), "Raising it is slow.")
    reply: Reply = setting(Reply(), "The answer.", Section())
'''

IMPORTS: Final = SETTINGS.partition("\n\n\n")[0] + "\n"
FIELD: Final = '    delay: float = setting(5.0, "Time.", Duration(0.0, "5s"))'

PLUGIN: Final = """
from broker.plugins import Plugin


class Greeter(Plugin):
    async def start(self) -> None:
        self.server.stop_soon(f"greeter says {self.server.settings.plugins.greeter.reply.text}")


class NoPlugin:
    pass
"""

TELLING: Final = """
from broker.plugins import Plugin


class First(Plugin):
    def tell(self, call: str) -> None:
        print(f"{type(self).__name__} {call}, {len(self.server.listeners.addresses)} addresses", flush=True)

    async def prepare(self) -> None:
        self.tell("prepare")

    async def start(self) -> None:
        self.tell("start")
        self.server.stop_soon("the test is over")

    async def leave(self) -> None:
        self.tell("leave")

    async def stop(self) -> None:
        self.tell("stop")


class Second(First):
    pass
"""

ENTRY_POINTS: Final = """\
[gmqttd.plugins]
greeter = greeter.plugin:Greeter
[gmqttd.plugin_settings]
greeter = greeter.settings:GreeterSettings
"""


class Site:
    """A folder of installed distributions, in front of those of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "node.yml"

    def install(
        self, name: str, entry_points: str = ENTRY_POINTS, settings: str = SETTINGS, plugin: str = PLUGIN
    ) -> None:
        package = self.folder / name
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "settings.py").write_text(settings)
        (package / "plugin.py").write_text(plugin)
        metadata = self.folder / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(entry_points)

    def run(self, command: str, config: str = "") -> subprocess.CompletedProcess[str]:
        """`gmqttd COMMAND` with a configuration file of this text."""
        self.config.write_text(config)
        arguments = ["-c", str(self.config), command] if config else [command]
        return subprocess.run(
            [sys.executable, "-m", "broker", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_settings_of_an_installed_plugin_are_read_and_printed(site: Site) -> None:
    site.install("greeter")
    done = site.run("check", "plugin_order: [greeter]\nplugins: {greeter: {delay: 90s, reply: {count: 3}}}\n")
    assert done.returncode == 0
    assert "plugins.greeter.address :7000" in done.stderr, "it is open on every interface"
    assert (
        "  greeter:\n    address: :7000\n    delay: 1m30s\n    reply:\n      text: hello\n      count: 3\n"
        in done.stdout
    )
    assert "  federation:\n" not in done.stdout, "plugin_order does not name it"


def test_the_settings_of_an_installed_plugin_are_described(site: Site) -> None:
    site.install("greeter")
    done = site.run("defaults")
    assert (done.returncode, done.stderr) == (0, "")
    assert "#  # Greets whoever asks.\n#  greeter:\n#    # Where it listens.\n" in done.stdout
    assert "#    # Time before the answer. Raising it is slow.\n#    delay: 5s\n" in done.stdout
    assert "#      # How often they are said.\n#      count: 2\n" in done.stdout


@pytest.mark.parametrize(
    ("config", "key", "parts"),
    [
        ("plugins:\n  greeter:\n    dely: 1s\n", "3: plugins.greeter.dely", ["unknown", "plugins.greeter.delay"]),
        (
            "plugins:\n  greeter:\n    reply:\n      count: 10\n",
            "4: plugins.greeter.reply.count",
            ['"10"', "1..9", "for example 2"],
        ),
        (
            "plugin_order: [greeter]\nlisteners: [{address: ':7000'}]\n",
            " plugins.greeter.address",
            ['":7000"', "listeners[0].address"],
        ),
        ("plugin_order: [greeting]\n", "1: plugin_order[0]", ['"greeting"', "greeter"]),
    ],
)
def test_a_fault_names_the_whole_path_of_the_key(site: Site, config: str, key: str, parts: list[str]) -> None:
    site.install("greeter")
    done = site.run("check", config)
    assert done.returncode == 2
    check_named(done.stderr, [f"{site.config}:{key}: ", *parts])
    assert done.stderr.count("\n") == 1


def test_the_plugin_runs_with_its_settings(site: Site) -> None:
    site.install("greeter")
    done = site.run(
        "start",
        "listeners: [{address: '127.0.0.1:0'}]\nplugin_order: [greeter]\nplugins: {greeter: {reply: {text: salve}}}\n",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "gmqttd: greeter says salve"


def test_keys_of_a_plugin_that_does_not_run_draw_a_warning(site: Site) -> None:
    site.install("greeter")
    done = site.run("check", "plugins: {greeter: {delay: 1s}}\n")
    assert done.returncode == 0
    check_named(done.stderr, ["plugins.greeter: ", "plugin_order", "no effect"])


def test_a_plugin_may_have_no_keys(site: Site) -> None:
    site.install("greeter", "[gmqttd.plugins]\ngreeter = greeter.plugin:Greeter\n")
    done = site.run("check", "plugin_order: [greeter]\nplugins: {greeter: {delay: 1s}}\n")
    assert done.returncode == 2
    check_named(done.stderr, ["plugins.greeter: ", "no keys"])


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ("import nothing_like_this\n", ["ModuleNotFoundError", "nothing_like_this"]),
        ("GreeterSettings = 5\n", ["greeter.settings:GreeterSettings", "frozen dataclass"]),
        (
            "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass GreeterSettings:\n    delay: float = 5.0\n",
            ["GreeterSettings.delay", "Setting"],
        ),
        (f"{IMPORTS}@dataclass\nclass GreeterSettings:\n{FIELD}\n", ["GreeterSettings", "frozen dataclass"]),
        (
            f"{IMPORTS}@dataclass(frozen=True)\nclass GreeterSettings:\n"
            '    delay: float = field(metadata=described(Setting("Time.", Duration(0.0, "5s"))))\n',
            ["GreeterSettings.delay", "default"],
        ),
    ],
)
def test_settings_that_cannot_be_used_are_a_fault_of_the_file_that_names_the_plugin(
    site: Site, settings: str, parts: list[str]
) -> None:
    site.install("greeter", settings=settings)
    done = site.run("check", "plugin_order: [greeter]\n")
    assert done.returncode == 2, done
    check_named(done.stderr, [f"{site.config}:1: plugin_order[0]: ", "gmqttd.plugin_settings", *parts])
    assert "Traceback" not in done.stderr
    assert site.run("check", "plugin_order: [admin]\n").returncode == 0, "nobody asked for the plugin"


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [("Greeter = 5\n", "broker.plugins.Plugin"), ("raise OSError('no card')\n", "OSError: no card")],
)
def test_a_plugin_that_cannot_be_loaded_stops_the_start(site: Site, plugin: str, reason: str) -> None:
    site.install("greeter", plugin=plugin)
    done = site.run("start", "listeners: [{address: '127.0.0.1:0'}]\nplugin_order: [greeter]\n")
    assert done.returncode == 1
    check_named(done.stderr.splitlines()[-1], ["greeter.plugin:Greeter", reason])
    assert done.stderr.count("gmqttd: ") == 1
    assert "Traceback" not in done.stderr


def test_two_plugins_with_one_name_are_both_refused(site: Site) -> None:
    site.install("greeter")
    site.install("other", ENTRY_POINTS.replace("= greeter.", "= other."))
    done = site.run("check", "plugin_order: [greeter]\n")
    assert done.returncode == 2
    check_named(done.stderr, ["greeter", "other", "uninstall"])


def test_the_order_of_the_calls(site: Site) -> None:
    """All prepare before any starts; all are stopped, in reverse."""
    entry_points = "[gmqttd.plugins]\nfirst = teller.plugin:First\nsecond = teller.plugin:Second\n"
    site.install("teller", entry_points, plugin=TELLING)
    done = site.run("start", "listeners: [{address: '127.0.0.1:0'}]\nplugin_order: [first, second]\n")
    assert done.returncode == 1, done
    assert done.stdout.split("\n")[:-1] == [
        "First prepare, 0 addresses",
        "Second prepare, 0 addresses",
        "First start, 1 addresses",
        "Second start, 1 addresses",
        "First leave, 1 addresses",
        "Second leave, 1 addresses",
        "Second stop, 1 addresses",
        "First stop, 1 addresses",
    ]
