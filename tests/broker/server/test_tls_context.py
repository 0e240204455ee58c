"""The files of TLS: each fault names the key and the file, and is found before anything is served."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from broker.config.settings_listeners import TlsSettings
from broker.server.start_error import StartError
from broker.server.tls_context import LiveContext, server_context
from certificates import Authority

NO_PEM = "no pem"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / NO_PEM).write_text("nothing")
    return Authority(tmp_path)


def test_files_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.pair("good"), authority.pair("other")
    secret = authority.pair("secret", password=b"12345678")
    bad = str(tmp_path / NO_PEM)
    missing = str(tmp_path / "missing")
    cases = [
        (TlsSettings(cert=missing, key=good.key), rf"^l\.tls\.cert: {missing} cannot be read: No such file"),
        (TlsSettings(cert=good.cert, key=missing), rf"^l\.tls\.key: {missing} cannot be read: No such file"),
        (TlsSettings(missing, good.cert, good.key), rf"^l\.tls\.cacert: {missing} cannot be read"),
        (TlsSettings(cert=good.cert, key=str(tmp_path)), r"^l\.tls\.key: .* cannot be read: Is a directory"),
        (TlsSettings(cert=good.cert, key=other.key), r"^l\.tls\.key: .* is not the key of the certificate"),
        (TlsSettings(cert=secret.cert, key=secret.key), r"^l\.tls\.key: .* has a password"),
        (TlsSettings(cert=bad, key=good.key), r"^l\.tls\.cert: .* are not PEM files of a certificate and its key"),
        (TlsSettings(cert=good.cert, key=bad), r"^l\.tls\.cert: .* are not PEM files of a certificate and its key"),
        (TlsSettings(bad, good.cert, good.key), r"^l\.tls\.cacert: .* is not a PEM file of certificates"),
        (
            TlsSettings(authority.cacert, good.cert, good.key, crl=bad),
            r"^l\.tls\.crl: .* is not a PEM file of revocation lists",
        ),
    ]
    for settings, fault in cases:
        with pytest.raises(StartError, match=fault):
            server_context(settings, "l.tls", ())


def test_the_certificates_that_a_context_demands(authority: Authority) -> None:
    pair = authority.pair("good")
    cases = [
        (TlsSettings(cert=pair.cert, key=pair.key), ssl.CERT_NONE),
        (TlsSettings(authority.cacert, pair.cert, pair.key), ssl.CERT_OPTIONAL),
        (TlsSettings(authority.cacert, pair.cert, pair.key, verify=True), ssl.CERT_REQUIRED),
    ]
    for settings, mode in cases:
        context = server_context(settings, "l.tls", ())
        assert context.verify_mode is mode
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION


def shaken(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str | None, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """The client's end and the server's after their handshake."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(back, there, server_hostname=name, session=session)
    far = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return near, far


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> bytes:
    """The server's certificate, as the client gets it."""
    near, _ = shaken(server, client, name)
    certificate = near.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


@pytest.mark.parametrize("name", ["localhost", None])
def test_renewed_files_serve_new_connections(authority: Authority, tmp_path: Path, name: str | None) -> None:
    """Of clients that name the server, and of those that do not. Bad files leave the good ones in place."""
    client = ssl.create_default_context(cafile=authority.cacert)
    client.check_hostname = False
    pair = authority.pair("server")
    live = LiveContext(TlsSettings(cert=pair.cert, key=pair.key), "l.tls", ())
    first = handshake(live.context, client, name)
    assert handshake(live.context, client, name) == first
    authority.pair("server")
    assert handshake(live.context, client, name) == first, "not before the reload"
    live.renew()
    second = handshake(live.context, client, name)
    assert second != first
    Path(pair.key).write_text("nothing")
    with pytest.raises(StartError, match="are not PEM files"):
        live.renew()
    assert handshake(live.context, client, name) == second


def test_a_renewed_authority_replaces_the_old_one(authority: Authority, tmp_path: Path) -> None:
    """A certificate of the old authority is refused from then on."""
    pair, device = authority.pair("server"), authority.pair("device")
    live = LiveContext(TlsSettings(authority.cacert, pair.cert, pair.key, verify=True), "l.tls", ())
    client = ssl.create_default_context(cafile=authority.cacert)
    client.load_cert_chain(device.cert, device.key)
    # TLS 1.3 tells a client of the refusal after its own handshake is done.
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    handshake(live.context, client, "localhost")
    other = Authority(tmp_path / "other")
    Path(authority.cacert).write_bytes(Path(other.cacert).read_bytes())
    live.renew()
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        handshake(live.context, client, "localhost")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("verify", [False, True])
def test_no_session_is_resumed_past_its_certificate(
    authority: Authority, version: ssl.TLSVersion, verify: bool
) -> None:
    """A certificate that is revoked at a reload is refused from a client that comes back, too. The connections end without
    close_notify: after it TLS 1.2 resumes by session id, which TlsLayer refuses."""
    pair, device = authority.pair("server"), authority.pair("device")
    crl = authority.revocation_list()
    live = LiveContext(TlsSettings(authority.cacert, pair.cert, pair.key, verify=verify, crl=crl), "l.tls", ())
    client = ssl.create_default_context(cafile=authority.cacert)
    client.load_cert_chain(device.cert, device.key)
    client.maximum_version = version
    _, session = connect(live.context, client, None)
    is_reused, _ = connect(live.context, client, session)
    assert not is_reused
    authority.revocation_list(device)
    live.renew()
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        connect(live.context, client, session)


def test_sessions_without_client_certificates_are_resumed(authority: Authority) -> None:
    pair = authority.pair("server")
    live = LiveContext(TlsSettings(cert=pair.cert, key=pair.key), "l.tls", ())
    client = ssl.create_default_context(cafile=authority.cacert)
    _, session = connect(live.context, client, None)
    assert connect(live.context, client, session)[0]


def connect(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[bool, ssl.SSLSession | None]:
    """Whether the server resumed the session, and the client's session after a byte of the server."""
    near, far = shaken(server, client, "localhost", session)
    far.write(b"1")
    assert near.read(1) == b"1"
    return bool(far.session_reused), near.session
