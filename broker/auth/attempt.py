"""A login is an attempt, about which each source of users gives a verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from broker.admission import counted_address
from broker.auth.accounts import name_fault
from broker.authorization import TopicAccess
from broker.codec.reason_codes import CONNECTION_RATE_EXCEEDED, NOT_AUTHORIZED
from broker.config.addresses import host_of
from broker.hooks import NOT_LET_IN, UNDECIDED, AuthenticationRequest, ConnectRequest
from broker.message import NEVER

if TYPE_CHECKING:
    from broker.auth.check_queue import CheckQueue


class Verdict(NamedTuple):
    """is_final   the client is refused, with this reason code and reason
    is_allowed   the client is let in unless another source refuses it. Neither of the two: no opinion
    """

    is_final: bool = False
    is_allowed: bool = False
    reason_code: int = 0
    reason: str = ""


ALLOWED: Final = Verdict(is_allowed=True)
NO_OPINION: Final = Verdict()
# The text for a user whom no source knows, or it would tell which users exist.
WRONG_PASSWORD: Final = Verdict(is_final=True, reason_code=NOT_AUTHORIZED, reason=NOT_LET_IN)


def denied(reason: str, reason_code: int = NOT_AUTHORIZED) -> Verdict:
    """Return a refusal. The reason is written to the client and the log, and contains no secret."""
    return Verdict(True, False, reason_code, reason)


NO_NAME: Final = "\0"  # no user name begins with it [MQTT-1.5.4-2]
SLOWED: Final = denied("too many failed logins, try again later", CONNECTION_RATE_EXCEEDED)


class Attempt:
    """A login. Sources see what those before them have set.

    request     asks to connect, or to authenticate again
    username    of CONNECT, "" for none; a source that knows who the client is sets it
    password    of CONNECT, None for none
    address     by which the client is counted (broker/admission.py), "" for a Unix socket
    login_name  under which failed logins are counted: the user name that the client gave, else NO_NAME and its client id
    is_proven   a certificate, a token or an Authentication Method has proved who the client is; passwords are not looked at
    is_slowed   failed logins filled the bucket when the turn of its check came
    expires_at  monotonic seconds when the credentials expire, NEVER for never
    access      what the credentials say about topics, None for nothing
    link_domain  of the role that a token or the web service names (`link_domain_of`); an account may have one as well
    """

    __slots__ = (
        "access",
        "address",
        "expires_at",
        "is_proven",
        "is_slowed",
        "link_domain",
        "login_name",
        "password",
        "request",
        "username",
    )

    def __init__(self, request: AuthenticationRequest) -> None:
        self.request = request
        self.username = request.username
        self.password = request.connect.password if isinstance(request, ConnectRequest) else None
        self.address = counted_address(host_of(request.remote_addr))
        self.login_name = self.username or NO_NAME + request.client_id
        self.is_proven = False
        self.is_slowed = False
        self.expires_at = NEVER
        self.access: tuple[TopicAccess, ...] | None = None
        self.link_domain: str | None = None

    @property
    def is_waiting(self) -> bool:
        """The client waits for an answer."""
        return self.request.reason_code == UNDECIDED and self.request.is_open()

    @property
    def has_credentials(self) -> bool:
        """The client gives a user name, a password or the data of an Authentication Method."""
        return bool(self.username or self.password is not None or self.request.method)

    @property
    def has_proved_login_name(self) -> bool:
        """A good login is one of `login_name`. One with a certificate is not, when CONNECT has another user name."""
        return self.has_credentials and (self.login_name == self.username or self.login_name.startswith(NO_NAME))


Check: TypeAlias = Callable[[], Awaitable[Verdict]]


class Source:
    """Knows some users. The class itself knows none.

    queue  in which checks that take time wait for their turn; None for a source that answers at once
    """

    queue: CheckQueue | None = None

    def check(self, attempt: Attempt) -> Verdict | Check:
        """Give the verdict about a login, or the check that finds it: the decider runs it when it has a turn of `queue`. An
        exception refuses the client."""
        return NO_OPINION

    def refused(self) -> dict[str, int]:
        """Return the totals of what the source refused or could not do, by reason."""
        return {}


class CertificateNames(Source):
    """A verified client certificate names the user: user name and password of CONNECT are not looked at."""

    def check(self, attempt: Attempt) -> Verdict:
        if not attempt.request.certificate_name or attempt.request.method:
            return NO_OPINION
        if name_fault(attempt.request.certificate_name):
            return denied("the common name of the certificate is not a user name")
        attempt.username = attempt.request.certificate_name
        attempt.is_proven = True
        return ALLOWED


def allows_anonymous(attempt: Attempt, setting: bool) -> bool:
    """Return whether the listener of the client, or else the setting, lets clients without a user name in."""
    of_listener = attempt.request.listener.allow_anonymous
    return setting if of_listener is None else of_listener


class Anonymous(Source):
    """Clients without a user name, where the listener or else the settings allow them."""

    def __init__(self, is_allowed: bool) -> None:
        self._is_allowed = is_allowed

    def check(self, attempt: Attempt) -> Verdict:
        if attempt.username or attempt.request.method:
            return NO_OPINION
        return ALLOWED if allows_anonymous(attempt, self._is_allowed) else NO_OPINION
