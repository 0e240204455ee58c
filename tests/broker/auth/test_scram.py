"""SCRAM-SHA-256: the vector of RFC 7677, clients that do not know the password, bad input, SASLprep of RFC 4013."""

from __future__ import annotations

import base64
import random

import pytest

from broker.auth.scram import (
    ITERATIONS_MIN,
    MESSAGE_BYTES_MAX,
    ClientFirst,
    ScramFault,
    ServerExchange,
    derive_credentials,
    parse_client_first,
    prepared,
    unknown_credentials,
)
from scram_client import final_message

# RFC 7677, 3
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(first: bytes = FIRST, password: str = "pencil") -> ServerExchange:
    return ServerExchange(parse_client_first(first), derive_credentials(password, SALT, ITERATIONS_MIN), NONCE)


def test_the_example_of_the_rfc() -> None:
    server = exchange()
    assert server.challenge == CHALLENGE
    assert server.finish(FINAL) == SIGNATURE


@pytest.mark.parametrize(
    ("name", "username"), [("user", "user"), ("a=2Cb=3Dc", "a,b=c"), ("ﬁ", "fi"), ("I\u00adX", "IX")]
)
@pytest.mark.parametrize("flag", ["n", "y"])
def test_logins(name: str, username: str, flag: str) -> None:
    first = f"{flag},,n={name},r=abc".encode()
    assert parse_client_first(first).username == username
    server = exchange(first, "secret")
    final = final_message(first, server.challenge, "secret", f"{flag},,".encode())
    assert server.finish(final).startswith(b"v=")


def test_a_wrong_password_is_refused() -> None:
    server = exchange()
    with pytest.raises(ScramFault, match="wrong password, or an unknown user"):
        server.finish(final_message(FIRST, server.challenge, "pencils"))


def test_an_answer_is_of_no_use_for_another_login() -> None:
    """The nonce of the server is new for each."""
    other = ServerExchange(parse_client_first(FIRST), derive_credentials("pencil", SALT, ITERATIONS_MIN), "another")
    with pytest.raises(ScramFault, match="another nonce"):
        other.finish(FINAL)


@pytest.mark.parametrize("password", ["", "pencil"])
def test_unknown_users_look_like_others(password: str) -> None:
    """The same salt at each attempt, another one for each user and server; no password is right."""
    known = [derive_credentials("x", bytes(length), 4096 + length) for length in (16, 40)]
    one, again = unknown_credentials(b"s", "user", known), unknown_credentials(b"s", "user", known)
    assert one == again
    assert len({one.salt, unknown_credentials(b"s", "u", known).salt, unknown_credentials(b"t", "user").salt}) == 3
    kinds = {
        (len(found.salt), found.iterations) for found in (unknown_credentials(b"s", f"u{i}", known) for i in range(50))
    }
    assert kinds == {(16, 4112), (40, 4136)}, "as those of the users that exist"
    server = ServerExchange(parse_client_first(FIRST), one, NONCE)
    with pytest.raises(ScramFault, match="unknown user"):
        server.finish(final_message(FIRST, server.challenge, password))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "header"),
        (b"n,n=user,r=abc", "identity of another user"),
        (b"n,,", "user name and nonce"),
        (b"n,,n=" + b"u" * 257 + b",r=abc", "257 characters"),
        (b"x,,n=user,r=abc", "channel binding flag"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding, which"),
        (b"n,a=admin,n=user,r=abc", "identity of another user"),
        (b"n,,m=x,n=user,r=abc", "extension"),
        (b"n,,r=abc,n=user", "user name and nonce"),
        (b"n,,n=user", "user name and nonce"),
        (b"n,,n=,r=abc", "empty user name"),
        (b"n,,n=a=b,r=abc", "equals sign"),
        (b"n,,n=user,r=", "nonce"),
        (b"n,,n=user,r=a b", "nonce"),
        (b"n,,n=us\xffer,r=abc", "UTF-8"),
        (b"n,,n=us\0er,r=abc", "null character"),
        (b"n,,n=us\x07er,r=abc", r"U\+0007"),
        (b"n,,n=" + b"u" * MESSAGE_BYTES_MAX + b",r=abc", "bytes, at most"),
    ],
)
def test_first_messages_that_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(ScramFault, match=text):
        parse_client_first(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "without a proof"),
        (FINAL.replace(b",p=", b",q="), "without a proof"),
        (FINAL.replace(b"c=biws", b"c=eSws"), "another header"),
        (FINAL.replace(b"c=biws", b"c=*"), "Base64"),
        (FINAL.replace(b"c=biws,", b""), "channel binding and nonce"),
        (FINAL.replace(b"r=rOpr", b"r=rOpR"), "another nonce"),
        (FINAL.replace(b"p=dHzb", b"p=dHzc"), "wrong password"),
        (FINAL.replace(b"p=dHzb", b"p="), "another length"),
        (FINAL.replace(b"p=dHzb", b"p=dHz\xff"), "UTF-8"),
        (FINAL.replace(b",p=", b",x=1,p="), "wrong password"),  # an extension that is not signed
    ],
)
def test_final_messages_that_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(ScramFault, match=text):
        exchange().finish(data)


def test_damaged_messages_are_refused() -> None:
    """Nothing else than ScramFault is raised, and no damaged answer is accepted."""
    rng = random.Random(1)
    server = exchange()
    for _ in range(3_000):
        data = bytearray(rng.choice([FIRST, FINAL]))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            assert isinstance(parse_client_first(bytes(data)), ClientFirst)
        except ScramFault:
            pass
        if data != FINAL:
            with pytest.raises(ScramFault):
                server.finish(bytes(data))


@pytest.mark.parametrize(
    ("text", "result"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep(text: str, result: str) -> None:
    """The examples of RFC 4013, 3, and a space that is not ASCII."""
    assert prepared(text) == result


@pytest.mark.parametrize("text", ["\u0007", "\u06271", "\u0627a\u0627", "\ue000", "\u0221", "\ud800"])
def test_saslprep_refuses(text: str) -> None:
    """Control characters, mixed directions, private use, unassigned code points, surrogates."""
    with pytest.raises(ScramFault):
        prepared(text)
