"""Tokens as passwords: a table of good, forged and expired ones for each algorithm, and damaged keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from time import time as wall_time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.auth.attempt import Attempt, Verdict
from broker.auth.settings_jwt import JwtSettings
from broker.auth.tokens import KeyFault, TokenKey, Tokens, jwks_keys, pem_keys, secret_keys
from broker.authorization import TopicAccess
from broker.codec.packets import Connect
from broker.codec.reason_codes import NOT_AUTHORIZED
from broker.hooks import ConnectRequest
from broker.listener_facts import NO_LISTENER
from effort import effort

SECRET = b"a secret of thirty-two characters"
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_EC_KEY = ec.generate_private_key(ec.SECP256R1())
NOW = 1_000.0


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


PEMS = pem(RSA_KEY) + pem(EC_KEY)
ALL_KEYS = [*secret_keys(SECRET), *pem_keys(PEMS)]
GOOD: dict[str, Any] = {"HS256": SECRET, "RS256": RSA_KEY, "ES256": EC_KEY}
WRONG: dict[str, Any] = {"HS256": SECRET[::-1], "RS256": OTHER_RSA_KEY, "ES256": OTHER_EC_KEY}


def rules(**changes: Any) -> JwtSettings:
    return replace(JwtSettings(algorithms=("HS256", "RS256", "ES256")), **changes)


def claims(**changes: Any) -> dict[str, Any]:
    found = {"sub": "alice", "exp": int(wall_time()) + 60, **changes}
    return {name: value for name, value in found.items() if value is not None}


def attempt(password: bytes | str, username: str | None = None) -> Attempt:
    data = password.encode() if isinstance(password, str) else password
    packet = Connect("c", 5, username=username, password=data)
    return Attempt(ConnectRequest(packet, "c", "192.0.2.1:9", "", NO_LISTENER, "", "", b""))


def check(login: Attempt, keys: list[TokenKey] | None = None, **changes: Any) -> Verdict:
    source = Tokens(rules(**changes), wall_time, lambda: NOW)
    source.keys = ALL_KEYS if keys is None else keys
    verdict = source.check(login)
    assert source.refused() == {"tokens_refused": int(verdict.is_final)}
    if verdict.is_final:
        assert verdict.reason_code == NOT_AUTHORIZED
        assert (login.is_proven, login.access) == (False, None)
    return verdict


@pytest.mark.parametrize("algorithm", list(GOOD))
@pytest.mark.parametrize("username", [None, "", "alice"])
def test_a_good_token_names_the_user(algorithm: str, username: str | None) -> None:
    """The connection ends with the token."""
    access = {"pub": ["a/#"], "sub": ["b"]}
    login = attempt(jwt.encode(claims(acl=access), GOOD[algorithm], algorithm), username)
    assert check(login).is_allowed
    assert (login.username, login.is_proven) == ("alice", True)
    assert NOW + 55 < login.expires_at <= NOW + 61
    assert login.access == (TopicAccess("a/#", True, False), TopicAccess("b", False, True))


@pytest.mark.parametrize("algorithm", list(GOOD))
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, '"exp"'),
        ({"exp": "soon"}, "cannot be read"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": 2**70}, "exp is out of range"),
        ({"nbf": "1"}, "nbf"),
        ({"nbf": True}, "nbf"),
        ({"iat": "1"}, "iat"),
        ({"iat": False}, "iat"),
        ({"nbf": 2**40}, "not valid yet"),
        ({"iat": 2**40}, ""),
        ({"sub": None}, '"sub"'),
        ({"sub": ""}, "not a user name"),
        ({"sub": 7}, ""),
        ({"sub": "a\0b"}, "not a user name"),
        ({"sub": "a\ud800"}, "not a user name"),
        ({"aud": "other"}, "another audience"),
        ({"acl": "#"}, "access"),
        ({"acl": {"pub": "#"}}, "pub of the access"),
    ],
)
def test_claims_that_refuse(algorithm: str, changes: dict[str, Any], words: str) -> None:
    verdict = check(attempt(jwt.encode(claims(**changes), GOOD[algorithm], algorithm)))
    assert verdict.is_final
    assert words in verdict.reason


@pytest.mark.parametrize("algorithm", list(GOOD))
def test_a_forged_token_is_refused(algorithm: str) -> None:
    good = jwt.encode(claims(), GOOD[algorithm], algorithm)
    header, body, signature = good.split(".")
    other_body = jwt.encode(claims(sub="root"), GOOD[algorithm], algorithm).split(".")[1]
    for forged in (
        jwt.encode(claims(), WRONG[algorithm], algorithm),
        f"{header}.{other_body}.{signature}",
        f"{header}.{body}.",
        f"{header}.{body}.{signature[:-8]}",
    ):
        assert check(attempt(forged)).is_final


def coded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "", "HS384", "RS512", "PS256", "ES384", "EdDSA", None, 7, ["HS256"]]
)
def test_algorithms_of_the_token_alone_are_not_taken(algorithm: object) -> None:
    for signature in ("", coded("x")):
        token = f"{coded({'alg': algorithm, 'typ': 'JWT'})}.{coded(claims())}.{signature}"
        assert check(attempt(token)).is_final


def test_a_public_key_is_no_secret() -> None:
    """A token that claims HS256 and is signed with the text of the public key."""
    signed = f"{coded({'alg': 'HS256'})}.{coded(claims())}"
    for text in (pem(RSA_KEY), pem(RSA_KEY).strip(), PEMS):
        proof = base64.urlsafe_b64encode(hmac.digest(text, signed.encode(), hashlib.sha256)).decode().rstrip("=")
        assert check(attempt(f"{signed}.{proof}")).is_final
        assert check(attempt(f"{signed}.{proof}"), pem_keys(PEMS)).reason == "token refused: there is no key for it"


def test_an_algorithm_that_the_settings_do_not_name_is_refused() -> None:
    token = jwt.encode(claims(), SECRET, "HS256")
    assert check(attempt(token), algorithms=("RS256",)).is_final
    assert check(attempt(token), algorithms=("RS256", "HS256")).is_allowed


@pytest.mark.parametrize(
    ("wanted", "changes", "is_good"),
    [
        ({"issuer": "https://id"}, {"iss": "https://id"}, True),
        ({"issuer": "https://id"}, {"iss": "https://other"}, False),
        ({"issuer": "https://id"}, {}, False),
        ({"audience": "mqtt"}, {"aud": "mqtt"}, True),
        ({"audience": "mqtt"}, {"aud": ["other", "mqtt"]}, True),
        ({"audience": "mqtt"}, {"aud": "other"}, False),
        ({"audience": "mqtt"}, {}, False),
        ({"username_claim": "name"}, {"name": "alice", "sub": None}, True),
        ({"username_claim": "name"}, {}, False),
        ({"leeway": 100.0}, {"exp": 1}, False),
        ({"acl_claim": "topics"}, {"topics": {"pub": ["a"]}}, True),
        ({"acl_claim": "topics"}, {"topics": []}, False),
    ],
)
def test_demands_of_the_settings(wanted: dict[str, Any], changes: dict[str, Any], is_good: bool) -> None:
    verdict = check(attempt(jwt.encode(claims(**changes), SECRET, "HS256")), **wanted)
    assert verdict.is_allowed is is_good


@pytest.mark.parametrize(
    ("wanted", "changes", "domain"),
    [
        ({}, {"role": "link"}, ""),
        ({}, {"role": ["link"]}, None),
        ({}, {"role": "link:berlin"}, "berlin"),
        ({}, {"role": "admin"}, None),
        ({}, {}, None),
        ({"role_claim": "kind"}, {"kind": "link"}, ""),
        ({"role_claim": "kind"}, {"role": "link"}, None),
    ],
)
def test_a_token_may_say_that_its_clients_may_be_links(
    wanted: dict[str, Any], changes: dict[str, Any], domain: str | None
) -> None:
    login = attempt(jwt.encode(claims(**changes), SECRET, "HS256"))
    assert check(login, **wanted).is_allowed
    assert login.link_domain == domain


def test_the_leeway_extends_the_token_and_the_connection() -> None:
    login = attempt(jwt.encode(claims(exp=int(wall_time()) - 5), SECRET, "HS256"))
    assert check(login).is_final
    assert check(login, leeway=30.0).is_allowed
    assert NOW + 20 < login.expires_at < NOW + 30


def test_a_token_of_another_user_is_refused() -> None:
    verdict = check(attempt(jwt.encode(claims(), SECRET, "HS256"), "bob"))
    assert verdict.reason == "token refused: it is of another user"


def test_extensions_that_are_critical_are_refused() -> None:
    token = jwt.encode(claims(), SECRET, "HS256", headers={"crit": ["x"], "x": 1})
    assert check(attempt(token)).is_final


@pytest.mark.parametrize("password", [b"", b"secret", b"a.b.c", b"\xff.eyJ.x", b"eyJ", b"eyJ.a", b"x eyJ.a.b"])
def test_a_password_that_is_no_token_is_left_to_others(password: bytes) -> None:
    verdict = check(attempt(password))
    assert (verdict.is_final, verdict.is_allowed) == (False, False)


def test_a_token_that_is_nested_deeply_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b'{"a":' * 5_000).decode().rstrip("=")
    for token in (f"eyJ{deep}.{deep}.x", f"{coded({'alg': 'HS256'})}.{deep}.x"):
        assert check(attempt(token)).is_final


@settings(max_examples=effort(300))
@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_token_is_refused_or_left_to_others(at: int, byte: int) -> None:
    token = bytearray(jwt.encode({"sub": "alice", "exp": 2**40}, SECRET, "HS256").encode())
    former, token[at % len(token)] = token[at % len(token)], byte
    verdict = check(attempt(bytes(token)))
    if former != byte:
        # The last character of a signature of 32 bytes has two bits that say nothing.
        assert not verdict.is_allowed or at % len(token) == len(token) - 1


# --- keys


def jwk(key: Any, name: str, **more: Any) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": name, **more}


def key_set(*entries: Any) -> bytes:
    return json.dumps({"keys": entries}).encode()


def test_the_kid_chooses_a_key_of_the_set() -> None:
    secret = {"kty": "oct", "kid": "h", "k": base64.urlsafe_b64encode(SECRET).decode().rstrip("=")}
    encryption = jwk(OTHER_RSA_KEY, "enc", use="enc")
    keys = jwks_keys(key_set(jwk(OTHER_RSA_KEY, "old"), jwk(RSA_KEY, "r"), jwk(EC_KEY, "e"), secret, encryption))
    assert [(key.algorithm, key.name) for key in keys] == [
        ("RS256", "old"),
        ("RS256", "r"),
        ("ES256", "e"),
        ("HS256", "h"),
    ]
    for algorithm, name in (("RS256", "r"), ("ES256", "e"), ("HS256", "h")):
        good = jwt.encode(claims(), GOOD[algorithm], algorithm, headers={"kid": name})
        assert check(attempt(good), keys).is_allowed
        assert check(attempt(jwt.encode(claims(), GOOD[algorithm], algorithm)), keys).is_allowed
        wrong = jwt.encode(claims(), GOOD[algorithm], algorithm, headers={"kid": "old"})
        assert check(attempt(wrong), keys).is_final


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a JWK Set"),
        (b"[]", "not a JWK Set"),
        (b"{}", "not a JWK Set"),
        (b'{"keys": {}}', "not a list"),
        (b'{"keys": [1]}', "not a list of objects"),
        (b'{"keys": []}', "no key of HS256"),
        (b"[" * 100_000, "not a JWK Set"),
        (key_set({"kty": "RSA", "n": "x"}), "key 1 of the set is not usable"),
        (key_set({"kty": "oct", "k": "c2VjcmV0"}), "the secret has 6 bytes"),
        (key_set({"kty": "oct"}), "key 1 of the set is not usable"),
        (key_set({"kty": "OKP", "crv": "Ed25519", "x": "eA"}), "no key of"),
        (key_set({"kty": ["RSA"]}), "no key of"),
        (key_set({"kty": "EC", "crv": "P-256", "x": "eA", "y": "eA"}), "not usable"),
        (key_set(jwk(RSA_KEY, "a", alg="RS512")), "no key of"),
        (key_set({**jwk(RSA_KEY, "a"), "kid": 7}), "kid that is not a text"),
    ],
)
def test_damaged_key_sets(data: bytes, words: str) -> None:
    with pytest.raises(KeyFault, match=words):
        jwks_keys(data)


def private_pem() -> bytes:
    return RSA_KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no PEM block"),
        (b"secret", "no PEM block"),
        (private_pem(), "not a public key"),
        (pem(RSA_KEY).replace(b"A", b"B"), "not a public key"),
        (pem(rsa.generate_private_key(65537, 1024)), "1024 bits"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "neither of RSA nor of the curve P-256"),
    ],
)
def test_damaged_public_keys(data: bytes, words: str) -> None:
    with pytest.raises(KeyFault, match=words):
        pem_keys(data)


@pytest.mark.parametrize(("secret", "words"), [(b"short", "5 bytes"), (pem(RSA_KEY), "is a public key")])
def test_secrets_that_are_none(secret: bytes, words: str) -> None:
    with pytest.raises(KeyFault, match=words):
        secret_keys(secret)
