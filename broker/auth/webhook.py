"""A web service that knows users. It is asked about each client; its answers are kept for a bounded time.

Whatever is no clear answer refuses: no connection, a time limit that passes, another status, a body that is not understood.
"""

# not a core: asks a web service
from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ipaddress
import json
import secrets
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from broker.auth.access import AccessFault, read_access
from broker.auth.accounts import link_domain_of
from broker.auth.attempt import ALLOWED, NO_OPINION, Attempt, Check, Source, Verdict, allows_anonymous, denied
from broker.auth.check_queue import CheckQueue
from broker.auth.files import webhook_context
from broker.authorization import TopicAccess
from broker.codec.reason_codes import SERVER_UNAVAILABLE
from broker.config.addresses import host_of
from broker.hooks import NOT_LET_IN
from broker.message import NEVER

if TYPE_CHECKING:
    from broker.auth.settings import WebhookSettings
    from broker.server.host import Host

CONNECTIONS_MAX: Final = 32  # to the service; further logins wait for their turn before their time limit begins
ANSWER_BYTES_MAX: Final = 65_536
ANSWERS_MAX: Final = 10_000  # that are kept; the oldest gives way
SECONDS_MAX: Final = 2**53  # JSON numbers are exact up to it
HTTP_OK: Final = 200
FAILED: Final = denied("the service that knows the users gives no answer", SERVER_UNAVAILABLE)


class Answer(NamedTuple):
    """result      "allow", "deny" or "ignore"
    expires_at  Unix seconds when the connection ends, NEVER for never
    access      what the client may do with topics, None for nothing said
    link_domain  that the client may be a link of (`link_domain_of`)
    """

    result: str
    expires_at: float
    access: tuple[TopicAccess, ...] | None
    link_domain: str | None


class AnswerFault(Exception):
    """The service did not answer as it should. The text is for the log."""


class Webhook(Source):
    """Made and used inside a running loop; `stop` closes its connections. `failed` counts requests without an answer."""

    def __init__(
        self,
        settings: WebhookSettings,
        allow_anonymous: bool,
        context: ssl.SSLContext | None,
        wall_time: Callable[[], float],
        now: Callable[[], float],
        log: Any,
    ) -> None:
        self.failed = 0
        self.queue: CheckQueue = CheckQueue(CONNECTIONS_MAX)
        self._settings = settings
        self._allow_anonymous = allow_anonymous
        self._wall_time = wall_time
        self._now = now
        self._log = log
        self._secret = secrets.token_bytes(32)
        # (until when it is kept, answer), oldest first
        self._answers: OrderedDict[bytes, tuple[float, Answer]] = OrderedDict()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=context or True),
            timeout=aiohttp.ClientTimeout(total=settings.timeout),
            headers={"Authorization": f"Bearer {settings.token}"} if settings.token else None,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def stop(self) -> None:
        self.queue.stop()
        await self._session.close()

    def refused(self) -> dict[str, int]:
        return {"webhook_failed": self.failed}

    def check(self, attempt: Attempt) -> Verdict | Check:
        has_credentials = attempt.has_credentials or attempt.request.certificate_name
        if not has_credentials and not allows_anonymous(attempt, self._allow_anonymous):
            return NO_OPINION
        key = hashlib.blake2b(_question(attempt), key=self._secret, digest_size=32).digest()
        kept = self._answers.get(key)
        if kept is not None:
            if self._now() < kept[0]:
                return self._verdict(attempt, kept[1])
            del self._answers[key]
        return partial(self._ask, attempt, key)  # without the question, which would be kept for each login that waits

    async def _ask(self, attempt: Attempt, key: bytes) -> Verdict:
        try:
            answer = await self._post(_question(attempt))
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError, AnswerFault) as error:
            self.failed += 1
            reason = str(error) if isinstance(error, AnswerFault) else type(error).__name__
            self._log.warning("the webhook gives no answer, the client is refused", reason=reason)
            return FAILED
        if self._settings.keep > 0:
            self._answers.pop(key, None)
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.popitem(last=False)
            self._answers[key] = (self._now() + self._settings.keep, answer)
        return self._verdict(attempt, answer)

    async def _post(self, question: bytes) -> Answer:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(
            self._settings.url, data=question, headers=headers, allow_redirects=False
        ) as response:
            if response.status != HTTP_OK:
                raise AnswerFault(f"HTTP status {response.status}")
            body = await response.content.read(ANSWER_BYTES_MAX + 1)
            while len(body) <= ANSWER_BYTES_MAX and (more := await response.content.read(ANSWER_BYTES_MAX + 1)):
                body += more
        return read_answer(body)

    def _verdict(self, attempt: Attempt, answer: Answer) -> Verdict:
        if answer.result == "ignore":
            return NO_OPINION
        wall_time = self._wall_time()
        if answer.result == "deny" or answer.expires_at <= wall_time:
            return denied(NOT_LET_IN)
        if answer.expires_at != NEVER:
            attempt.expires_at = min(attempt.expires_at, self._now() + answer.expires_at - wall_time)
        if attempt.access is None:  # what a token says is not widened
            attempt.access = answer.access
        if attempt.link_domain is None:
            attempt.link_domain = answer.link_domain
        return ALLOWED


def read_answer(body: bytes) -> Answer:
    """Return the answer in a body. Raises AnswerFault."""
    if len(body) > ANSWER_BYTES_MAX:
        raise AnswerFault(f"a body of more than {ANSWER_BYTES_MAX} bytes")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerFault("a body that is not JSON") from None
    if not isinstance(fields, dict) or fields.get("result") not in ("allow", "deny", "ignore"):
        raise AnswerFault("a body without result: allow, deny or ignore")
    expires_at = fields.get("expire_at")
    if expires_at is None:
        expires_at = NEVER
    elif isinstance(expires_at, bool) or not isinstance(expires_at, int | float) or not 0 <= expires_at <= SECONDS_MAX:
        raise AnswerFault("an expire_at that is not a number of seconds")
    try:
        access = read_access(fields.get("acl"))
    except AccessFault as fault:
        raise AnswerFault(str(fault)) from None
    return Answer(fields["result"], float(expires_at), access, link_domain_of(fields.get("role")))


def _question(attempt: Attempt) -> bytes:
    """Return the JSON of a request. The port of the client is left out: an answer is kept for its next connections too."""
    request = attempt.request
    fields: dict[str, str] = {
        "client_id": request.client_id,
        "username": attempt.username,
        "address": host_of(request.remote_addr),
        "listener": request.listener.name,
        "certificate_name": request.certificate_name,
        "method": request.method,
    }
    if attempt.password is not None:
        try:
            fields["password"] = attempt.password.decode()
        except UnicodeDecodeError:
            fields["password_base64"] = base64.b64encode(attempt.password).decode()
    return json.dumps(fields).encode()


def open_webhook(server: Host, settings: WebhookSettings, allow_anonymous: bool, key: str, log: Any) -> Webhook:
    """Return the webhook of the settings. Raises StartError."""
    context = webhook_context(server.path_of(settings.cacert), f"{key}.cacert") if settings.cacert else None
    parts = urlsplit(settings.url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        log.warning("passwords are sent to the webhook without encryption; use https", key=f"{key}.url")
    return Webhook(settings, allow_anonymous, context, time.time, server.now, log)


def is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
