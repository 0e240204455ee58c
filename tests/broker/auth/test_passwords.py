"""The source of passwords: what a login costs, and what that tells about its user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Set
from pathlib import Path

import pytest

from broker.auth import passwords as module
from broker.auth.attempt import ALLOWED, NO_OPINION, WRONG_PASSWORD, Attempt, Verdict
from broker.auth.check_queue import CheckPool
from broker.auth.files import AccountFile
from broker.auth.password_hash import cost_of, hash_password, password_fits
from broker.auth.passwords import Passwords
from broker.auth.scram import METHOD
from broker.auth.scram_logins import ScramLogins
from broker.codec.packets import Connect
from broker.hooks import ConnectRequest
from broker.listener_facts import NO_LISTENER

BCRYPT_4 = "$2a$04$qvuItV.yLSRxeuoOFejmQeftBOX13YIf.8eg1RAG2R3f8t69EDrmG"  # as the Go broker writes "secret"
MD5 = "5ebe2294ecd0e0f08eab7690d2a6ee69"


class Users:
    """Accounts of one password, "secret", with other hashes; the costs of the checks are kept."""

    def __init__(self, folder: Path) -> None:
        self.pool = CheckPool(1)
        self.file = folder / "accounts.yml"
        self.passwords = Passwords(AccountFile(str(self.file), "md5"), "md5", self.pool, self.withdrawn)
        self.spent: list[str] = []

    async def withdrawn(self, _usernames: Set[str]) -> None:
        """No client is connected."""

    async def load(self, **stored: str) -> None:
        self.file.write_text("".join(f"- {{username: {name}, password: '{text}'}}\n" for name, text in stored.items()))
        await self.passwords.load("key")

    def fits(self, stored: str, bare: str, password: bytes) -> bool:
        if cost_of(stored, bare):
            self.spent.append(cost_of(stored, bare))
        return password_fits(stored, bare, password)

    async def ask(self, username: str, password: bytes) -> tuple[Verdict, list[str]]:
        """The verdict, and the costs of the checks in their order."""
        self.spent.clear()
        packet = Connect("c", 5, username=username, password=password)
        answer = self.passwords.check(Attempt(ConnectRequest(packet, "c", "192.0.2.1:9", "", NO_LISTENER, "", "", b"")))
        verdict = answer if isinstance(answer, Verdict) else await answer()
        return verdict, sorted(self.spent)


@pytest.fixture
async def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Users]:
    made = Users(tmp_path)
    monkeypatch.setattr(module, "password_fits", made.fits)
    yield made
    made.pool.stop()


async def test_a_wrong_password_costs_the_same_whatever_the_hash_and_for_an_unknown_user(users: Users) -> None:
    """Which users exist is not told by the time. A file with md5 only has no slow checks."""
    argon2id = hash_password("argon2id", b"secret")
    bcrypt_10 = hash_password("bcrypt", b"secret")
    await users.load(fast=MD5, slow=argon2id, go=BCRYPT_4, other=bcrypt_10, same=argon2id)
    costs = sorted({cost_of(argon2id, ""), "bcrypt$04", "bcrypt$10"})
    assert await users.ask("nobody", b"wrong") == (NO_OPINION, costs)
    for name in ("fast", "slow", "go", "other", "same"):
        assert await users.ask(name, b"wrong") == (WRONG_PASSWORD, costs)
        verdict, spent = await users.ask(name, b"secret")
        assert verdict == ALLOWED
        assert len(spent) <= 1, "a good login takes one check"
    await users.load(fast=MD5)
    assert await users.ask("fast", b"wrong") == (WRONG_PASSWORD, [])
    assert await users.ask("nobody", b"wrong") == (NO_OPINION, [])


async def test_a_challenge_of_scram_tells_unknown_users_from_others_neither_now_nor_after_a_restart(
    users: Users,
) -> None:
    def salt(username: str, logins: ScramLogins) -> bytes:
        request = ConnectRequest(Connect("c", 5), "c", "192.0.2.1:9", "", NO_LISTENER, "", METHOD, b"")
        request.data = f"n,,n={username},r=nonce".encode()
        challenge = logins.begin(Attempt(request))
        assert isinstance(challenge, bytes)
        return challenge.partition(b",")[2]

    await users.passwords.add("known", b"secret", "md5", scram=True)
    first, restarted = ScramLogins(users.passwords), ScramLogins(users.passwords)
    for name in ("known", "nobody", "nobody else"):
        assert salt(name, first) == salt(name, first) == salt(name, restarted)
    before = salt("nobody", first)
    await users.passwords.add("another", b"secret", "md5", scram=True)
    assert salt("nobody", first) == before
    assert len({salt(name, first) for name in ("known", "nobody", "nobody else")}) == 3
