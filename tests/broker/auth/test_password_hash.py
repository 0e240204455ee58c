"""Stored passwords: each hash of the Go broker, argon2id, and texts that are none."""

from __future__ import annotations

import pytest

from broker.auth.password_hash import ARGON2ID, BCRYPT, MD5, PLAIN, SHA256, fault_of, hash_password, password_fits

ALL = (PLAIN, MD5, SHA256, BCRYPT, ARGON2ID)
# Made with other programs: md5sum, sha256sum, and the crypt(3) library's bcrypt test vector.
FOREIGN = [
    (MD5, "5ebe2294ecd0e0f08eab7690d2a6ee69", b"secret"),
    (SHA256, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", b"secret"),
    (BCRYPT, "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", b"U*U"),
    (PLAIN, "secret", b"secret"),
]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("password", [b"p", "größe 🔑".encode(), b"x" * 72])
def test_a_hash_fits_its_password_only(kind: str, password: bytes) -> None:
    """Hashes that name themselves do so whatever the settings say of the others."""
    stored = hash_password(kind, password)
    for bare in ALL if kind in (BCRYPT, ARGON2ID) else (kind,):
        assert fault_of(stored, bare) == ""
        assert password_fits(stored, bare, password)
    for wrong in (b"", password[:-1], password.upper() if kind != PLAIN else password + b"1", stored.encode()):
        if wrong != password:
            assert not password_fits(stored, kind, wrong)


@pytest.mark.parametrize(("kind", "stored", "password"), FOREIGN)
def test_hashes_of_other_programs_fit(kind: str, stored: str, password: bytes) -> None:
    assert fault_of(stored, kind) == ""
    assert password_fits(stored, kind, password)
    assert not password_fits(stored, kind, b"other")


@pytest.mark.parametrize(
    ("stored", "bare", "words"),
    [
        ("", MD5, "empty"),
        ("", PLAIN, "empty"),
        ("secret", MD5, "not a md5 hash of 32"),
        ("5EBE2294ECD0E0F08EAB7690D2A6EE69", MD5, "lower case"),
        ("5ebe2294ecd0e0f08eab7690d2a6ee69", SHA256, "not a sha256 hash"),
        ("secret", BCRYPT, "neither an argon2id nor a bcrypt"),
        ("$2a$05$short", ARGON2ID, "neither an argon2id nor a bcrypt"),
        ("$argon2id$v=19$m=1", BCRYPT, "neither"),
        ("$argon2i$v=19$m=8,t=1,p=1$YWJjZGVmZ2g$YWJjZGVmZ2g", ARGON2ID, "neither"),
    ],
)
def test_a_text_that_is_no_hash_fits_no_password(stored: str, bare: str, words: str) -> None:
    fault = fault_of(stored, bare)
    assert words in fault
    assert not stored or stored not in fault, "the fault has nothing of the password"
    for password in (b"", b"secret", stored.encode()):
        assert not password_fits(stored, bare, password)


def test_an_argon2id_hash_that_is_damaged_fits_no_password() -> None:
    stored = hash_password(ARGON2ID, b"p")
    for damaged in (stored[:-4], stored.replace("p=1", "p=0"), stored.replace("m=19456", "m=0"), stored + "A"):
        assert not password_fits(damaged, ARGON2ID, b"p")


@pytest.mark.parametrize(
    ("kind", "password", "words"),
    [
        (ARGON2ID, b"", "empty"),
        (PLAIN, b"", "empty"),
        (BCRYPT, b"x" * 73, "73 bytes"),
        (PLAIN, b"\xff", "UTF-8"),
    ],
)
def test_passwords_that_cannot_be_kept(kind: str, password: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hash_password(kind, password)


def test_bcrypt_looks_at_72_bytes_as_the_go_broker_does() -> None:
    stored = hash_password(BCRYPT, b"x" * 72)
    assert password_fits(stored, BCRYPT, b"x" * 72 + b"more")
