"""The pid file: running nodes are detected, files of ended nodes are replaced, other files are never overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.pid_file import PidFileError, is_running_node, read_pid, remove_pid, write_pid

# A process whose command line is that of a node: the second word counts as the program of an interpreter.
WAITING = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def living_node(tmp_path: Path) -> Iterator[int]:
    script = tmp_path / "gmqttd"
    script.write_text(WAITING)
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # from here on it is the program that it was to become
        yield process.pid
        process.kill()


@pytest.fixture
def other_process() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", WAITING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # from here on it is the program that it was to become
        yield process.pid
        process.kill()


@pytest.fixture
def gone_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_write_and_remove(tmp_path: Path) -> None:
    path = tmp_path / "node.pid"
    write_pid(str(path))
    assert path.read_text() == str(os.getpid())
    write_pid(str(path))
    remove_pid(str(path))
    assert list(tmp_path.iterdir()) == []
    remove_pid(str(path))


def test_a_living_node_is_found_and_not_replaced(tmp_path: Path, living_node: int) -> None:
    path = tmp_path / "node.pid"
    path.write_text(f"{living_node}\n")
    assert read_pid(str(path)) == living_node
    with pytest.raises(PidFileError, match=f"process id {living_node} is running"):
        write_pid(str(path))
    remove_pid(str(path))
    assert path.exists()


def test_the_file_of_a_node_that_is_gone_is_replaced(tmp_path: Path, gone_pid: int) -> None:
    path = tmp_path / "node.pid"
    path.write_text(str(gone_pid))
    with pytest.raises(PidFileError, match="is gone"):
        read_pid(str(path))
    write_pid(str(path))
    assert path.read_text() == str(os.getpid())


def test_another_program_with_the_same_process_id_is_no_node(tmp_path: Path, other_process: int) -> None:
    path = tmp_path / "node.pid"
    path.write_text(str(other_process))
    assert not is_running_node(other_process)
    write_pid(str(path))
    assert path.read_text() == str(os.getpid())


@pytest.mark.parametrize("text", ["root:x:0:0", "-5", "12345678901", "\xff"])
def test_a_file_that_holds_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "passwd"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(PidFileError, match="holds no process id"):
        read_pid(str(path))
    with pytest.raises(PidFileError, match="not overwritten"):
        write_pid(str(path))
    assert path.read_text(encoding="latin-1") == text


def test_an_empty_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "node.pid"
    path.write_text("")
    write_pid(str(path))
    assert path.read_text() == str(os.getpid())


def test_faults_of_the_file_system(tmp_path: Path) -> None:
    with pytest.raises(PidFileError, match="no such file"):
        read_pid(str(tmp_path / "none"))
    with pytest.raises(PidFileError, match="cannot be written"):
        write_pid(str(tmp_path))
    (tmp_path / "file").write_text("1")
    with pytest.raises(PidFileError, match="there is no folder"):
        write_pid(str(tmp_path / "file" / "node.pid"))


def test_no_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "below"
    with pytest.raises(PidFileError, match=f"there is no folder {folder}; make it, or name another pid_file"):
        write_pid(str(folder / "node.pid"))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "is_node"),
    [
        (["-m", "broker", "start"], True),
        (["-X", "dev", "-m", "broker"], True),
        (["-m", "http.server", "broker"], False),
        (["-m", "brokers"], False),
    ],
)
def test_a_node_is_known_by_its_command_line(tmp_path: Path, arguments: list[str], is_node: bool) -> None:
    interpreter = tmp_path / "interpreter"
    interpreter.write_text("#!/bin/sh\necho\nread line\n")
    interpreter.chmod(0o755)
    with subprocess.Popen(
        ["/bin/sh", str(interpreter), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert is_running_node(process.pid) is is_node
