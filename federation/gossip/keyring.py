"""The keys of the gossip, and AES-GCM with them (wire-gossip 5.1). The first key seals, each of them opens."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence
from random import Random
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = (16, 24, 32)
"""Lengths of keys: AES-128, AES-192, AES-256."""
KEYS_MAX: Final = 16
"""Keys of one ring. Each of them is tried on a packet that was sealed with none."""

VERSION_PADDED: Final = 0
"""Of members with protocol version 1 (PCur of `Vsn`): PKCS#7 to whole blocks. It is understood and not sent."""
VERSION_PLAIN: Final = 1
"""Of members with protocol version 2 or more, which every Serf is: no padding."""
SEALED_OVERHEAD: Final = 29
"""Bytes that VERSION_PLAIN adds: version, nonce, tag."""
_NONCE_BYTES: Final = 12
_BLOCK_BYTES: Final = 16


class KeyRefused(ValueError):
    """The keyring cannot do what was asked. The text says why, and what would do; it does not have the key."""


def parse_key(text: str) -> bytes:
    """A key as `gmqttd keygen` and `serf keygen` print it. Raises KeyRefused."""
    try:
        key = b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise KeyRefused("is not base64; `gmqttd keygen` prints a key") from None
    return checked_key(key)


def key_text(key: bytes) -> str:
    return b64encode(key).decode()


def checked_key(key: bytes) -> bytes:
    """Raises KeyRefused for a key of another length."""
    if len(key) not in KEY_BYTES:
        raise KeyRefused(f"is a key of {len(key)} bytes; 16, 24 or 32 are right, and `gmqttd keygen` prints one of 32")
    return key


class Keyring:
    """`keys`: the primary one first. A change replaces the tuples, so that who walks over them sees one state."""

    def __init__(self, keys: Sequence[bytes], rng: Random) -> None:
        """`rng` draws the nonces: two that are equal give away what was sealed."""
        if not keys:
            raise KeyRefused("there is no key; the keyring needs at least one")
        self._rng = rng
        self.keys: tuple[bytes, ...] = ()
        self._ciphers: tuple[AESGCM, ...] = ()
        for key in keys:
            self.install(key)

    def install(self, key: bytes) -> bool:
        """Open with this key, too. False when it is there already."""
        if checked_key(key) in self.keys:
            return False
        if len(self.keys) >= KEYS_MAX:
            raise KeyRefused(f"the keyring has {KEYS_MAX} keys already; remove one first")
        self._set((*self.keys, key))
        return True

    def use(self, key: bytes) -> bool:
        """Seal with this key from now on. False when it is the primary key already."""
        if key not in self.keys:
            raise KeyRefused("the key is not in the keyring; install it first")
        if key == self.keys[0]:
            return False
        self._set((key, *(other for other in self.keys if other != key)))
        return True

    def remove(self, key: bytes) -> bool:
        """Forget this key. False when it is not there."""
        if key == self.keys[0]:
            raise KeyRefused("the key is the primary one, which cannot be removed; use another one first")
        if key not in self.keys:
            return False
        self._set(tuple(other for other in self.keys if other != key))
        return True

    def _set(self, keys: tuple[bytes, ...]) -> None:
        self.keys = keys
        self._ciphers = tuple(AESGCM(key) for key in keys)

    def seal(self, data: bytes, associated: bytes, version: int = VERSION_PLAIN) -> bytes:
        """Return `version | nonce | ciphertext | tag`."""
        if version == VERSION_PADDED:
            padding = _BLOCK_BYTES - len(data) % _BLOCK_BYTES
            data += bytes((padding,)) * padding
        nonce = self._rng.randbytes(_NONCE_BYTES)
        return bytes((version,)) + nonce + self._ciphers[0].encrypt(nonce, data, associated)

    def unseal(self, sealed: bytes, associated: bytes) -> bytes | None:
        """Return what was sealed; None when it was sealed with none of the keys, or is no sealed block."""
        if len(sealed) < SEALED_OVERHEAD or sealed[0] > VERSION_PLAIN:
            return None
        nonce = sealed[1 : 1 + _NONCE_BYTES]
        ciphertext = sealed[1 + _NONCE_BYTES :]
        for cipher in self._ciphers:
            try:
                data = cipher.decrypt(nonce, ciphertext, associated)
            except InvalidTag:
                continue
            return data if sealed[0] == VERSION_PLAIN else _without_padding(data)
        return None


def _without_padding(data: bytes) -> bytes | None:
    padding = data[-1] if data else 0
    if not 0 < padding <= _BLOCK_BYTES or data[-padding:] != bytes((padding,)) * padding:
        return None
    return data[:-padding]
