"""The TLS of a link: which certificates it trusts, which one it shows."""

from __future__ import annotations

import ssl

from federation.definitions.upstream import TlsOptions


class TlsFault(Exception):
    """A file cannot be used. The text names its key."""


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """A context with the files as they are now. Raises TlsFault."""
    for key in ("cacertfile", "certfile", "keyfile"):
        _check_readable(key, getattr(options, key))
    try:
        context = ssl.create_default_context(cafile=options.cacertfile or None)
    except ssl.SSLError:
        raise TlsFault(f"tls.cacertfile: {options.cacertfile} is not a PEM file of certificates") from None
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.certfile:
        try:
            context.load_cert_chain(options.certfile, options.keyfile, _no_password)
        except (ssl.SSLError, _EncryptedKeyError):
            files = f"{options.certfile} and {options.keyfile}"
            raise TlsFault(
                f"tls.certfile: {files} are not PEM files of a certificate and its key without a password"
            ) from None
    return context


def _check_readable(key: str, path: str) -> None:
    if path:
        try:
            with open(path, "rb"):
                pass
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TlsFault(f"tls.{key}: {path} cannot be read: {reason}") from None


class _EncryptedKeyError(Exception):
    pass


def _no_password() -> str:
    """Instead of a question on the terminal."""
    raise _EncryptedKeyError
