"""Passwords are kept as argon2id when they are new, and read in the four hashes of the Go broker.

An argon2id or bcrypt hash names itself and its cost. MD5, SHA-256 and plain text are bare: the settings say which of them a
file has.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

import argon2
import bcrypt
from argon2.exceptions import VerificationError

PLAIN: Final = "plain"
MD5: Final = "md5"
SHA256: Final = "sha256"
BCRYPT: Final = "bcrypt"
ARGON2ID: Final = "argon2id"
SELF_NAMING: Final = (BCRYPT, ARGON2ID)

# RFC 9106, 4, says how to choose: 19 MiB and two passes are the least of the usual advice for logins, and take some 22 ms.
ARGON2_PASSES: Final = 2
ARGON2_MEMORY_KIB: Final = 19 * 1024
BCRYPT_COST: Final = 10
BCRYPT_BYTES_MAX: Final = 72  # bcrypt ignores the bytes behind them
ARGON2_TEXT: Final = re.compile(r"\$argon2id\$v=[0-9]+\$m=[0-9]+,t=[0-9]+,p=[0-9]+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+")
BCRYPT_TEXT: Final = re.compile(r"\$2[abxy]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
HEX_DIGITS: Final = {MD5: 32, SHA256: 64}

_argon2: Final = argon2.PasswordHasher(ARGON2_PASSES, ARGON2_MEMORY_KIB, parallelism=1)


def hash_of(stored: str, bare: str) -> str:
    """Return the hash of a stored password: PLAIN, MD5, SHA256, BCRYPT or ARGON2ID. `bare` is that of texts that name none."""
    if ARGON2_TEXT.fullmatch(stored):
        return ARGON2ID
    if BCRYPT_TEXT.fullmatch(stored):
        return BCRYPT
    return bare


def fault_of(stored: str, bare: str) -> str:
    """Return why no password fits what is stored; empty when one can. The text has nothing of it."""
    kind = hash_of(stored, bare)
    if not stored:
        return "the password is empty"
    if kind in SELF_NAMING and hash_of(stored, "") != kind:
        return f"the password is neither an argon2id nor a bcrypt hash, and hash is {bare}"
    digits = HEX_DIGITS.get(kind)
    if digits and not re.fullmatch(rf"[0-9a-f]{{{digits}}}", stored):
        return f"the password is not a {kind} hash of {digits} hexadecimal digits in lower case"
    return ""


def cost_of(stored: str, bare: str) -> str:
    """Return the hash and its parameters, when a check takes milliseconds on purpose and belongs in a thread; else "". Checks
    of one cost take the same time."""
    kind = hash_of(stored, bare)
    if kind == ARGON2ID:
        return stored.rpartition("$")[0].rpartition("$")[0]
    return f"{BCRYPT}{stored[3:6]}" if kind == BCRYPT else ""


def hash_password(kind: str, password: bytes) -> str:
    """Return a new password as it is kept. argon2id and bcrypt take milliseconds; they draw a salt. Raises ValueError for
    bcrypt and more than 72 bytes, for plain text that is not UTF-8, and for an empty password."""
    if not password:
        raise ValueError("the password is empty")
    if kind == ARGON2ID:
        return _argon2.hash(password)
    if kind == BCRYPT:
        if len(password) > BCRYPT_BYTES_MAX:
            raise ValueError(f"the password has {len(password)} bytes, bcrypt takes at most {BCRYPT_BYTES_MAX}")
        return bcrypt.hashpw(password, bcrypt.gensalt(BCRYPT_COST)).decode()
    if kind == PLAIN:
        try:
            return password.decode()
        except UnicodeDecodeError:
            raise ValueError("the password is not UTF-8, which plain text has to be") from None
    return hashlib.new(kind, password, usedforsecurity=False).hexdigest()


def password_fits(stored: str, bare: str, password: bytes) -> bool:
    """Return whether it is the password that is stored. A stored text that is no hash fits none."""
    kind = hash_of(stored, bare)
    if not stored or not password:
        return False
    if kind == ARGON2ID:
        try:
            return _argon2.verify(stored, password)
        except (VerificationError, argon2.exceptions.InvalidHashError):
            return False
    if kind == BCRYPT:
        try:
            # The Go broker's library cuts longer passwords too.
            return bcrypt.checkpw(password[:BCRYPT_BYTES_MAX], stored.encode())
        except ValueError:
            return False
    expected = password if kind == PLAIN else hashlib.new(kind, password, usedforsecurity=False).hexdigest().encode()
    return hmac.compare_digest(expected, stored.encode())
