"""The webhook against a real HTTP server: answers, faults that refuse, answers that are kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from broker.auth import webhook as module
from broker.auth.attempt import Attempt, Verdict
from broker.auth.decider import AuthDecider
from broker.auth.failed_logins import FailedLogins
from broker.auth.settings import WebhookSettings
from broker.auth.webhook import AnswerFault, Webhook, is_loopback, read_answer
from broker.authorization import TopicAccess
from broker.codec.packets import Connect
from broker.codec.reason_codes import NOT_AUTHORIZED, SERVER_UNAVAILABLE, SUCCESS
from broker.config.settings import Settings
from broker.hooks import ConnectRequest
from broker.listener_facts import ListenerFacts
from broker.message import NEVER
from broker.server.host import Host
from broker.server.logging import get_logger
from waiting import DEADLINE, eventually


class Service:
    """Answers with what `answer` gives, and keeps the questions."""

    def __init__(self) -> None:
        self.questions: list[Any] = []
        self.headers: list[Any] = []
        self.now = 1_000.0
        self.answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = self.allow
        self.url = ""

    async def allow(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"result": "allow"})

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers.append(request.headers)
        self.questions.append(await request.json())
        return await self.answer(request)

    def says(self, body: Any, status: int = 200) -> None:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            text = body if isinstance(body, str) else json.dumps(body)
            return web.Response(text=text, status=status)

        self.answer = answer


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    runner = web.ServerRunner(web.Server(made.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/users"
    yield made
    await runner.cleanup()


@pytest.fixture
async def webhook(service: Service) -> AsyncIterator[Webhook]:
    made = make(service)
    yield made
    await made.stop()


def make(service: Service, timeout: float = DEADLINE, keep: float = 60.0) -> Webhook:
    clock = lambda: service.now  # noqa: E731
    settings = WebhookSettings(service.url, timeout, keep, "of the node")
    return Webhook(settings, False, None, clock, clock, get_logger("auth"))


class Waits(ConnectRequest):
    """A CONNECT outside of a connection; `answered` is set by the answer."""

    def __init__(self, username: str) -> None:
        packet = Connect("c", 5, username=username, password=b"p")
        super().__init__(packet, "c", "192.0.2.1:9", "", ListenerFacts("127.0.0.1:1883", "tcp"), "", "", b"")
        self.answered = asyncio.Event()

    def is_open(self) -> bool:
        return not self.answered.is_set()

    def decided(self) -> None:
        self.answered.set()


def attempt(username: str = "u", password: bytes | None = b"p", port: int = 9) -> Attempt:
    packet = Connect("c", 5, username=username, password=password)
    listener = ListenerFacts("127.0.0.1:1883", "tcp")
    return Attempt(ConnectRequest(packet, "c", f"192.0.2.1:{port}", "", listener, "cert", "", b""))


async def ask(webhook: Webhook, login: Attempt) -> Verdict:
    answer = webhook.check(login)
    if isinstance(answer, Verdict):
        return answer
    async with asyncio.timeout(DEADLINE):
        return await answer()


@pytest.mark.parametrize(
    ("body", "is_final", "is_allowed"),
    [
        ({"result": "allow"}, False, True),
        ({"result": "deny"}, True, False),
        ({"result": "ignore"}, False, False),
        ({"result": "allow", "expire_at": 1_060, "acl": {"pub": ["a"]}}, False, True),
        ({"result": "allow", "expire_at": 999}, True, False),
    ],
)
async def test_answers(service: Service, webhook: Webhook, body: Any, is_final: bool, is_allowed: bool) -> None:
    service.says(body)
    login = attempt()
    verdict = await ask(webhook, login)
    assert (verdict.is_final, verdict.is_allowed) == (is_final, is_allowed)
    assert not is_final or verdict.reason_code == NOT_AUTHORIZED
    if is_allowed:
        assert login.expires_at == (1_060 if "expire_at" in body else NEVER)
        assert login.access == ((TopicAccess("a", True, False),) if "acl" in body else None)


@pytest.mark.parametrize(
    ("role", "domain"), [("link", ""), ("link:berlin", "berlin"), ("admin", None), (None, None), ({}, None)]
)
async def test_the_service_may_say_that_a_client_may_be_a_link(
    service: Service, webhook: Webhook, role: Any, domain: str | None
) -> None:
    service.says({"result": "allow", "role": role})
    for _ in range(2):  # the second answer is the one that was kept
        login = attempt()
        assert (await ask(webhook, login)).is_allowed
        assert login.link_domain == domain
    assert len(service.questions) == 1


async def test_a_question_quotes_the_client(service: Service, webhook: Webhook) -> None:
    await ask(webhook, attempt("größe", b"secret"))
    await ask(webhook, attempt("u", b"\xff\0"))
    await ask(webhook, attempt("u", None))
    common = {
        "client_id": "c",
        "address": "192.0.2.1",
        "listener": "127.0.0.1:1883",
        "certificate_name": "cert",
        "method": "",
    }
    assert service.questions == [
        {**common, "username": "größe", "password": "secret"},
        {**common, "username": "u", "password_base64": "/wA="},
        {**common, "username": "u"},
    ]
    assert service.headers[0]["Authorization"] == "Bearer of the node"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"result": "allow"}, 201),
        ({"result": "allow"}, 204),
        ({"result": "allow"}, 302),
        ({"result": "allow"}, 500),
        ({"result": "yes"}, 200),
        ({"result": True}, 200),
        ({"result": ["allow"]}, 200),
        ({}, 200),
        (["allow"], 200),
        ("", 200),
        ("allow", 200),
        ("[" * 50_000, 200),
        ('{"result": "allow", "x": "' + "y" * 70_000 + '"}', 200),
        ({"result": "allow", "expire_at": "soon"}, 200),
        ({"result": "allow", "expire_at": True}, 200),
        ('{"result": "allow", "expire_at": NaN}', 200),
        ('{"result": "allow", "expire_at": 1e999}', 200),
        ({"result": "allow", "acl": ["#"]}, 200),
    ],
)
async def test_an_answer_that_is_not_clear_refuses(service: Service, webhook: Webhook, body: Any, status: int) -> None:
    """It is not kept: the next client is asked about again."""
    service.says(body, status)
    verdict = await ask(webhook, attempt())
    assert (verdict.is_final, verdict.reason_code) == (True, SERVER_UNAVAILABLE)
    assert webhook.refused() == {"webhook_failed": 1}
    service.answer = service.allow
    assert (await ask(webhook, attempt())).is_allowed


async def test_a_service_that_gives_no_answer_in_time_refuses(service: Service) -> None:
    """Before its header, and in the middle of its body."""
    never = asyncio.Event()

    async def silent(request: web.BaseRequest) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    async def halfway(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"result": "al')
        await never.wait()
        return response

    webhook = make(service, timeout=0.2)
    try:
        for answer in (silent, halfway):
            service.answer = answer
            assert (await ask(webhook, attempt())).reason_code == SERVER_UNAVAILABLE
        assert webhook.refused() == {"webhook_failed": 2}
    finally:
        never.set()
        await webhook.stop()


@pytest.mark.interpreted  # its requests are classes of a test
async def test_the_time_limit_does_not_count_the_wait_for_a_turn(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of a POST, which begins when there is a connection for it."""
    begun = 0
    post = aiohttp.ClientSession.post
    goes_on = asyncio.Event()

    def counted(*args: Any, **keys: Any) -> Any:
        nonlocal begun
        begun += 1
        return post(*args, **keys)

    async def waits(request: web.BaseRequest) -> web.StreamResponse:
        await goes_on.wait()
        return web.json_response({"result": "allow"})

    service.answer = waits
    monkeypatch.setattr(aiohttp.ClientSession, "post", counted)
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 1)
    webhook = make(service)
    host = Host(Settings())
    decider = AuthDecider(host, [webhook], FailedLogins(0, 0), None, get_logger("auth"))
    requests = [Waits(f"u{number}") for number in range(3)]
    try:
        for request in requests:
            decider.decide(request, host.now())
        await eventually(lambda: len(service.questions) == 1, "the service is asked")
        assert begun == 1
        goes_on.set()
        async with asyncio.timeout(DEADLINE):
            for request in requests:
                await request.answered.wait()
        assert [request.reason_code for request in requests] == [SUCCESS] * 3
        assert begun == 3
    finally:
        goes_on.set()
        await webhook.stop()


async def test_clients_without_credentials_are_asked_about_where_anonymous_ones_are_allowed(
    service: Service, webhook: Webhook
) -> None:
    """The listener says so, or else the setting."""
    for allow_anonymous, is_asked in ((None, False), (False, False), (True, True)):
        listener = ListenerFacts("127.0.0.1:1883", "tcp", allow_anonymous)
        login = Attempt(ConnectRequest(Connect("c", 5), "c", "192.0.2.1:9", "", listener, "", "", b""))
        assert isinstance(webhook.check(login), Verdict) is not is_asked


async def test_a_service_that_is_not_there_refuses(service: Service) -> None:
    service.url = "http://127.0.0.1:1/"
    webhook = make(service)
    try:
        assert (await ask(webhook, attempt())).reason_code == SERVER_UNAVAILABLE
    finally:
        await webhook.stop()


async def test_answers_are_kept_for_a_time(service: Service, webhook: Webhook) -> None:
    """For the same client and password, from any port."""
    for result in ("allow", "deny", "ignore"):
        service.questions.clear()
        service.says({"result": result})
        first = await ask(webhook, attempt(result))
        assert await ask(webhook, attempt(result, port=10)) == first
        assert len(service.questions) == 1
        await ask(webhook, attempt(result, b"other"))
        assert len(service.questions) == 2
        service.now += 61
        await ask(webhook, attempt(result))
        assert len(service.questions) == 3


async def test_a_kept_answer_expires_with_its_credentials(service: Service, webhook: Webhook) -> None:
    service.says({"result": "allow", "expire_at": service.now + 10})
    assert (await ask(webhook, attempt())).is_allowed
    service.now += 11
    assert (await ask(webhook, attempt())).is_final
    assert len(service.questions) == 1


async def test_the_answers_that_are_kept_are_bounded(
    service: Service, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWERS_MAX", 3)
    for number in range(5):
        await ask(webhook, attempt(f"u{number}"))
    for number in (4, 3, 2):
        assert isinstance(webhook.check(attempt(f"u{number}")), Verdict)
    await ask(webhook, attempt("u0"))
    assert len(service.questions) == 6


async def test_nothing_is_kept_without_a_time(service: Service) -> None:
    webhook = make(service, keep=0.0)
    try:
        for _ in range(3):
            await ask(webhook, attempt())
        assert len(service.questions) == 3
    finally:
        await webhook.stop()


async def test_the_access_of_a_token_is_not_widened(service: Service, webhook: Webhook) -> None:
    service.says({"result": "allow", "acl": {"all": ["#"]}})
    login = attempt()
    login.access = (TopicAccess("a", True, False),)
    await ask(webhook, login)
    assert login.access == (TopicAccess("a", True, False),)


def test_the_largest_answer() -> None:
    with pytest.raises(AnswerFault, match="more than"):
        read_answer(b" " * 65_537)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("192.0.2.1", False), ("users.example.com", False)],
)
def test_loopback_hosts(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
