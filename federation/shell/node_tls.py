"""The certificate of this node and the authorities of all nodes, as their files were when they were last read."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

from broker.config.settings_listeners import TlsSettings
from broker.server.start_error import StartError
from broker.server.tls_context import load_files, server_context, ssl_reason
from federation.trust import dns_names, name_fault

GRPC_PROTOCOLS: Final = ("h2",)  # ALPN
STEPS_MAX: Final = 4  # of a handshake between two ends in memory
VALIDITY_FAULTS: Final = (9, 10)  # X509_V_ERR: not yet valid, expired
SOON_SECONDS: Final = 14 * 86_400
DAY_SECONDS: Final = 86_400


class NodeTls:
    """`renew` reads the files; what it made is for connections from then on.

    server, client  contexts of the two ends of a connection
    expires_at      Unix seconds
    warning         why other nodes refuse the certificate, or soon will; "" for no reason
    """

    def __init__(self, files: TlsSettings, node_name: str, key: str) -> None:
        """`key` is the configuration key of the section."""
        self._files = files
        self._node_name = node_name
        self._key = key
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.expires_at = 0.0
        self.warning = ""

    def renew(self) -> None:
        """Read the files. Raises StartError, and keeps what it has."""
        server = server_context(self._files, self._key, GRPC_PROTOCOLS)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False  # trust.name_fault compares the name of the member, which need not be a host's
        load_files(client, self._files, self._key)
        expires_at = self._check_own()
        self.warning = self._check_pair(server, client) or _soon(self._files.cert, expires_at)
        self.server, self.client, self.expires_at = server, client, expires_at

    def _check_own(self) -> float:
        """Check the name in the certificate of this node. Returns the end of its validity as Unix seconds. Raises
        StartError."""
        from cryptography import x509

        path = self._files.cert
        try:
            with open(path, "rb") as stream:
                certificate = x509.load_pem_x509_certificates(stream.read())[0]
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            found = names.get_values_for_type(x509.DNSName)
        except x509.ExtensionNotFound:
            found = []
        except (OSError, ValueError) as error:
            raise StartError(f"{self._key}.cert: {path}: {error}") from None
        fault = name_fault(found, self._node_name)
        if fault:
            raise StartError(
                f"{self._key}.cert: {path}: {fault}; `gmqttd cert create-node` makes one, and node_name is that of this node"
            )
        return certificate.not_valid_after_utc.timestamp()

    def _check_pair(self, server: ssl.SSLContext, client: ssl.SSLContext) -> str:
        """Let this node meet itself: what it refuses, others do. Returns why the certificate is not valid now, "" where it
        is: new files can mend that while the node runs. Raises StartError for a fault that time does not mend."""
        try:
            _shake_hands(server, client)
        except ssl.SSLCertVerificationError as error:
            text = f"{self._files.cert}: other nodes refuse this certificate: {error.verify_message}"
            if error.verify_code in VALIDITY_FAULTS:
                return text
            raise StartError(
                f"{self._key}.cert: {text}; it needs an authority of {self._files.cacert}, and in its extended key usage, "
                "if it has one, serverAuth and clientAuth"
            ) from None
        except ssl.SSLError as error:
            raise StartError(f"{self._key}.cert: {self._files.cert}: {ssl_reason(error)}") from None
        return ""


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raises ssl.SSLError where one of the two ends refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(STEPS_MAX):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not ends, "a handshake between two ends in memory stands still"


def _soon(path: str, expires_at: float) -> str:
    left = expires_at - datetime.now(UTC).timestamp()
    if left >= SOON_SECONDS:
        return ""
    return f"{path} expires in {left / DAY_SECONDS:.1f} days: make a new one and reload the node"


def names_of(session: ssl.SSLObject) -> tuple[str, ...]:
    """Return the DNS names of the certificate that the other end of a connection has proved."""
    return dns_names(session.getpeercert())
