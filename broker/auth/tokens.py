"""Tokens as passwords: JSON Web Tokens (RFC 7519) of HS256, RS256 and ES256.

The algorithms come from the settings, and a key belongs to one of them: what a token says about itself only chooses among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from broker.auth.access import AccessFault, read_access
from broker.auth.accounts import link_domain_of, name_fault
from broker.auth.attempt import ALLOWED, NO_OPINION, Attempt, Source, Verdict, denied
from broker.auth.settings_jwt import JwtSettings

HS256: Final = "HS256"
RS256: Final = "RS256"
ES256: Final = "ES256"
ALGORITHMS: Final = (HS256, RS256, ES256)
TOKEN: Final = re.compile(rb"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")
SECRET_BYTES_MIN: Final = 32  # RFC 7518, 3.2
RSA_BITS_MIN: Final = 2048  # RFC 7518, 3.3
KEYS_MAX: Final = 100
EXPIRY_MAX: Final = 2**53  # seconds; JSON numbers are exact up to it


class KeyFault(Exception):
    """Keys cannot be used. The text says why, without the key."""


class TokenKey(NamedTuple):
    """A key of one algorithm. `name` is its `kid`, "" for none."""

    algorithm: str
    name: str
    key: Any


class Tokens(Source):
    """A password that looks like a token must be a good one. The owner sets `keys`, at any time."""

    def __init__(self, rules: JwtSettings, wall_time: Callable[[], float], now: Callable[[], float]) -> None:
        self.keys: Sequence[TokenKey] = ()
        self.tokens_refused = 0
        self._rules = rules
        self._wall_time = wall_time
        self._now = now

    def check(self, attempt: Attempt) -> Verdict:
        password = attempt.password
        if attempt.is_proven or password is None or not TOKEN.fullmatch(password):
            return NO_OPINION
        try:
            self._take(attempt, self._claims(password))
        except (jwt.PyJWTError, AccessFault, ClaimFault, ValueError, TypeError, RecursionError) as fault:
            self.tokens_refused += 1
            return denied(f"token refused: {_text_of(fault)}")
        attempt.is_proven = True
        return ALLOWED

    def refused(self) -> dict[str, int]:
        return {"tokens_refused": self.tokens_refused}

    def _claims(self, token: bytes) -> dict[str, Any]:
        """Return the claims of a token whose signature and times are good."""
        rules = self._rules
        header = jwt.get_unverified_header(token)
        algorithm, name = header.get("alg"), header.get("kid")
        if algorithm not in rules.algorithms:
            raise ClaimFault("its algorithm is none of those of this server")
        if "crit" in header:
            raise ClaimFault("it has extensions that this server does not have")  # RFC 7515, 4.1.11
        fitting = [
            key for key in self.keys if key.algorithm == algorithm and (not name or not key.name or key.name == name)
        ]
        fault: Exception = ClaimFault("there is no key for it")
        for key in fitting:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    key.key,
                    algorithms=[algorithm],
                    issuer=rules.issuer or None,
                    audience=rules.audience or None,
                    leeway=rules.leeway,
                    options={"require": ["exp", rules.username_claim]},
                )
            except jwt.InvalidSignatureError as error:
                fault = error
            else:
                _check_times(claims)
                return claims
        raise fault

    def _take(self, attempt: Attempt, claims: dict[str, Any]) -> None:
        username = claims[self._rules.username_claim]
        if not isinstance(username, str) or name_fault(username):
            raise ClaimFault(f"its {self._rules.username_claim} is not a user name")
        if attempt.username and attempt.username != username:
            raise ClaimFault("it is of another user")
        access = read_access(claims.get(self._rules.acl_claim))
        expires_at = int(claims["exp"])
        if not 0 <= expires_at <= EXPIRY_MAX:
            raise ClaimFault("its exp is out of range")
        attempt.username = username
        attempt.access = access
        attempt.link_domain = link_domain_of(claims.get(self._rules.role_claim))
        attempt.expires_at = self._now() + expires_at + self._rules.leeway - self._wall_time()


def _check_times(claims: dict[str, Any]) -> None:
    """Raise ClaimFault for a time that is no JSON number (RFC 7519, 2: NumericDate). The library takes texts and booleans."""
    for name in ("exp", "nbf", "iat"):
        value = claims.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ClaimFault(f"its {name} is not a number")


class ClaimFault(Exception):
    """A token is not good enough. The text has nothing of it."""


def _text_of(fault: Exception) -> str:
    """Return the reason for the client and the log, with nothing of the token."""
    if isinstance(fault, AccessFault | ClaimFault | jwt.MissingRequiredClaimError):
        return str(fault)
    return next((text for kind, text in _TEXTS.items() if isinstance(fault, kind)), "it cannot be read")


_TEXTS: Final[dict[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidIssuedAtError: "its iat is wrong",
    jwt.InvalidIssuerError: "it has another issuer",
    jwt.InvalidAudienceError: "it is for another audience",
    jwt.InvalidSignatureError: "its signature is wrong",
}


def secret_keys(secret: bytes) -> list[TokenKey]:
    """Return the key of HS256. Raises KeyFault."""
    if len(secret) < SECRET_BYTES_MIN:
        raise KeyFault(f"the secret has {len(secret)} bytes, HS256 needs at least {SECRET_BYTES_MIN}")
    try:
        jwt.encode({}, secret, HS256)
    except jwt.PyJWTError:
        raise KeyFault("the secret is a public key; public keys belong in a file of their own") from None
    return [TokenKey(HS256, "", secret)]


def pem_keys(data: bytes) -> list[TokenKey]:
    """Return the keys of a PEM file with one or more public keys, for RS256 and ES256. Raises KeyFault."""
    blocks = re.findall(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", data, re.DOTALL)
    if not blocks:
        raise KeyFault("there is no PEM block of a public key")
    keys = []
    for block in blocks[:KEYS_MAX]:
        try:
            key = load_pem_public_key(block)
        except (ValueError, UnsupportedAlgorithm):
            raise KeyFault("a PEM block is not a public key") from None
        keys.append(_public_key("", key))
    return keys


def jwks_keys(data: bytes) -> list[TokenKey]:
    """Return the keys of a JWK Set (RFC 7517) that sign with one of ALGORITHMS. Raises KeyFault."""
    try:
        entries = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise KeyFault('this is not a JWK Set: a JSON object with "keys"') from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise KeyFault('this is not a JWK Set: "keys" is not a list of objects')
    keys = []
    for number, entry in enumerate(entries[:KEYS_MAX], 1):
        algorithm = _algorithm_of(entry)
        if not algorithm or entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
            continue
        name = entry.get("kid", "")
        try:
            key = jwt.PyJWK(entry, algorithm=algorithm).key
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            raise KeyFault(f"key {number} of the set is not usable") from None
        if not isinstance(name, str):
            raise KeyFault(f"key {number} of the set has a kid that is not a text")
        keys += [TokenKey(HS256, name, secret_keys(key)[0].key)] if isinstance(key, bytes) else [_public_key(name, key)]
    if not keys:
        raise KeyFault("the set has no key of " + ", ".join(ALGORITHMS))
    return keys


def _algorithm_of(entry: dict[str, Any]) -> str:
    """Return the algorithm that a key is for; "" for one of none of ALGORITHMS."""
    kind = entry.get("kty")
    if kind == "EC":
        return ES256 if entry.get("crv") == "P-256" else ""
    return HS256 if kind == "oct" else RS256 if kind == "RSA" else ""


def _public_key(name: str, key: object) -> TokenKey:
    if isinstance(key, RSAPublicKey):
        if key.key_size < RSA_BITS_MIN:
            raise KeyFault(f"an RSA key has {key.key_size} bits, RS256 needs at least {RSA_BITS_MIN}")
        return TokenKey(RS256, name, key)
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return TokenKey(ES256, name, key)
    raise KeyFault("a key is neither of RSA nor of the curve P-256")
