"""The workers of a node, without I/O: which process is started, ended, or started again, and when the node ends.

The owner tells what it has seen (`heard`, `ready`, `died`), what an operator asks for (`stop`, `reload`), and the time. It
carries out `take_effects`. A worker that serves and does not say within SILENT_SECONDS_MAX that it lives is ended, because
the kernel gives it connections that it does not serve. A worker that ends is started again at once; one that ends again and
again is started after a time that doubles, and after DEATHS_MAX ends within DEATHS_SECONDS the node ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.message import NEVER

SILENT_SECONDS_MAX: Final = 8.0  # between two signs of life of a worker; each has one a second
LOADING_SECONDS_MAX: Final = 300.0  # from the start of a worker until it serves: it reads its store in one turn
TURN_SECONDS: Final = 1.0  # the owner calls `turn` as often …
LATE_SECONDS: Final = 1.0  # … or has stood still itself when it comes so much later
DEATHS_SECONDS: Final = 60.0
DEATHS_MAX: Final = 6  # of one worker within DEATHS_SECONDS
PAUSE_SECONDS: Final = 0.25  # before the second start again; it doubles from there
PAUSE_SECONDS_MAX: Final = 4.0
STOP_SECONDS_MAX: Final = 6.0  # a worker ends itself before (run.EXIT_TIMEOUT)


class Step(Enum):
    """The actions of the owner on the process of a worker."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    RELOAD = "reload"
    CLEAR = "clear"  # it has given all away: its folder is not needed any more


@dataclass(frozen=True, slots=True)
class Do:
    """One step for one worker. `reason` is for the log, "" where there is nothing to say."""

    step: Step
    index: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeReady:
    """All workers serve, for the first time or after a reload."""


@dataclass(frozen=True, slots=True)
class NodeEnds:
    """No process is left. `reason` is "" after a stop that was asked for."""

    is_clean: bool
    reason: str = ""


Effect = Do | NodeReady | NodeEnds


class State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    ENDING = "ending"  # it is told to end, or killed
    WAITING = "waiting"  # for its next start
    ENDED = "ended"


MOVES: Final = {
    State.STARTING: (State.SERVING, State.ENDING, State.WAITING, State.ENDED),
    State.SERVING: (State.SERVING, State.ENDING, State.WAITING, State.ENDED),
    State.ENDING: (State.ENDING, State.WAITING, State.ENDED),
    State.WAITING: (State.STARTING, State.ENDED),
    State.ENDED: (),
}

LIVING: Final = {State.STARTING: LOADING_SECONDS_MAX, State.SERVING: SILENT_SECONDS_MAX}  # how long each may be silent


class Watched:
    """One worker. `deaths` are the times of its ends within DEATHS_SECONDS; `at` is when it is started, or killed."""

    def __init__(self, is_leaving: bool) -> None:
        self.is_leaving = is_leaving
        self.state = State.WAITING
        self.heard_at = 0.0
        self.at = NEVER
        self.has_served = False
        self.has_given_all = False  # by this process
        self.must_reload = False  # this process began with the settings from before a reload
        self.deaths: deque[float] = deque()

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], (self.state, state)
        self.state = state


class Supervision:
    """`begin`, then what happens. `restarts` and `hung` count, for the log and the metrics, by worker."""

    def __init__(self, count: int, leaving: Sequence[int] = ()) -> None:
        """leaving  workers of an earlier start that have only to give away what they have"""
        self.workers = {index: Watched(False) for index in range(count)} | {index: Watched(True) for index in leaving}
        self.restarts = dict.fromkeys(self.workers, 0)
        self.hung = dict.fromkeys(self.workers, 0)
        self.is_stopping = False
        self._reason = ""
        self._is_clean = True
        self._is_ready = False
        self._turn_at = NEVER
        self._effects: list[Effect] = []

    def take_effects(self) -> list[Effect]:
        effects = self._effects
        self._effects = []
        return effects

    def begin(self, now: float) -> None:
        for index in self.workers:
            self._start(index, now)

    def _start(self, index: int, now: float) -> None:
        worker = self.workers[index]
        worker.move(State.STARTING)
        worker.heard_at = now
        worker.at = NEVER
        worker.has_given_all = worker.must_reload = False
        self._effects.append(Do(Step.START, index))

    # --- what is seen

    def heard(self, index: int, now: float) -> None:
        """The worker has said that it lives."""
        self.workers[index].heard_at = now

    def turn(self, now: float) -> None:
        """Called before what is seen is told. The workers of an owner that stood still (SIGSTOP, a paused container) did so,
        too, and what they would have said has not come yet: all count as heard now."""
        if now - self._turn_at > TURN_SECONDS + LATE_SECONDS:
            for worker in self.workers.values():
                if worker.state in LIVING:
                    worker.heard_at = now
        self._turn_at = now

    def given_all(self, index: int) -> None:
        """The worker has nothing left that others do not have, and ends."""
        self.workers[index].has_given_all = True

    def present(self) -> list[int]:
        """Return the workers without those that have given all away: nobody hears of these any more."""
        return [index for index, worker in self.workers.items() if not worker.has_given_all]

    def ready(self, index: int, now: float) -> None:
        """The worker serves, after its start or after a reload."""
        worker = self.workers[index]
        worker.heard_at = now
        if worker.state is not State.STARTING:
            return
        worker.move(State.SERVING)
        worker.has_served = True
        if worker.must_reload:
            worker.must_reload = False
            self._effects.append(Do(Step.RELOAD, index))
        serving = all(one.has_served for one in self.workers.values() if not one.is_leaving)
        if serving and not self._is_ready:
            self._is_ready = True
            self._effects.append(NodeReady())

    def died(self, index: int, status: int, now: float) -> None:
        """The process of the worker has ended. `status` is negative for the number of a signal."""
        worker = self.workers[index]
        worker.at = NEVER
        if self.is_stopping:
            self._is_clean = self._is_clean and status == 0
            worker.move(State.ENDED)
            self._look_whether_over()
        elif worker.is_leaving and worker.has_given_all and status == 0:
            worker.move(State.ENDED)
            self._effects.append(Do(Step.CLEAR, index))
        elif not worker.has_served and not self._is_ready and status > 0:
            worker.move(State.ENDED)
            self._end(f"worker {index} has not started", now)
        else:
            self._start_later(index, worker, status, now)

    def _start_later(self, index: int, worker: Watched, status: int, now: float) -> None:
        deaths = worker.deaths
        deaths.append(now)
        while deaths[0] <= now - DEATHS_SECONDS:
            deaths.popleft()
        if len(deaths) >= DEATHS_MAX:
            worker.move(State.ENDED)
            self._end(
                f"worker {index} has ended {len(deaths)} times in {DEATHS_SECONDS:g} s, last with {told(status)}", now
            )
            return
        self.restarts[index] += 1
        worker.move(State.WAITING)
        pause = PAUSE_SECONDS * 2.0 ** (len(deaths) - 2) if len(deaths) > 1 else 0.0
        worker.at = now + min(pause, PAUSE_SECONDS_MAX)

    # --- what an operator asks for

    def stop(self, now: float) -> None:
        """End all workers, then the node. A second time: the workers are told again, which end at once then."""
        is_first = not self.is_stopping
        self.is_stopping = True
        for index, worker in self.workers.items():
            if worker.state is State.WAITING:
                worker.at = NEVER
                worker.move(State.ENDED)
            elif worker.state is not State.ENDED:
                worker.move(State.ENDING)
                self._effects.append(Do(Step.STOP, index))
                if is_first:
                    worker.at = now + STOP_SECONDS_MAX
        self._look_whether_over()

    def reload(self, now: float) -> bool:
        """Have all workers read the configuration again, which the owner has read: one that is starting does it when it serves,
        and one that starts later begins with that. Returns whether the node is ready, which an owner must not say before."""
        for index, worker in self.workers.items():
            if worker.state is State.SERVING:
                self._effects.append(Do(Step.RELOAD, index))
            worker.must_reload = worker.state is State.STARTING
        return self._is_ready

    def _end(self, reason: str, now: float) -> None:
        self._reason = reason
        self._is_clean = False
        self.stop(now)

    def _look_whether_over(self) -> None:
        if all(worker.state is State.ENDED for worker in self.workers.values()):
            self._effects.append(NodeEnds(self._is_clean, self._reason))

    # --- time

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        at = NEVER
        for worker in self.workers.values():
            at = min(at, worker.at)
            if worker.state in LIVING:
                at = min(at, worker.heard_at + LIVING[worker.state])
        return at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. Signs of life that have come are told before."""
        for index, worker in self.workers.items():
            if worker.at <= now:
                if worker.state is State.WAITING:
                    self._start(index, now)
                else:
                    worker.at = NEVER
                    self._effects.append(Do(Step.KILL, index, f"it did not end within {STOP_SECONDS_MAX:g} s"))
            elif worker.state in LIVING and worker.heard_at + LIVING[worker.state] <= now:
                seconds = LIVING[worker.state]
                self.hung[index] += 1
                worker.move(State.ENDING)
                self._effects.append(Do(Step.KILL, index, f"it gave no sign of life for {seconds:g} s"))


def told(status: int) -> str:
    """Return the end of a process as text."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"
