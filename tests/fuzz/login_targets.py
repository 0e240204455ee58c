"""Tokens, the keys that check them, and the answers of a web service that knows users."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
from random import Random
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from broker.auth.attempt import Attempt
from broker.auth.settings_jwt import JwtSettings
from broker.auth.tokens import (
    ALGORITHMS,
    ES256,
    EXPIRY_MAX,
    HS256,
    KeyFault,
    Tokens,
    jwks_keys,
    pem_keys,
    secret_keys,
)
from broker.auth.webhook import SECONDS_MAX, AnswerFault, read_answer
from broker.codec.packets import Connect
from broker.hooks import ConnectRequest
from broker.listener_facts import NO_LISTENER
from broker.message import NEVER
from fuzz_target import Target, joined, separated
from mutation import mutated

SECRET: Final = b"a secret of thirty-two characters"
EC_KEY: Final = ec.derive_private_key(7, ec.SECP256R1()).public_key()
PEM: Final = EC_KEY.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
HEADER: Final = b'{"alg":"HS256","typ":"JWT"}'
CLAIMS: Final = [
    b'{"sub":"alice","exp":9000000000}',
    b'{"sub":"alice","exp":9000000000,"nbf":1,"iat":1,"acl":{"pub":["a/%u"],"sub":["#"],"all":["b/+/%c"]}}',
    b'{"sub":"bob","exp":9000000000.5,"aud":["here","there"],"iss":"me"}',
    b'{"sub":"bob","exp":1}',
]
JSON_TEXTS: Final = (
    b'{|}|[|]|"|:|,|null|true|-1|1e999|NaN|Infinity|9007199254740993|99999999999999999999|"exp":|"sub":|"acl":|"crit":["b64"]'
    b'|"kid":"k"|"alg":"none"|"alg":"ES256"|"alg":"RS256"|"b64":false|"\\ud800"|"\\u0000"|"pub":["$share/g/a"]|"all":"#"'
)
JSON_PIECES: Final = (*JSON_TEXTS.split(b"|"), b"[" * 2000)


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def signed(header: bytes, claims: bytes) -> bytes:
    """A token with the right signature of HS256, whatever its header says."""
    content = encoded(header) + b"." + encoded(claims)
    return content + b"." + encoded(hmac.digest(SECRET, content, hashlib.sha256))


TOKENS: Final = [signed(HEADER, claims) for claims in CLAIMS]
CONTENTS: Final = {token.rpartition(b".")[0] for token in TOKENS}
SIGNED, RAW = 0, 1


class TokenTarget(Target):
    """u8 kind, then a token, or header and claims that are signed with the right secret. Nothing is raised; a token that
    nobody signed is refused, and a login that is allowed has a user name and a time."""

    def __init__(self) -> None:
        super().__init__(TOKENS, (b".", b"eyJ", b"=", b"eyJhbGciOiJub25lIn0", *TOKENS))
        self._tokens = Tokens(JwtSettings(algorithms=ALGORITHMS), lambda: 0.0, lambda: 0.0)
        self._tokens.keys = (*secret_keys(SECRET), *pem_keys(PEM))

    def make(self, rng: Random) -> bytes:
        if rng.random() < 0.4:
            return bytes((RAW,)) + super().make(rng)
        header = mutated(rng, HEADER, [HEADER], JSON_PIECES) if rng.random() < 0.4 else HEADER
        return bytes((SIGNED,)) + joined([header, mutated(rng, rng.choice(CLAIMS), CLAIMS, JSON_PIECES)])

    def run(self, data: bytes) -> None:
        kind, rest = data[:1], data[1:]
        parts = [*separated(rest), b"", b""]
        token = rest if kind == bytes((RAW,)) else signed(parts[0], parts[1])
        packet = Connect("c", 5, password=token)
        login = Attempt(ConnectRequest(packet, "c", "192.0.2.1:9", "", NO_LISTENER, "", "", b""))
        verdict = self._tokens.check(login)
        assert verdict.is_allowed == login.is_proven
        assert not (verdict.is_allowed and verdict.is_final)
        if kind == bytes((RAW,)):
            assert not verdict.is_allowed or token.rpartition(b".")[0] in CONTENTS, "a token that nobody signed"
        if verdict.is_allowed:
            assert login.username, "a user without a name"
            assert 0 <= login.expires_at <= EXPIRY_MAX
        else:
            assert login.access is None or verdict.is_final
            assert b"eyJ" not in verdict.reason.encode(), "the token is told"


JWK: Final = [
    json.dumps(
        {
            "keys": [
                {"kty": "oct", "kid": "a", "use": "sig", "alg": HS256, "k": encoded(SECRET).decode()},
                {
                    "kty": "EC",
                    "crv": "P-256",
                    "kid": "b",
                    "alg": ES256,
                    "x": encoded(EC_KEY.public_numbers().x.to_bytes(32, "big")).decode(),
                    "y": encoded(EC_KEY.public_numbers().y.to_bytes(32, "big")).decode(),
                },
                {"kty": "RSA", "kid": "c", "n": encoded(b"\xc5" * 255 + b"\x01").decode(), "e": "AQAB"},
            ]
        }
    ).encode()
]


class KeyTarget(Target):
    """A file of keys, a JWK Set or PEM. Only KeyFault is raised, and it does not tell the secret."""

    def __init__(self) -> None:
        pieces = (
            b'"kty":"oct"',
            b'"n":"AQAB"',
            b'"e":"AA"',
            b'"x":""',
            b"-----END PUBLIC KEY-----\n",
            *PEM.splitlines(True),
        )
        super().__init__([*JWK, PEM, PEM * 3], (*JSON_PIECES, *pieces))

    def run(self, data: bytes) -> None:
        for read in (jwks_keys, pem_keys):
            told = ""
            try:
                keys = read(data)
                assert keys
                assert all(key.algorithm in ALGORITHMS and isinstance(key.name, str) for key in keys)
            except KeyFault as fault:
                told = str(fault)
            assert encoded(SECRET).decode() not in told


ANSWERS: Final = [
    b'{"result":"allow","expire_at":1700000000.5,"acl":{"pub":["a/%u"],"sub":["b/#"]}}',
    b'{"result":"deny"}',
    b'{"result":"ignore","expire_at":null,"acl":null}',
]


class AnswerTarget(Target):
    """The body of a webhook's answer. Only AnswerFault is raised."""

    def __init__(self) -> None:
        super().__init__(ANSWERS, (*JSON_PIECES, b'"result":', b'"allow"', b'"expire_at":'))

    def run(self, data: bytes) -> None:
        with contextlib.suppress(AnswerFault):
            answer = read_answer(data)
            assert answer.result in ("allow", "deny", "ignore")
            assert answer.expires_at == NEVER or 0 <= answer.expires_at <= SECONDS_MAX
