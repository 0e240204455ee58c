"""The ssl context of a listener from its `tls` section, and its renewal at a reload."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

from broker.config.settings_listeners import TlsSettings
from broker.server.start_error import StartError

MQTT_PROTOCOLS: Final = ("mqtt",)  # ALPN
HTTP_PROTOCOLS: Final = ("http/1.1",)  # of WebSocket and REST
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def server_context(settings: TlsSettings, key: str, protocols: tuple[str, ...]) -> ssl.SSLContext:
    """A context with the files as they are now. Raises StartError that names the key.

    key        the configuration key of the section
    protocols  offered to clients that ask for a protocol (ALPN)
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if protocols:
        context.set_alpn_protocols(list(protocols))
    load_files(context, settings, key)
    if settings.cacert:
        context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_OPTIONAL
        # A resumed session is let in without a look at the certificate, which may have expired or been revoked meanwhile.
        # TLS 1.2 still resumes by session id, as Python cannot turn the server's cache off: TlsLayer refuses that.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def load_files(context: ssl.SSLContext, settings: TlsSettings, key: str) -> None:
    """Give a context, of a server or a client, the version and the files of a section. Raises StartError that names the
    key."""
    context.minimum_version = VERSIONS[settings.min_version]
    for name in ("cert", "key", "cacert", "crl"):
        fault = file_fault(getattr(settings, name))
        if fault:
            raise StartError(f"{key}.{name}: {fault}")
    try:
        load_key_pair(context, settings.cert, settings.key)
    except KeyPairFault as error:
        raise StartError(f"{key}.{error.part}: {error}") from None
    if settings.cacert:
        _load(context, settings.cacert, f"{key}.cacert", "certificates")
    if settings.crl:
        _load(context, settings.crl, f"{key}.crl", "revocation lists")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def tls_fault(settings: TlsSettings | None, key: str) -> Iterator[str]:
    """The fault of the files of a section that would stop a start now, if there is one."""
    if settings is not None:
        try:
            server_context(settings, key, ())
        except StartError as error:
            yield str(error)


def _load(context: ssl.SSLContext, path: str, key: str, what: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise StartError(f"{key}: {path} is not a PEM file of {what} ({ssl_reason(error)})") from None


class LiveContext:
    """The `context` of an address: of the last `renew`, for connections from now on."""

    def __init__(self, settings: TlsSettings, key: str, protocols: tuple[str, ...]) -> None:
        """Raises StartError."""
        self._settings = settings
        self._key = key
        self._protocols = protocols
        self.context = server_context(settings, key, protocols)

    def renew(self) -> None:
        """Read the files again. Raises StartError, and keeps what it has."""
        self.context = server_context(self._settings, self._key, self._protocols)


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
