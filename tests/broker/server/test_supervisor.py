"""The processes of workers as the supervisor sees them: which end, what they say, and what the system refuses."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from broker.config.loader import load
from broker.config.settings import Settings
from broker.server.start_error import StartError
from broker.server.supervisor import Supervisor
from broker.server.worker import DRAINED
from broker.workers.supervision import TURN_SECONDS, State

if TYPE_CHECKING:
    from pathlib import Path


class Scripted(Supervisor):
    """Its workers say what they are to say and wait for their end. `turn` is one turn of the loop."""

    says: tuple[bytes, ...] = (b"READY=1",)

    def _become_worker(self, index: int, channel: socket.socket) -> NoReturn:
        # By a pipe: a signal that comes before the wait, or to a thread that a library has started in the fork, counts, too.
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGTERM, lambda *_: None)
        for text in self.says:
            channel.send(text)
        os.read(reading, 1)
        os._exit(0)

    def begin(self) -> None:
        self.reading, self.writing = socket.socketpair()
        self._selector.register(self.reading, selectors.EVENT_READ)
        self._core.begin(time.monotonic())
        self.carry_out()

    def carry_out(self) -> int:
        return self._carry_out()

    def signalled(self, number: int) -> None:
        self.writing.send(bytes([number]))

    def turn(self, wanted: int = 1) -> int:
        """Take what has come as soon as it is so much, signals first. Returns the exit status, -1 while the node runs."""
        events: list[Any] = self._selector.select(TURN_SECONDS)
        while len(events) < wanted:
            events = self._selector.select()
        events.sort(key=lambda found: found[0].fileobj is not self.reading)
        self._take(events, self.reading, time.monotonic())
        self._core.handle_timeout(time.monotonic())
        return self.carry_out()

    def until_serving(self) -> None:
        while any(worker.state in (State.STARTING, State.WAITING) for worker in self._core.workers.values()):
            self.turn(0)

    def kill(self, *indexes: int, number: int = signal.SIGKILL) -> None:
        """End these workers, as the system tells the supervisor."""
        for process, index in list(self._processes.items()):
            if index in indexes:
                os.kill(process, number)
                os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        self.signalled(signal.SIGCHLD)

    def end(self) -> None:
        self.signalled(signal.SIGTERM)
        self.turn()
        self.kill(*self._core.workers)
        self._take_ends(time.monotonic())
        assert self.carry_out() >= 0
        self.close()
        self.reading.close()
        self.writing.close()

    @property
    def given(self) -> Settings:
        """What the next worker is given."""
        return self._settings

    @given.setter
    def given(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def restarts(self) -> dict[int, int]:
        return self._core.restarts


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Scripted]:
    found = Scripted(Settings(workers="2", listeners=(), data_dir=str(tmp_path / "data")), "", False)
    found.begin()
    found.until_serving()
    yield found
    found.end()


def test_workers_that_end_at_the_same_time_are_started_again(supervisor: Scripted) -> None:
    supervisor.kill(0, 1)
    supervisor.turn(3)
    supervisor.until_serving()
    assert supervisor.restarts == {0: 1, 1: 1}


@pytest.mark.parametrize("is_said", [False, True])
def test_the_folder_of_a_worker_that_leaves_is_removed_after_its_word_only(tmp_path: Path, is_said: bool) -> None:
    folder = tmp_path / "data" / "worker-2"
    folder.mkdir(parents=True)
    supervisor = Scripted(Settings(workers="2", listeners=(), data_dir=str(tmp_path / "data")), "", False)
    supervisor.says = (DRAINED.encode(), b"READY=1") if is_said else (b"READY=1",)
    supervisor.begin()
    supervisor.until_serving()
    supervisor.kill(2, number=signal.SIGTERM)  # it ends with status 0 then, as workers do
    supervisor.turn()
    supervisor.until_serving()
    assert folder.exists() is not is_said
    supervisor.end()


@pytest.mark.parametrize("call", ["fork", "socketpair"])
def test_a_worker_that_the_system_has_no_room_for_is_tried_again(
    supervisor: Scripted, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    supervisor.kill(1)
    with monkeypatch.context() as patch:
        patch.setattr(os if call == "fork" else socket, call, refuse)
        supervisor.turn()  # it is to be started
        assert supervisor.restarts == {0: 0, 1: 2}
    supervisor.until_serving()


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="data_dir"):
        Supervisor(Settings(workers="2", listeners=(), data_dir=str(tmp_path / "file" / "data")), "", False)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_worker_begins_with_what_the_last_good_file_says_and_a_reload_takes_over(tmp_path: Path) -> None:
    file = tmp_path / "node.yml"

    def write(anonymous: str, port: int, more: str = "") -> None:
        file.write_text(
            f"workers: 2\nlisteners: [{{address: '127.0.0.1:{port}', allow_anonymous: {anonymous}}}]\n"
            f"data_dir: {tmp_path / 'data'}\nplugin_order: [auth]\n{more}\n"
        )

    write("true", 1883)
    given = load(str(file)).settings
    assert given is not None
    supervisor = Scripted(replace(given, listeners=()), str(file), False)
    supervisor.given = given
    supervisor.begin()
    supervisor.until_serving()
    write("false", 1883, "mqtt: {max_inflight: 7}\npersistence: {type: memory}")
    supervisor.signalled(signal.SIGHUP)
    supervisor.turn()
    assert not supervisor.given.listeners[0].allow_anonymous
    assert supervisor.given.mqtt.max_inflight == 7
    assert supervisor.given.persistence == given.persistence, "it needs a restart"
    write("true", 1883, "nonsense: [")
    supervisor.signalled(signal.SIGHUP)
    supervisor.turn()
    assert not supervisor.given.listeners[0].allow_anonymous
    supervisor.end()


def test_systemd_is_not_told_of_a_node_that_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        supervisor = Scripted(Settings(workers="2", listeners=(), data_dir=str(tmp_path / "data")), "", False)
        supervisor.says = ()
        supervisor.begin()
        supervisor.signalled(signal.SIGHUP)
        supervisor.turn()
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(4096)
        supervisor.end()
