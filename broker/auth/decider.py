"""The sources of users as one decider: one after the other is asked, a refusal is final, failed logins slow down the next ones.

Checks that take time (passwords in threads, the web service) have one way: `_wait_for`. They wait for a turn of the queue of
their source. When it comes, the failures of their name and address decide whether they run. A time limit begins with the turn.
"""

# not a core: asks the loop for tasks
from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.auth.accounts import link_domain_of
from broker.auth.attempt import SLOWED, Attempt, Check, Source, Verdict, denied
from broker.auth.check_queue import NotChecked
from broker.auth.failed_logins import FailedLogins, Start
from broker.auth.scram_logins import ScramLogins
from broker.codec.reason_codes import NOT_AUTHORIZED, SERVER_BUSY, SERVER_UNAVAILABLE
from broker.hooks import AuthenticationRequest, ConnectDecider, ConnectRequest

if TYPE_CHECKING:
    from broker.server.host import Host

BUSY: Final = denied("too many logins wait for their check", SERVER_BUSY)
NOT_CHECKED: Final = denied("the login could not be checked", SERVER_UNAVAILABLE)


def no_role(username: str) -> str:
    """Return the role of users where there are no accounts."""
    return ""


def _is_failure(verdict: Verdict) -> bool:
    return verdict.is_final and verdict.reason_code == NOT_AUTHORIZED


class AuthDecider(ConnectDecider):
    """sources  in the order in which they are asked
    scram    None where clients cannot log in with SCRAM
    role_of  the role of the account of a user name, however the user has proved it

    Totals: refused, and among them faults (a source raised). Logins that wait are bounded by the queues of the sources.
    """

    def __init__(
        self,
        server: Host,
        sources: Sequence[Source],
        failed: FailedLogins,
        scram: ScramLogins | None,
        log: Any,
        role_of: Callable[[str], str] = no_role,
    ) -> None:
        self.refused = 0
        self.faults = 0
        self._server = server
        self._sources = tuple(sources)
        self._failed = failed
        self._scram = scram
        self._log = log
        self._role_of = role_of
        self._queues = tuple(source.queue for source in sources if source.queue is not None)
        self._waiting: dict[Attempt, asyncio.Task[None]] = {}

    def methods(self) -> tuple[str, ...]:
        return () if self._scram is None else self._scram.methods

    def stop(self) -> None:
        """Answer no more of the logins that wait."""
        for task in self._waiting.values():
            task.cancel()

    def withdraw(self, usernames: Set[str]) -> None:
        """Refuse the logins that wait and have proved one of these names: their accounts have changed or are gone."""
        for attempt in list(self._waiting):
            if attempt.username in usernames and attempt.is_waiting:
                self.refused += 1
                attempt.request.refuse(NOT_AUTHORIZED, "the account was changed or deleted")

    def decide(self, request: ConnectRequest, now: float) -> None:
        attempt = Attempt(request)
        if request.method in self.methods():
            self._challenge(request, attempt, now)
        elif self._is_slowed(attempt, now):
            self._conclude(attempt, SLOWED, b"", now)
        else:
            self._ask(attempt, 0, False, b"", now)

    def reauthenticate(self, request: AuthenticationRequest, now: float) -> None:
        self._challenge(request, Attempt(request), now)

    def continue_authentication(self, request: AuthenticationRequest, now: float) -> None:
        assert self._scram is not None
        attempt = Attempt(request)
        former_name = request.username
        self._scram.resume(attempt)
        if self._is_slowed(attempt, now):
            self._conclude(attempt, SLOWED, b"", now)
            return
        answer = self._scram.finish(attempt)
        if isinstance(answer, Verdict):
            self._conclude(attempt, answer, b"", now)
        elif not isinstance(request, ConnectRequest) and attempt.username != former_name:
            self._conclude(attempt, denied("another user than the one who connected"), b"", now)
        else:
            attempt.is_proven = True
            self._ask(attempt, 0, True, answer, now)

    # --- the way of a login ---

    def _challenge(self, request: AuthenticationRequest, attempt: Attempt, now: float) -> None:
        assert self._scram is not None
        answer = self._scram.begin(attempt)
        if isinstance(answer, Verdict):
            self._conclude(attempt, answer, b"", now)
        elif self._is_slowed(attempt, now):
            self._conclude(attempt, SLOWED, b"", now)
        else:
            request.challenge(answer)

    def _is_slowed(self, attempt: Attempt, now: float) -> bool:
        """Return whether a login with credentials is refused without a check; count it then."""
        is_full = attempt.is_slowed or self._failed.wait(attempt.address, attempt.login_name, now) > 0
        if not attempt.has_credentials or not is_full:
            return False
        self._failed.slowed += 1
        return True

    def _ask(self, attempt: Attempt, position: int, is_allowed: bool, data: bytes, now: float) -> None:
        """Ask the sources from `position` on. `data` is the Authentication Data of the answer."""
        while position < len(self._sources):
            try:
                answer = self._sources[position].check(attempt)
            except Exception as error:
                self._conclude(attempt, self._fault(error), b"", now)
                return
            if not isinstance(answer, Verdict):
                self._wait_for(attempt, position, is_allowed, data, answer)
                return
            if answer.is_final:
                self._conclude(attempt, answer, b"", now)
                return
            is_allowed = is_allowed or answer.is_allowed
            position += 1
        self._conclude(attempt, Verdict(is_allowed=is_allowed), data, now)

    def _wait_for(self, attempt: Attempt, position: int, is_allowed: bool, data: bytes, check: Check) -> None:
        """Run the check of the source at `position` when it has a turn, and go on with its verdict."""
        queue = self._sources[position].queue
        assert queue is not None, "a source whose checks take time has a queue"
        is_limited = attempt.has_credentials

        async def wait() -> None:
            try:
                turns = self._failed.turns_of(attempt.address, attempt.login_name)
                async with queue.turn(turns, partial(self._begin, attempt, is_limited)):
                    try:
                        verdict = await self._verdict_of(check)
                        self._go_on(attempt, position, is_allowed, data, verdict)
                    finally:
                        if is_limited:
                            self._failed.end(attempt.address, attempt.login_name)
            except NotChecked:
                self._leave_out(attempt)
            for other in self._queues:
                other.advance()
            self._server.flush_soon()

        task = self._waiting[attempt] = self._server.loop.create_task(wait())
        task.add_done_callback(lambda _: self._ended(attempt, task))

    def _ended(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Forget the task, unless another one goes on with the attempt. Raises what the task has raised."""
        if self._waiting.get(attempt) is task:
            del self._waiting[attempt]
        if not task.cancelled():
            task.result()

    def _begin(self, attempt: Attempt, is_limited: bool) -> Start:
        """Return whether the check of a login that waits may begin. Others of this name and address may have failed
        meanwhile."""
        if not attempt.is_waiting:
            return Start.NEVER
        if not is_limited:
            return Start.NOW
        start = self._failed.begin(attempt.address, attempt.login_name, self._server.now())
        attempt.is_slowed = start is Start.NEVER  # the bucket may have room again when it is answered
        return start

    async def _verdict_of(self, check: Check) -> Verdict:
        try:
            return await check()
        except Exception as error:
            return self._fault(error)

    def _go_on(self, attempt: Attempt, position: int, is_allowed: bool, data: bytes, verdict: Verdict) -> None:
        """Continue with the verdict of the source at `position`."""
        now = self._server.now()
        if not attempt.is_waiting:
            if _is_failure(verdict):  # the client has gone: it does not get further guesses for that
                self._failed.failed(attempt.address, attempt.login_name, now)
        elif verdict.is_final:
            self._conclude(attempt, verdict, b"", now)
        else:
            self._ask(attempt, position + 1, is_allowed or verdict.is_allowed, data, now)

    def _leave_out(self, attempt: Attempt) -> None:
        """Refuse a login that has waited and is not checked."""
        now = self._server.now()
        if attempt.is_waiting:
            self._conclude(attempt, SLOWED if self._is_slowed(attempt, now) else BUSY, b"", now)

    def _conclude(self, attempt: Attempt, verdict: Verdict, data: bytes, now: float) -> None:
        """Answer the request."""
        request = attempt.request
        has_failed = _is_failure(verdict)
        if verdict.is_allowed:
            request.username = attempt.username
            request.expires_at = attempt.expires_at
            request.access = attempt.access
            domain = attempt.link_domain
            if domain is None:
                domain = link_domain_of(self._role_of(attempt.username))
            request.is_link = domain is not None
            request.link_domain = domain or ""
            if attempt.has_proved_login_name:
                self._failed.succeeded(attempt.address, attempt.login_name)
            request.accept(data)
        elif verdict.is_final:
            self.refused += 1
            request.refuse(verdict.reason_code, verdict.reason)
        else:
            # Where other plugins may know the user, it is not clear yet that the login has failed.
            has_failed = attempt.password is not None and len(self._server.broker.connect_deciders) == 1
            request.has_no_opinion()
        if has_failed:
            self._failed.failed(attempt.address, attempt.login_name, now)

    def _fault(self, error: Exception) -> Verdict:
        self.faults += 1
        self._server.broker.counters.plugin_faults += 1
        self._log.error("a login could not be checked", exc_info=error)
        return NOT_CHECKED
