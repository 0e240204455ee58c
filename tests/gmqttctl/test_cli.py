"""The command gmqttctl: where its commands come from, and what is imported for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gmqttctl.cli import Commands, installed

# The modules of all commands lack a package.
MISSING = """
from gmqttctl import cli
from gmqttctl.cli import main
def lacks(name):
    raise ModuleNotFoundError("No module named 'missing_package'", name="missing_package")
cli.importlib.import_module = lacks
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


def test_the_help_names_the_commands_of_all_packages_and_imports_none() -> None:
    done = run(
        "import sys\n"
        "from gmqttctl.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'grpc', 'pyspark', 'google', 'aiohttp'}))"
    )
    *lines, imported = done.stdout.splitlines()
    named = {line.split()[0] for line in lines if line.startswith("  ")}
    assert {"federation_status", "list_clients", "log", "pipeline", "set_policy"} <= named
    assert imported == "[]"


def test_each_command_is_there() -> None:
    group = Commands()
    context = group.make_context("gmqttctl", ["help"])
    for name in installed():
        command = group.get_command(context, name)
        assert command is not None
        assert command.help


@pytest.mark.parametrize(("command", "hint"), [("log", True), ("list_clients", False)])
def test_the_extra_is_named_by_the_commands_of_pipelines_only(command: str, hint: bool) -> None:
    done = run(f"{MISSING}main(['{command}', '--help'])")
    assert done.returncode == 1
    assert ("gmqttd[pipeline]" in done.stderr) == hint
    assert "missing_package" in done.stderr


def test_a_stale_installation_is_named() -> None:
    done = run("from gmqttctl import cli\ncli.entry_points = lambda group: ()\ncli.main(['log'])")
    assert done.returncode == 1
    assert "gmqttctl.commands" in done.stderr
