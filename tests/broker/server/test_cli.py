"""The command: exit statuses, output, and the search for the configuration file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from broker.config.loader import load_bytes
from broker.config.settings import Settings
from broker.server.cli import main
from broker.server.form import version_text
from waiting import DEADLINE

GMQTTD: Final = "from broker.server.cli import main; main(prog_name='gmqttd')"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_check_prints_the_effective_configuration(tmp_path: Path) -> None:
    config = tmp_path / "a.yml"
    config.write_text("mqtt: {max_inflight: 7}\npersistence: {redis: {password: hunter2}}\nconfig_dir: /etc/gmqtt\n")
    result = call("check", "-c", str(config))
    assert result.exit_code == 0
    assert "  max_inflight: 7\n" in result.stdout
    assert "hunter2" not in result.output
    assert "warning: " in result.stderr
    assert "config_dir: this key has no effect" in result.stderr
    assert load_bytes(result.stdout.encode(), "printed").settings is not None


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("plugin_order: []\n", []),
        ("plugin_order: [auth]\n", ["listeners[0].address :1883"]),
        (
            "listeners: [{address: '0.0.0.0:1'}, {address: '[::]:2'}, {address: '127.0.0.1:3'}, {address: '192.0.2.1:4'}]\n"
            "plugin_order: [federation]\nplugins: {federation: {gossip_addr: '127.0.0.1:5'}}\n",
            ["listeners[0].address 0.0.0.0:1", "listeners[1].address [::]:2", "plugins.federation.fed_addr :8901"],
        ),
    ],
)
def test_check_names_the_addresses_on_every_interface(tmp_path: Path, text: str, addresses: list[str]) -> None:
    config = tmp_path / "a.yml"
    config.write_text(text)
    found = [line for line in call("check", "-c", str(config)).stderr.splitlines() if "every interface" in line]
    assert len(found) == (1 if addresses else 0)
    assert all(address in found[0] for address in addresses)
    assert not any(host in line for line in found for host in ("127.0.0.1", "192.0.2.1"))


@pytest.mark.parametrize("command", ["check", "start", "reload"])
def test_every_fault_is_printed_with_exit_status_2(tmp_path: Path, command: str) -> None:
    config = tmp_path / "a.yml"
    config.write_text("mqtt: {max_inflight: a}\nlogs: 1\n")
    result = call(command, "-c", str(config))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f'{config}:1: mqtt.max_inflight: "a" is not a whole number of 1..65535; for example 100',
        f"{config}:2: logs: unknown key; the nearest known one is log",
    ]


@pytest.mark.parametrize("arguments", [["check"], ["version"], ["--version"], ["defaults"], ["--help"]])
def test_a_command_says_when_its_output_cannot_be_written(tmp_path: Path, arguments: list[str]) -> None:
    config = tmp_path / "a.yml"
    config.write_text("mqtt: {max_inflight: 7}\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "broker", "-c", str(config), *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "gmqttd: standard output cannot be written: No space left on device\n"


def test_the_default_file_is_in_the_home_directory_or_that_of_the_go_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_file = tmp_path / "etc.yml"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("broker.server.cli.GO_CONFIG_FILE", str(go_file))
    result = call("check")
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"gmqttd: neither {tmp_path}/gmqtt.yml nor {go_file} exists; name a configuration file with -c FILE\n"
    )
    go_file.write_text("log: {level: debug}\n")
    assert "level: debug" in call("check").stdout
    (tmp_path / "gmqtt.yml").write_text("log: {level: error}\n")
    assert "level: error" in call("check").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "FILE", "check"],
        ["check", "-c", "FILE"],
        ["--config", "FILE", "check"],
        ["-c", "x", "check", "-c", "FILE"],
    ],
)
def test_the_file_is_named_before_or_after_the_command(tmp_path: Path, arguments: list[str]) -> None:
    config = tmp_path / "a.yml"
    config.write_text("mqtt: {max_inflight: 7}\n")
    result = call(*[str(config) if word == "FILE" else word for word in arguments])
    assert result.exit_code == 0, result.output
    assert "max_inflight: 7" in result.stdout


@pytest.mark.parametrize("command", ["check", "start", "reload"])
def test_a_missing_plugin_is_a_fault_until_it_is_allowed(tmp_path: Path, command: str) -> None:
    config = tmp_path / "a.yml"
    config.write_text("plugin_order: [quota]\n")
    result = call(command, "-c", str(config))
    assert result.exit_code == 2
    assert 'plugin_order[0]: no plugin "quota" is installed;' in result.stderr
    assert result.stderr.endswith("; --allow-missing starts without it\n")


def test_check_warns_of_missing_plugins_that_are_allowed(tmp_path: Path) -> None:
    config = tmp_path / "a.yml"
    config.write_text("plugin_order: [quota]\n")
    result = call("check", "-c", str(config), "--allow-missing")
    assert result.exit_code == 0
    assert result.stderr.startswith(f'warning: {config}:1: plugin_order[0]: no plugin "quota" is installed; ')


def test_the_defaults_are_printed() -> None:
    result = call("defaults")
    assert result.exit_code == 0
    assert load_bytes(result.stdout.encode(), "printed").settings == Settings()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_its_completions(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GMQTTD],
        env={**os.environ, "_GMQTTD_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "complet" in done.stdout


def test_a_completion_needs_no_configuration_file() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GMQTTD],
        env={**os.environ, "_GMQTTD_COMPLETE": "bash_complete", "COMP_WORDS": "gmqttd check --a", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "plain,--allow-missing\n", "")


@pytest.mark.parametrize("arguments", ["version", "--version"])
def test_version(arguments: str) -> None:
    result = call(arguments)
    assert result.exit_code == 0
    first, *more = result.stdout.splitlines()
    assert first == f"gmqttd {version_text()}"
    if arguments == "version":
        folder = more[0].removeprefix("configurations, systemd unit, documentation: ")
        assert (Path(folder) / "configs" / "gmqttd.service").is_file()


def test_check_needs_no_event_loop_and_no_grpc(tmp_path: Path) -> None:
    config = tmp_path / "a.yml"
    config.write_text("log: {level: debug}\n")
    program = (
        "import sys\nfrom broker.server.cli import main\n"
        "try:\n    main(['check', '-c', sys.argv[1]])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'asyncio', 'uvloop', 'grpc', 'aiohttp', 'structlog'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program, str(config)], check=True, timeout=DEADLINE, capture_output=True)


def test_reload_needs_a_pid_file_and_a_node(tmp_path: Path) -> None:
    config = tmp_path / "a.yml"
    config.write_text("log: {level: info}\n")
    result = call("reload", "-c", str(config))
    assert result.exit_code == 1
    assert "pid_file is not set" in result.stderr
    pid_file = tmp_path / "node.pid"
    config.write_text(f"pid_file: {pid_file}\n")
    result = call("reload", "-c", str(config))
    assert (result.exit_code, "there is no such file" in result.stderr) == (1, True)
    pid_file.write_text("999999999")
    result = call("reload", "-c", str(config))
    assert (result.exit_code, "no gmqttd has the process id" in result.stderr) == (1, True)
    pid_file.write_text("words")
    result = call("reload", "-c", str(config))
    assert (result.exit_code, "holds no process id" in result.stderr) == (1, True)
