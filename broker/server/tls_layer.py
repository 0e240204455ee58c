"""TLS of one connection, on memory buffers of the ssl module.

The layer stands behind a PROXY header, which comes in plain text, and in front of the socket's own writer. A transport with TLS
of the event loop has neither, and the connections in its handshake cannot be counted (docs/decisions/0008-tls-is-a-layer.md).
"""

# compiled with mypyc
from __future__ import annotations

import ssl
from typing import Any, Final

from broker.server.layers import Layer, LayerError

RECORDS_MAX: Final = 512  # decoded in one turn; a record can be as short as one byte
READ_BYTES: Final = 16_384  # plain text of the largest record
HELLO_BYTES: Final = 40 * 1024  # memory of a connection whose first handshake message has begun: OpenSSL's buffers
TLS_BYTES: Final = 16 * 1024  # afterwards
CONNECT_FIRST_BYTE: Final = 0x10
HTTP_METHODS: Final = (b"GET ", b"POST", b"HEAD", b"PUT ")


class TlsLayer(Layer):
    """certificate_name  common name of the client's verified certificate; "" without one, and before the handshake is done
    is_server         the other end begins the handshake; otherwise `begin` does
    """

    def __init__(self, context: ssl.SSLContext, is_server: bool = True, other_end: str = "client") -> None:
        """`other_end` is the word for it in texts."""
        super().__init__()
        self.is_server = is_server
        self._other_end = other_end
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._is_broken = False
        self._has_begun = False
        self.certificate_name = ""

    def begin(self) -> None:
        """Begin the handshake as its client; `take_output` has the first message."""
        self._has_begun = True
        self._shake_hands()

    @property
    def session(self) -> ssl.SSLObject:
        return self._tls

    def receive_data(self, data: bytes) -> bytes:
        if data:
            if not self._has_begun:
                self._has_begun = True
                self.state_bytes = HELLO_BYTES
                _refuse_plain_text(data)
            self._incoming.write(data)
        if not self.is_open and not self._shake_hands():
            return b""
        parts: list[bytes] = []
        tls = self._tls
        incoming = self._incoming
        self.has_more = False
        try:
            while incoming.pending or tls.pending():
                if len(parts) >= RECORDS_MAX:
                    self.has_more = True
                    break
                part = tls.read(READ_BYTES)
                if not part:
                    self.is_ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            self._is_broken = True
            raise LayerError(f"TLS: {self._reason(error)}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._is_broken = True
            raise LayerError(f"TLS handshake: {self._reason(error)}") from None
        if self.is_server and self._tls.session_reused and self._tls.getpeercert(True) is not None:
            # The certificate may have expired or been revoked since. OpenSSL forgets a session that ends without
            # close_notify, so the client's next handshake is a full one.
            self._is_broken = True
            raise LayerError(
                f"TLS handshake: the {self._other_end} resumes a session instead of showing its certificate"
            )
        self.is_open = True
        self.certificate_name = _common_name(self._tls)
        return True

    def _reason(self, error: ssl.SSLError) -> str:
        """Return what OpenSSL says, without its function names and line numbers."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the {self._other_end}'s certificate is refused: {error.verify_message}"
        return (error.reason or str(error)).replace("_", " ").lower()

    def encode(self, data: bytes) -> bytes:
        if self._is_broken or not data:
            return b""
        tls = self._tls
        try:
            sent = tls.write(data)
            while sent < len(data):  # one record at a time
                sent += tls.write(memoryview(data)[sent : sent + READ_BYTES])
        except ssl.SSLError:  # closed by the client
            self._is_broken = True
        return self._outgoing.read()

    def take_output(self) -> bytes:
        if not self._outgoing.pending:
            return b""
        self.state_bytes = TLS_BYTES
        return self._outgoing.read()

    def close(self) -> bytes:
        if self.is_open and not self._is_broken:
            try:
                self._tls.unwrap()
            except ssl.SSLError:  # the client's own end has not come, and need not
                pass
        return self._outgoing.read()


def _refuse_plain_text(data: bytes) -> None:
    if data[0] == CONNECT_FIRST_BYTE:
        raise LayerError("MQTT without TLS; this listener speaks TLS")
    if data.startswith(HTTP_METHODS):
        raise LayerError("HTTP without TLS; this listener speaks TLS")


def _common_name(tls: ssl.SSLObject) -> str:
    """The common name of the client's certificate, which OpenSSL has verified."""
    certificate: Any = tls.getpeercert()  # a dict of tuples of pairs, which typeshed does not tell apart from texts
    for parts in (certificate or {}).get("subject", ()):
        for name, value in parts:
            if name == "commonName":
                return str(value)
    return ""
