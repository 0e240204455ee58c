"""The sources of users as one decider: a table of opinions, sources that raise, bounds, failed logins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.auth.attempt import (
    ALLOWED,
    NO_OPINION,
    SLOWED,
    Anonymous,
    Attempt,
    CertificateNames,
    Check,
    Source,
    Verdict,
    denied,
)
from broker.auth.check_queue import CheckQueue
from broker.auth.decider import AuthDecider
from broker.auth.failed_logins import FailedLogins, Start
from broker.codec.packets import Connect
from broker.codec.reason_codes import (
    CONNECTION_RATE_EXCEEDED,
    NOT_AUTHORIZED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
    SUCCESS,
)
from broker.config.settings import Settings
from broker.hooks import NO_OPINION as WITHOUT_OPINION
from broker.hooks import UNDECIDED, ConnectRequest
from broker.listener_facts import ListenerFacts
from broker.server.host import Host
from broker.server.logging import get_logger
from waiting import DEADLINE

pytestmark = pytest.mark.interpreted  # sources of users are classes of this file


class Request(ConnectRequest):
    """A CONNECT outside of a connection; `answered` is set by the answer."""

    def __init__(
        self,
        username: str | None = "u",
        password: bytes | None = b"p",
        allow_anonymous: bool | None = None,
        certificate_name: str = "",
    ) -> None:
        packet = Connect("c", 5, username=username, password=password)
        listener = ListenerFacts("127.0.0.1:1883", "tcp", allow_anonymous)
        super().__init__(packet, "c", "192.0.2.1:9", "127.0.0.1:1883", listener, certificate_name, "", b"")
        self.answered = asyncio.Event()

    def is_open(self) -> bool:
        return not self.answered.is_set()

    def decided(self) -> None:
        self.answered.set()


class Says(Source):
    """Gives its verdict at once or later; an exception is raised.

    holds  checks wait until it is set
    """

    def __init__(
        self, verdict: Verdict | Exception, later: bool = False, running: int = 32, waiting: int = 100
    ) -> None:
        self.verdict = verdict
        self.queue = CheckQueue(running, waiting) if later else None
        self.holds = asyncio.Event()
        self.holds.set()
        self.asked = 0

    def check(self, attempt: Attempt) -> Verdict | Check:
        if self.queue is not None:
            return self._check_later
        self.asked += 1
        return self._give()

    async def _check_later(self) -> Verdict:
        self.asked += 1
        await self.holds.wait()
        return self._give()

    def _give(self) -> Verdict:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


Made = Callable[..., AuthDecider]


@pytest.fixture
async def make() -> Made:
    """A decider of sources, which is the only one of its node."""
    host = Host(Settings())

    def made(*sources: Source, per_user: int = 5) -> AuthDecider:
        decider = AuthDecider(host, sources, FailedLogins(per_user, 100), None, get_logger("auth"))
        host.broker.connect_deciders = (decider,)
        return decider

    return made


async def ask(decider: AuthDecider, request: Request) -> int:
    decider.decide(request, asyncio.get_running_loop().time())
    async with asyncio.timeout(DEADLINE):
        await request.answered.wait()
    return request.reason_code


DENIED = denied("no", NOT_AUTHORIZED)


class RoomAgain(FailedLogins):
    """The bucket is full when the turn of a check comes, and has room before and after."""

    def begin(self, address: str, username: str, now: float) -> Start:
        return Start.NEVER


async def test_a_login_that_is_slowed_when_its_turn_comes_is_counted_as_that() -> None:
    """Its answer said that too many waited, and no counter had it, where the bucket had room again before the answer."""
    failed = RoomAgain(5, 100)
    host = Host(Settings())
    decider = AuthDecider(host, (Says(DENIED, later=True),), failed, None, get_logger("auth"))
    host.broker.connect_deciders = (decider,)
    assert await ask(decider, Request()) == CONNECTION_RATE_EXCEEDED
    assert failed.slowed == 1


@pytest.mark.parametrize("later", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("verdicts", "code", "asked"),
    [
        ((ALLOWED, ALLOWED), SUCCESS, 2),
        ((ALLOWED, NO_OPINION), SUCCESS, 2),
        ((NO_OPINION, ALLOWED), SUCCESS, 2),
        ((NO_OPINION, NO_OPINION), WITHOUT_OPINION, 2),
        ((ALLOWED, DENIED), NOT_AUTHORIZED, 2),
        ((DENIED, ALLOWED), NOT_AUTHORIZED, 1),
        ((ALLOWED, KeyError("bug")), SERVER_UNAVAILABLE, 2),
        ((KeyError("bug"), ALLOWED), SERVER_UNAVAILABLE, 1),
    ],
)
async def test_opinions_of_sources(
    make: Made, verdicts: tuple[Any, ...], code: int, asked: int, later: tuple[bool, bool]
) -> None:
    """A refusal is final, and so is an exception."""
    sources = [Says(verdict, wait) for verdict, wait in zip(verdicts, later, strict=True)]
    decider = make(*sources)
    assert await ask(decider, Request()) == code
    assert sum(source.asked for source in sources) == asked
    assert decider.faults == (code == SERVER_UNAVAILABLE)


@pytest.mark.parametrize(
    ("setting", "of_listener", "username", "code"),
    [
        (False, None, None, WITHOUT_OPINION),
        (False, None, "", WITHOUT_OPINION),
        (False, True, None, SUCCESS),
        (False, False, None, WITHOUT_OPINION),
        (True, None, None, SUCCESS),
        (True, None, "", SUCCESS),
        (True, False, None, WITHOUT_OPINION),
        (True, True, "u", WITHOUT_OPINION),
    ],
)
async def test_the_listener_decides_about_anonymous_clients_before_the_setting(
    make: Made, setting: bool, of_listener: bool | None, username: str | None, code: int
) -> None:
    assert await ask(make(Anonymous(setting)), Request(username, None, of_listener)) == code


async def test_a_certificate_names_the_user(make: Made) -> None:
    """The user name of CONNECT does not, and a client without a certificate has to be known otherwise."""
    decider = make(CertificateNames(), Anonymous(True))
    request = Request("somebody else", b"whatever", certificate_name="device-7")
    assert await ask(decider, request) == SUCCESS
    assert request.username == "device-7"
    assert await ask(decider, Request("device-7", b"whatever")) == WITHOUT_OPINION
    assert await ask(decider, Request(certificate_name="device\n7")) == NOT_AUTHORIZED


async def test_failed_logins_are_counted_with_a_password_only(make: Made) -> None:
    """An unknown user counts, a client that gives none does not, and a fault of ours does not."""
    slowed = 0x9F
    decider = make(Says(NO_OPINION), per_user=2)
    assert [await ask(decider, Request("a", b"p")) for _ in range(3)] == [WITHOUT_OPINION] * 2 + [slowed]
    assert [await ask(decider, Request("b", None)) for _ in range(3)] == [WITHOUT_OPINION] * 3
    decider = make(Says(DENIED), per_user=2)
    assert [await ask(decider, Request("a", b"p")) for _ in range(3)] == [NOT_AUTHORIZED] * 2 + [slowed]
    decider = make(Says(KeyError("bug")), per_user=2)
    assert [await ask(decider, Request("a", b"p")) for _ in range(3)] == [SERVER_UNAVAILABLE] * 3


async def answers(requests: list[Request]) -> list[int]:
    async with asyncio.timeout(DEADLINE):
        for request in requests:
            await request.answered.wait()
    return [request.reason_code for request in requests]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_logins_that_wait_are_bounded(make: Made) -> None:
    source = Says(ALLOWED, later=True, running=1, waiting=2)
    source.holds.clear()
    decider = make(source)
    requests = [Request(f"u{number}") for number in range(5)]
    for request in requests:
        decider.decide(request, asyncio.get_running_loop().time())
    await settle()
    assert [request.reason_code for request in requests] == [UNDECIDED] * 3 + [SERVER_BUSY] * 2
    source.holds.set()
    assert await answers(requests) == [SUCCESS] * 3 + [SERVER_BUSY] * 2
    assert source.queue is not None
    assert source.queue.refused == 2
    assert await ask(decider, Request()) == SUCCESS


@pytest.mark.parametrize("password", [b"p", None])
async def test_logins_that_come_at_once_have_no_more_failures_than_others(make: Made, password: bytes | None) -> None:
    """A name without a password can be guessed, too, where a service takes it for a token."""
    source = Says(DENIED, later=True)
    source.holds.clear()
    decider = make(source, per_user=5)
    requests = [Request("a", password) for _ in range(300)]
    for request in requests:
        decider.decide(request, asyncio.get_running_loop().time())
    await settle()
    source.holds.set()
    codes = await answers(requests)
    assert source.asked == codes.count(NOT_AUTHORIZED) == 5
    assert codes.count(SLOWED.reason_code) + codes.count(SERVER_BUSY) == 295


async def test_good_logins_that_come_at_once_all_get_in(make: Made) -> None:
    """They wait for each other, in one source and in the next."""
    decider = make(Says(NO_OPINION, later=True, running=4), Says(ALLOWED, later=True), per_user=2)
    requests = [Request("a") for _ in range(100)]
    for request in requests:
        decider.decide(request, asyncio.get_running_loop().time())
    assert await answers(requests) == [SUCCESS] * 100


async def test_a_client_without_credentials_is_not_slowed_by_failures_of_its_address(make: Made) -> None:
    """It has guessed nothing. A service may be asked about it where anonymous clients are allowed."""
    source = Says(DENIED, later=True)
    decider = make(source)
    for number in range(100):
        assert await ask(decider, Request(f"u{number}")) == NOT_AUTHORIZED
    assert await ask(decider, Request("u100")) == SLOWED.reason_code
    source.verdict = ALLOWED
    assert await ask(decider, Request(None, None)) == SUCCESS


async def test_a_client_that_leaves_gets_no_further_guesses_for_that(make: Made) -> None:
    source = Says(DENIED, later=True)
    decider = make(source, per_user=2)
    for _ in range(2):
        source.holds.clear()
        request = Request("a")
        decider.decide(request, asyncio.get_running_loop().time())
        await settle()
        request.answered.set()
        source.holds.set()
        await settle()
    assert await ask(decider, Request("a")) == SLOWED.reason_code


async def test_a_certificate_forgets_no_failures_of_another_name(make: Made) -> None:
    """Nor does a token whose client has the name as its client id."""
    decider = make(CertificateNames(), Says(NO_OPINION), per_user=2)
    for _ in range(2):
        await ask(decider, Request("victim"))
        assert await ask(decider, Request("victim", b"x", certificate_name="device-7")) in (SUCCESS, 0x9F)
    assert await ask(decider, Request("victim")) == SLOWED.reason_code


async def test_a_login_that_waits_is_refused_when_its_account_changes(make: Made) -> None:
    """Also where the user has proved the name by other means than CONNECT."""

    class Proves(Source):
        def check(self, attempt: Attempt) -> Verdict:
            attempt.username = "alice"
            return ALLOWED

    source = Says(ALLOWED, later=True)
    source.holds.clear()
    decider = make(Proves(), source)
    requests = [Request(None, b"keys of alice"), Request(None, b"keys of alice")]
    decider.decide(requests[0], 1000.0)
    await settle()
    decider.withdraw({"bob"})
    assert requests[0].reason_code == UNDECIDED
    decider.withdraw({"alice"})
    source.holds.set()
    assert await answers(requests[:1]) == [NOT_AUTHORIZED]
    await settle()
    assert await ask(decider, requests[1]) == SUCCESS


async def test_a_client_that_left_is_not_asked_about_any_more(make: Made) -> None:
    last = Says(ALLOWED)
    first = Says(NO_OPINION, later=True)
    first.holds.clear()
    decider = make(first, last)
    request = Request()
    decider.decide(request, asyncio.get_running_loop().time())
    await settle()
    request.answered.set()
    first.holds.set()
    await ask(decider, Request("other"))
    assert (request.reason_code, last.asked) == (UNDECIDED, 1)


@pytest.mark.parametrize(
    ("username", "is_link", "domain"),
    [("berlin", True, ""), ("oslo", True, "oslo"), ("alice", False, ""), (None, False, "")],
)
async def test_clients_of_an_account_with_the_role_link_may_be_links(
    username: str | None, is_link: bool, domain: str
) -> None:
    host = Host(Settings())
    roles = {"berlin": "link", "oslo": "link:oslo"}
    decider = AuthDecider(
        host, [Says(ALLOWED)], FailedLogins(5, 100), None, get_logger("auth"), lambda name: roles.get(name, "")
    )
    host.broker.connect_deciders = (decider,)
    request = Request(username)
    assert await ask(decider, request) == SUCCESS
    assert (request.is_link, request.link_domain) == (is_link, domain)
