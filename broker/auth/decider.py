"""The sources of users as one decider: each is asked in its turn, a refusal is final, failed logins slow down the next ones."""

# not a core: asks the loop for tasks
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.auth.accounts import link_domain_of
from broker.auth.attempt import SLOWED, Attempt, Source, Verdict, denied
from broker.auth.failed_logins import FailedLogins
from broker.auth.scram_logins import ScramLogins
from broker.codec.reason_codes import NOT_AUTHORIZED, SERVER_BUSY, SERVER_UNAVAILABLE
from broker.hooks import AuthenticationRequest, ConnectDecider, ConnectRequest

if TYPE_CHECKING:
    from broker.server.host import Host

LOGINS_MAX: Final = 4096  # that wait for a source; more are refused with SERVER_BUSY
BUSY: Final = denied("too many logins wait", SERVER_BUSY)
NOT_CHECKED: Final = denied("the login could not be checked", SERVER_UNAVAILABLE)


def no_role(username: str) -> str:
    """The role of users where there are no accounts."""
    return ""


class AuthDecider(ConnectDecider):
    """sources  in the order in which they are asked
    scram    None where clients cannot log in with SCRAM
    role_of  the role of the account of a user name, however the user has proved it

    Totals: refused, and among them busy (LOGINS_MAX were reached), faults (a source raised).
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
        self.busy = 0
        self.faults = 0
        self._server = server
        self._sources = tuple(sources)
        self._failed = failed
        self._scram = scram
        self._log = log
        self._role_of = role_of
        self._waiting: set[asyncio.Task[None]] = set()

    def methods(self) -> tuple[str, ...]:
        return () if self._scram is None else self._scram.methods

    def stop(self) -> None:
        """Answer no more of the logins that wait."""
        for task in self._waiting:
            task.cancel()

    def decide(self, request: ConnectRequest, now: float) -> None:
        attempt = Attempt(request)
        if request.method in self.methods():
            self._challenge(request, attempt, now)
        elif self._is_slowed(attempt, now):
            self._conclude(attempt, SLOWED, b"", now)
        elif len(self._waiting) >= LOGINS_MAX:
            self.busy += 1
            self._conclude(attempt, BUSY, b"", now)
        else:
            self._ask(attempt, 0, False, b"", now)

    def reauthenticate(self, request: AuthenticationRequest, now: float) -> None:
        self._challenge(request, Attempt(request), now)

    def continue_authentication(self, request: AuthenticationRequest, now: float) -> None:
        assert self._scram is not None
        attempt = Attempt(request)
        former_name = request.username
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
        """Whether a login with credentials is refused without a check."""
        if attempt.password is None and not attempt.request.method:
            return False
        if self._failed.wait(attempt.address, attempt.login_name, now) == 0:
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

    def _wait_for(
        self, attempt: Attempt, position: int, is_allowed: bool, data: bytes, answer: Awaitable[Verdict]
    ) -> None:
        async def wait() -> None:
            try:
                verdict = await answer
            except Exception as error:
                verdict = self._fault(error)
            now = self._server.now()
            if not attempt.request.is_open():
                return
            if verdict.is_final:
                self._conclude(attempt, verdict, b"", now)
            else:
                self._ask(attempt, position + 1, is_allowed or verdict.is_allowed, data, now)
            self._server.flush_soon()

        task = self._server.loop.create_task(wait())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def _conclude(self, attempt: Attempt, verdict: Verdict, data: bytes, now: float) -> None:
        """Answer the request."""
        request = attempt.request
        has_failed = verdict.is_final and verdict.reason_code == NOT_AUTHORIZED
        if verdict.is_allowed:
            request.username = attempt.username
            request.expires_at = attempt.expires_at
            request.access = attempt.access
            domain = attempt.link_domain
            if domain is None:
                domain = link_domain_of(self._role_of(attempt.username))
            request.is_link = domain is not None
            request.link_domain = domain or ""
            if attempt.password is not None or request.method:
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
