"""The keys of `plugins.auth`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from broker.auth.settings_jwt import NO_TOKENS, RELATIVE, JwtSettings
from broker.config.setting import Choice, Duration, Flag, Section, Text, Whole, extension, setting
from broker.server.start_error import StartError
from broker.workers.shares import share_up

if TYPE_CHECKING:
    from broker.config.settings import Settings
    from broker.workers.shares import Place

HASHES: Final = ("plain", "md5", "sha256", "bcrypt", "argon2id")
SELF_NAMING: Final = ("bcrypt", "argon2id")


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """A web service that is asked about each client by POST with JSON."""

    url: str = extension(
        "",
        "The URL of the service, http or https. Its query may have a key, and is not shown. Empty: there is none.",
        Text("https://users.example.com/mqtt", is_url=True),
    )
    timeout: float = extension(2.0, "Time for an answer. A client is refused when it passes.", Duration(0.01, "2s"))
    keep: float = extension(
        60.0,
        "How long an answer is kept for the same client id, user name and password. 0: not at all.",
        Duration(0.0, "1m"),
        "Raising it asks less often; a user that is blocked meanwhile can still connect. At most 10,000 are kept.",
    )
    token: str = extension("", "Sent to the service as `Authorization: Bearer`.", Text("secret"), secret=True)
    cacert: str = extension(
        "",
        f"File with the certificates of the authorities of the service; {RELATIVE}. Empty: those of the system.",
        Text("/etc/gmqtt/ca.pem"),
    )


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Sources of users, and rules about their topics."""

    hash: str = setting(
        "md5",
        "Hash of the passwords in the file that do not name theirs. argon2id and bcrypt name themselves and are read "
        "whatever stands here.",
        Choice(HASHES),
    )
    password_file: str = setting(
        "./gmqtt_password.yml",
        f"File of the accounts: a YAML list of `{{username, password}}`; {RELATIVE}. `gmqttd passwd` writes it. Empty: no "
        "passwords.",
        Text("./gmqtt_password.yml"),
    )
    new_hash: str = extension(
        "argon2id",
        "Hash of new passwords that the API sets. The Go broker reads the one that its `hash` names.",
        Choice(HASHES),
        "argon2id takes about 20 ms and 19 MiB for each login, bcrypt about 50 ms. The others protect no password once "
        "the file is read by somebody else.",
    )
    allow_anonymous: bool = extension(
        False, "Whether clients without a user name are let in, on listeners that do not say so themselves.", Flag()
    )
    use_identity_as_username: bool = extension(
        False,
        "Whether the common name of a verified client certificate is the user name. User name and password of CONNECT are "
        "not looked at then.",
        Flag(),
    )
    jwt: JwtSettings = extension(NO_TOKENS, "Tokens as passwords.", Section())
    webhook: WebhookSettings = extension(WebhookSettings(), "A web service that knows users.", Section())
    scram: bool = extension(
        False,
        "Whether clients of MQTT 5 may log in with SCRAM-SHA-256, and new passwords get its keys.",
        Flag(),
        "The keys are easier to guess from than argon2id, for somebody who reads the file.",
    )
    acl_file: str = extension(
        "",
        "File of the topics that clients may publish to and read, in the syntax of mosquitto's `acl_file`; "
        f"{RELATIVE}. Read again at a reload. Empty: all topics.",
        Text("./acl"),
    )
    threads: int = extension(
        0,
        "Number of passwords that are checked at the same time.",
        Whole(0, 64, 2),
        "Each takes a CPU.",
        default_text="one less than the CPUs, 1 to 4",
    )
    failures_per_user: int = extension(
        5,
        "Failed logins of a user name from one address after which further ones are refused unchecked (0x9F), one in 10 s "
        "excepted. 0: no limit.",
        Whole(0, 1000, 5),
    )
    failures_per_address: int = extension(
        100,
        "As failures_per_user, of all user names from one address, two in a second excepted. Users who have logged in from "
        "there are not refused.",
        Whole(0, 100_000, 100),
    )

    def for_worker(self, place: Place, settings: Settings) -> AuthSettings:
        """As `broker.workers.shares.ForWorkers`."""
        return replace(
            self,
            failures_per_user=share_up(self.failures_per_user, place.count),
            failures_per_address=share_up(self.failures_per_address, place.count),
        )

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Yield every broken rule between the keys, as (key, text)."""
        if self.new_hash not in SELF_NAMING and self.new_hash != self.hash:
            yield (
                "new_hash",
                f"{self.new_hash} does not name itself in the file, so it must be the same as hash, which is {self.hash}",
            )
        jwt = self.jwt
        if jwt.algorithms and not (jwt.secret or jwt.public_key_file or jwt.jwks_file):
            yield "jwt.algorithms", "there is no key: set secret, public_key_file or jwks_file"
        if not jwt.algorithms and (jwt.secret or jwt.public_key_file or jwt.jwks_file):
            yield "jwt.algorithms", "there are keys, and no algorithm; for example [RS256]"
        if jwt.secret and "HS256" not in jwt.algorithms:
            yield "jwt.secret", "only HS256 has a secret, and algorithms does not name it"
        url = self.webhook.url
        if url:
            fault = url_fault(url)
            if fault:
                yield "webhook.url", fault

    def protecting_keys(self) -> list[str]:
        """Return the keys that are sources of users and of rules. `hash` alone stands in files of the Go broker."""
        values = {
            "password_file": self.password_file,
            "acl_file": self.acl_file,
            "jwt.algorithms": self.jwt.algorithms,
            "jwt.secret": self.jwt.secret,
            "jwt.public_key_file": self.jwt.public_key_file,
            "jwt.jwks_file": self.jwt.jwks_file,
            "webhook.url": self.webhook.url,
            "use_identity_as_username": self.use_identity_as_username,
            "scram": self.scram,
            "allow_anonymous": not self.allow_anonymous,
        }
        return [key for key, value in values.items() if value]

    def unusable_files(self, key: str, path_of: Callable[[str], str]) -> Iterator[str]:
        """Yield a fault for each file that cannot be used."""
        from broker.auth.files import AccountFile, read_account_file, read_acl_file, read_token_keys, webhook_context

        reads: list[Callable[[], object]] = []
        if self.password_file:
            file = AccountFile(path_of(self.password_file), self.hash)
            reads.append(partial(read_account_file, file, f"{key}.password_file"))
        if self.jwt.algorithms:
            reads.append(partial(read_token_keys, self.jwt, f"{key}.jwt", path_of))
        if self.webhook.url and self.webhook.cacert:
            reads.append(partial(webhook_context, path_of(self.webhook.cacert), f"{key}.webhook.cacert"))
        if self.acl_file:
            reads.append(partial(read_acl_file, path_of(self.acl_file), f"{key}.acl_file"))
        for read in reads:
            try:
                read()
            except StartError as error:
                yield str(error)


def url_fault(url: str) -> str:
    """Return why the webhook cannot have this URL; empty when it can. The text does not repeat the URL, which may have a
    password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "this is not a URL; for example https://users.example.com/mqtt"
    if parts.scheme not in ("http", "https") or not host:
        return "this is not a URL of http or https; for example https://users.example.com/mqtt"
    if parts.username is not None or parts.password is not None:
        return "the URL has a password in it; give the service a token instead (webhook.token)"
    return ""
