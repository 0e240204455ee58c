"""The client's side of SCRAM-SHA-256, written after RFC 5802 without the product's code."""

from __future__ import annotations

import base64
import hashlib
import hmac


def final_message(first: bytes, challenge: bytes, password: str, header: bytes = b"n,,") -> bytes:
    """client-final-message [RFC 5802, 3]."""
    fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c={base64.b64encode(header).decode()},r={fields['r']}"
    signed = first.split(b",", 2)[2] + b"," + challenge + b"," + without_proof.encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
