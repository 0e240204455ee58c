"""A server checks logins with SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

`parse_client_first` names the user. With its credentials `ServerExchange` gives the challenge, and checks the client's answer.
The server keeps no password: stolen credentials do not let in whoever has them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

METHOD: Final = "SCRAM-SHA-256"  # Authentication Method
ITERATIONS: Final = 15_000  # of new credentials; the client computes as many for each login
ITERATIONS_MIN: Final = 4_096  # RFC 7677, 4
SALT_BYTES: Final = 16
MESSAGE_BYTES_MAX: Final = 4_096  # of a client
NAME_CHARACTERS_MAX: Final = 256  # of a user name in a message; preparing one takes up to 10 us a character


class ScramFault(Exception):
    """The client is not let in. The text says why, for the log; it contains no secret."""


class Credentials(NamedTuple):
    """A server keeps this of a password (RFC 5802, 3)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class ClientFirst(NamedTuple):
    """The first message of a client. `bare` is the part that both sides sign, `header` the one before it."""

    username: str
    nonce: str
    bare: str
    header: str


def derive_credentials(password: str, salt: bytes, iterations: int = ITERATIONS) -> Credentials:
    """Return the credentials of a new password. Takes milliseconds of CPU. Raises ScramFault for characters that no password
    has."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
    client_key = _hmac(salted, b"Client Key")
    return Credentials(salt, iterations, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))


def unknown_credentials(secret: bytes, username: str, known: Sequence[Credentials] = ()) -> Credentials:
    """Return the credentials of a user that does not exist. No password fits. The salt stays the same as long as the secret
    does; its length and the iterations are those of one of the known credentials, so that the challenge does not tell which
    users exist (RFC 5802, 9)."""
    salt = _hmac(secret, b"salt " + username.encode())
    like = known[int.from_bytes(salt) % len(known)] if known else None
    length, iterations = (SALT_BYTES, ITERATIONS) if like is None else (len(like.salt), like.iterations)
    return Credentials(
        hashlib.shake_256(salt).digest(length),
        iterations,
        _hmac(secret, b"stored " + username.encode()),
        _hmac(secret, b"server " + username.encode()),
    )


def parse_client_first(data: bytes) -> ClientFirst:
    """Read client-first-message (RFC 5802, 7). Raises ScramFault."""
    text = _text(data)
    flag, _, rest = text.partition(",")
    authzid, comma, bare = rest.partition(",")
    if not comma:
        raise ScramFault("client-first-message without its header")
    if flag.startswith("p="):
        raise ScramFault("the client asks for channel binding, which this server does not have")
    if flag not in ("n", "y"):
        raise ScramFault("client-first-message with an unknown channel binding flag")
    if authzid:
        raise ScramFault("the client asks for the identity of another user")
    fields = bare.split(",")
    if fields[0].startswith("m="):
        raise ScramFault("the client asks for an extension that this server does not have")
    if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
        raise ScramFault("client-first-message without user name and nonce")
    username = _decoded_name(fields[0][2:])
    nonce = fields[1][2:]
    if not nonce or not all("!" <= character <= "~" for character in nonce):
        raise ScramFault("client-first-message with a nonce that is empty or not printable")
    return ClientFirst(username, nonce, bare, f"{flag},,")


class ServerExchange:
    """One login. `challenge` is server-first-message.

    nonce  printable and random, of the server; a new one for each login
    """

    def __init__(self, first: ClientFirst, credentials: Credentials, nonce: str) -> None:
        self._first = first
        self._credentials = credentials
        self._nonce = first.nonce + nonce
        salt = base64.b64encode(credentials.salt).decode()
        self.challenge = f"r={self._nonce},s={salt},i={credentials.iterations}".encode()

    def finish(self, data: bytes) -> bytes:
        """Check client-final-message, and return server-final-message. Raises ScramFault for a client that does not know the
        password."""
        without_proof, comma, proof_text = _text(data).rpartition(",p=")
        if not comma:
            raise ScramFault("client-final-message without a proof")
        fields = without_proof.split(",")
        if len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
            raise ScramFault("client-final-message without channel binding and nonce")
        if _decoded(fields[0][2:]) != self._first.header.encode():
            raise ScramFault("client-final-message with another header than the first message")
        if not hmac.compare_digest(fields[1][2:].encode(), self._nonce.encode()):
            raise ScramFault("client-final-message with another nonce")
        signed = ",".join((self._first.bare, self.challenge.decode(), without_proof)).encode()
        credentials = self._credentials
        proof = _decoded(proof_text)
        signature = _hmac(credentials.stored_key, signed)
        if len(proof) != len(signature):
            raise ScramFault("client-final-message with a proof of another length")
        client_key = bytes([one ^ other for one, other in zip(proof, signature, strict=True)])
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), credentials.stored_key):
            raise ScramFault("wrong password, or an unknown user")
        return b"v=" + base64.b64encode(_hmac(credentials.server_key, signed))


# --- strings


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_BYTES_MAX:
        raise ScramFault(f"message of {len(data)} bytes, at most {MESSAGE_BYTES_MAX}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ScramFault("message that is not UTF-8") from None
    if "\0" in text:
        raise ScramFault("message with a null character")
    return text


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFault("message with a field that is not Base64") from None


def _decoded_name(text: str) -> str:
    """Return the user name, in which `=2C` is a comma and `=3D` an equals sign (RFC 5802, 5.1)."""
    parts = text.split("=")
    for part in parts[1:]:
        if part[:2] not in ("2C", "3D"):
            raise ScramFault("user name with an equals sign that is not =2C or =3D")
    name = parts[0] + "".join([("," if part[:2] == "2C" else "=") + part[2:] for part in parts[1:]])
    if len(name) > NAME_CHARACTERS_MAX:
        raise ScramFault(f"user name of {len(name)} characters, at most {NAME_CHARACTERS_MAX}")
    name = prepared(name)
    if not name:
        raise ScramFault("empty user name")
    return name


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,  # unassigned: the result is compared with what a server keeps
)


def prepared(text: str) -> str:
    """SASLprep (RFC 4013) of a user name or password. Raises ScramFault for a character that may not be there."""
    mapped = "".join(
        [
            " " if stringprep.in_table_c12(character) else character
            for character in text
            if not stringprep.in_table_b1(character)
        ]
    )
    result = unicodedata.normalize("NFKC", mapped)
    characters = dict.fromkeys(result)  # each once
    for character in characters:
        if any(is_in(character) for is_in in _PROHIBITED):
            raise ScramFault(f"character U+{ord(character):04X} is not allowed in user names and passwords")
    if any(stringprep.in_table_d1(character) for character in characters):
        if any(stringprep.in_table_d2(character) for character in characters):
            raise ScramFault("text of both directions in one user name or password")
        if not (stringprep.in_table_d1(result[0]) and stringprep.in_table_d1(result[-1])):
            raise ScramFault("text from right to left that does not begin and end so")
    return result
