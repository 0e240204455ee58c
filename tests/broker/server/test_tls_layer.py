"""TLS as bytes in and bytes out, beside a client on memory buffers of the ssl module: splits, certificates, faults."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.config.settings_listeners import TlsSettings
from broker.server.layers import LayerError
from broker.server.tls_context import MQTT_PROTOCOLS, server_context
from broker.server.tls_layer import READ_BYTES, RECORDS_MAX, TlsLayer
from certificates import Authority, Pair

PLAIN: Final = b"the plain text that must not be seen" * 3


class Peer:
    """The client side."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost", session=session)

    def handshake(self, data: bytes) -> bytes:
        self.incoming.write(data)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    def write(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        return self.outgoing.read()

    def read(self, data: bytes) -> bytes:
        self.incoming.write(data)
        parts: list[bytes] = []
        while True:
            try:
                part = self.tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                return b"".join(parts)
            if not part:
                return b"".join(parts)
            parts.append(part)


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.server = self.authority.pair("localhost")
        self.client = self.authority.pair("device 7")

    def layer(self, **changes: Any) -> TlsLayer:
        return TlsLayer(
            server_context(TlsSettings(cert=self.server.cert, key=self.server.key, **changes), "tls", MQTT_PROTOCOLS)
        )

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.cacert)
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def shake_hands(layer: TlsLayer, peer: Peer, step: int = 100_000) -> None:
    """Until neither side has more to say; the server gets chunks of `step` bytes."""
    data = peer.handshake(b"")
    while data:
        for start in range(0, len(data), step):
            assert layer.receive_data(data[start : start + step]) == b""
        data = peer.handshake(layer.take_output())
    assert layer.is_open


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_both_directions_in_any_chunks(certificates: Certificates, version: ssl.TLSVersion, step: int) -> None:
    context = certificates.context()
    context.maximum_version = version
    layer, peer = certificates.layer(), Peer(context)
    shake_hands(layer, peer, step)
    data = peer.write(PLAIN)
    decoded = b"".join(layer.receive_data(data[start : start + step]) for start in range(0, len(data), step))
    assert decoded == PLAIN
    encoded = layer.encode(PLAIN)
    assert PLAIN not in encoded
    assert peer.read(encoded) == PLAIN


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sizes=st.lists(st.integers(1, 60_000), min_size=1, max_size=4), step=st.integers(1, 70_000))
def test_texts_of_any_size(certificates: Certificates, sizes: list[int], step: int) -> None:
    layer, peer = certificates.layer(), Peer(certificates.context())
    shake_hands(layer, peer)
    texts = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    data = b"".join(peer.write(text) for text in texts)
    decoded = b"".join(layer.receive_data(data[start : start + step]) for start in range(0, len(data), step))
    assert decoded == b"".join(texts)
    assert peer.read(b"".join(layer.encode(text) for text in texts)) == b"".join(texts)


def test_a_chunk_of_many_small_records_is_decoded_in_slices(certificates: Certificates) -> None:
    layer, peer = certificates.layer(), Peer(certificates.context())
    shake_hands(layer, peer)
    count = 5 * RECORDS_MAX
    sizes = [len(layer.receive_data(b"".join(peer.write(b"x") for _ in range(count))))]
    while layer.has_more:
        sizes.append(len(layer.receive_data(b"")))
    assert sizes == [RECORDS_MAX] * 5


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("verify", "has_certificate"), [(True, True), (False, True), (False, False)])
def test_no_session_is_resumed_with_a_certificate(
    certificates: Certificates, version: ssl.TLSVersion, verify: bool, has_certificate: bool
) -> None:
    """Both sides close in order, and OpenSSL keeps the session. TLS 1.2 resumes it by its id, TLS 1.3 has no ticket. The next
    handshake is a full one."""
    pair = certificates.server
    server = server_context(TlsSettings(certificates.authority.cacert, pair.cert, pair.key, verify=verify), "tls", ())
    client = certificates.context(certificates.client if has_certificate else None)
    client.maximum_version = version

    def connect(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        layer, peer = TlsLayer(server), Peer(client, session)
        shake_hands(layer, peer)
        assert peer.read(layer.encode(b"x")) == b"x"
        found = peer.tls.session
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        layer.receive_data(peer.outgoing.read())
        assert layer.is_ended
        peer.incoming.write(layer.close())
        peer.tls.unwrap()
        return found

    session = connect(None)
    if version is ssl.TLSVersion.TLSv1_2 and has_certificate:
        with pytest.raises(LayerError, match="resumes"):
            connect(session)
        assert server.session_stats()["hits"] == 1
    connect(session)
    assert server.session_stats()["hits"] == (version is ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize(("verify", "has_certificate"), [(True, True), (False, True), (False, False)])
def test_the_name_of_a_verified_certificate(certificates: Certificates, verify: bool, has_certificate: bool) -> None:
    layer = certificates.layer(cacert=certificates.authority.cacert, verify=verify)
    assert layer.certificate_name == ""
    shake_hands(layer, Peer(certificates.context(certificates.client if has_certificate else None)))
    assert layer.certificate_name == ("device 7" if has_certificate else "")


def test_no_certificate_is_asked_for_without_an_authority(certificates: Certificates) -> None:
    layer = certificates.layer()
    shake_hands(layer, Peer(certificates.context(certificates.client)))
    assert layer.certificate_name == ""


def refusal(layer: TlsLayer, peer: Peer) -> str:
    """The text of the fault of the layer."""
    with pytest.raises(LayerError) as error:
        shake_hands(layer, peer)
    return str(error.value)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("verify", [True, False])
def test_a_wrong_certificate_is_refused(
    certificates: Certificates, tmp_path: Path, version: ssl.TLSVersion, verify: bool
) -> None:
    """Of a stranger, expired, revoked; and the client is told. Without `verify` as well."""
    authority = certificates.authority
    revoked = authority.pair("revoked")
    cases = [
        (Authority(tmp_path, "stranger").pair("device 7"), "unable to get local issuer certificate"),
        (authority.pair("expired", age_days=5), "certificate has expired"),
        (revoked, "certificate revoked"),
    ]
    for pair, reason in cases:
        context = certificates.context(pair)
        context.minimum_version = context.maximum_version = version
        layer = certificates.layer(cacert=authority.cacert, verify=verify, crl=authority.revocation_list(revoked))
        peer = Peer(context)
        assert refusal(layer, peer) == f"TLS handshake: the client's certificate is refused: {reason}"
        alert = layer.take_output()
        with pytest.raises(ssl.SSLError, match="alert"):
            peer.read(alert)
        assert layer.encode(b"x") == b""
    good = certificates.layer(cacert=authority.cacert, verify=True, crl=authority.revocation_list(revoked))
    shake_hands(good, Peer(certificates.context(certificates.client)))


def test_a_client_without_a_certificate_is_refused(certificates: Certificates) -> None:
    layer = certificates.layer(cacert=certificates.authority.cacert, verify=True)
    assert refusal(layer, Peer(certificates.context())) == "TLS handshake: peer did not return a certificate"


def test_a_client_that_does_not_trust_the_server(certificates: Certificates) -> None:
    layer, peer = certificates.layer(), Peer(ssl.create_default_context())
    layer.receive_data(peer.handshake(b""))
    with pytest.raises(ssl.SSLCertVerificationError):
        peer.handshake(layer.take_output())
    with pytest.raises(LayerError, match="alert unknown ca"):
        layer.receive_data(peer.outgoing.read())


def test_an_older_version_than_the_lowest(certificates: Certificates) -> None:
    context = certificates.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refusal(certificates.layer(min_version="1.3"), Peer(context)) == "TLS handshake: unsupported protocol"
    shake_hands(certificates.layer(min_version="1.2"), Peer(context))


def test_the_protocol_is_told_to_a_client_that_asks(certificates: Certificates) -> None:
    """ALPN."""
    for asked, answered in ((["mqtt"], "mqtt"), (["h2"], None), ([], None)):
        context = certificates.context()
        if asked:
            context.set_alpn_protocols(asked)
        peer = Peer(context)
        shake_hands(certificates.layer(), peer)
        assert peer.tls.selected_alpn_protocol() == answered


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00", "MQTT without TLS; this listener speaks TLS"),
        (b"\x10", "MQTT without TLS; this listener speaks TLS"),
        (b"GET /mqtt HTTP/1.1\r\n", "HTTP without TLS; this listener speaks TLS"),
        (b"\x00\x00\x00\x00\x00\x00\x00", "TLS handshake: wrong version number"),
        (b"\x16\x03\x01\xff\xff" + bytes(100), "TLS handshake: "),
    ],
)
def test_plain_text_is_refused(certificates: Certificates, data: bytes, reason: str) -> None:
    layer = certificates.layer()
    with pytest.raises(LayerError) as error:
        layer.receive_data(data)
    assert str(error.value).startswith(reason)
    assert not layer.is_open


def test_a_record_that_was_changed_ends_the_connection(certificates: Certificates) -> None:
    layer, peer = certificates.layer(), Peer(certificates.context())
    shake_hands(layer, peer)
    data = bytearray(peer.write(PLAIN))
    data[-1] ^= 1
    with pytest.raises(LayerError, match=r"^TLS: decryption failed or bad record mac"):
        layer.receive_data(bytes(data))
    assert layer.encode(b"x") == b""
    layer.close()


def test_the_end_of_the_client(certificates: Certificates) -> None:
    layer, peer = certificates.layer(), Peer(certificates.context())
    shake_hands(layer, peer)
    data = peer.write(PLAIN)
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    assert layer.receive_data(data + peer.outgoing.read()) == PLAIN
    assert layer.is_ended
    assert peer.read(layer.encode(PLAIN)) == PLAIN, "the other direction is still open"


def test_the_end_of_the_server(certificates: Certificates) -> None:
    """close_notify: the client knows that nothing was cut off."""
    layer, peer = certificates.layer(), Peer(certificates.context())
    shake_hands(layer, peer)
    data = layer.encode(PLAIN) + layer.close()
    assert peer.read(data[:-5]) == PLAIN
    peer.incoming.write(data[-5:])
    assert peer.tls.read(1) == b""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.binary(min_size=1, max_size=500))
def test_any_bytes_are_a_handshake_or_refused(certificates: Certificates, data: bytes) -> None:
    layer = certificates.layer()
    try:
        assert layer.receive_data(data) == b""
    except LayerError:
        layer.take_output()
    assert not layer.is_open
