"""A certificate and its key from PEM files, for both ends of TLS. The faults say what is wrong with which file."""

from __future__ import annotations

import ssl


class KeyPairFault(Exception):
    """A file cannot be used. `part` is "cert" or "key"; the text names the files."""

    def __init__(self, part: str, text: str) -> None:
        super().__init__(text)
        self.part = part


def file_fault(path: str) -> str:
    """Return why a file cannot be read; "" when it can, and for no path."""
    if path:
        try:
            with open(path, "rb"):
                pass
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            return f"{path} cannot be read: {reason}"
    return ""


def load_key_pair(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Raises KeyPairFault."""
    try:
        context.load_cert_chain(cert, key, _no_password)
    except _EncryptedKeyError:
        raise KeyPairFault("key", f"{key} has a password; the node needs a key without one") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise KeyPairFault("key", f"{key} is not the key of the certificate {cert}") from None
        files = f"{cert} and {key}"
        text = f"{files} are not PEM files of a certificate and its key ({ssl_reason(error)})"
        raise KeyPairFault("cert", text) from None


def ssl_reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


class _EncryptedKeyError(Exception):
    pass


def _no_password() -> str:
    """Instead of a question on the terminal."""
    raise _EncryptedKeyError
