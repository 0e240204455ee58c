"""The files of TLS between nodes: what a node finds out about its own certificate before another one refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from broker.config.settings_listeners import TlsSettings
from broker.server.start_error import StartError
from certificates import Authority, Pair
from federation.api.trust_metrics import trust_metrics
from federation.refusals import Refusals
from federation.settings import FederationTlsSettings
from federation.shell.node_tls import NodeTls
from federation.trust import NAME


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls_of(pair: Pair, cacert: str, name: str = "n1", crl: str = "") -> NodeTls:
    return NodeTls(TlsSettings(cacert, pair.cert, pair.key, True, "1.3", crl), name, "tls")


def test_a_good_certificate_and_its_end(authority: Authority) -> None:
    tls = tls_of(authority.node("n1", "n1.local"), authority.cacert)
    tls.renew()
    assert tls.expires_at == authority.certificate.not_valid_after_utc.timestamp()
    assert "expires in" in tls.warning, "within a day"
    refusals = Refusals()
    refusals.note(NAME, "a", "x", 1.0)
    values = {metric.name: metric.samples for metric in trust_metrics(refusals, tls)}
    assert values["gmqtt_federation_certificate_expires_seconds"] == {(): tls.expires_at}
    assert values["gmqtt_federation_refused_total"][("name",)] == 1
    assert [metric.name for metric in trust_metrics(refusals, None)] == ["gmqtt_federation_refused_total"]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("another name", ["n2", "n1"]),
        ("no name", ["no DNS name", "n1"]),
        ("another authority", ["cacert"]),
        ("server only", ["clientAuth"]),
        ("client only", ["serverAuth"]),
        ("revoked", ["revoked"]),
    ],
)
def test_a_certificate_that_no_node_would_trust(
    authority: Authority, tmp_path: Path, kind: str, parts: list[str]
) -> None:
    pair, cacert, crl = authority.node("n1"), authority.cacert, ""
    if kind == "another name":
        pair = authority.node("n2")
    elif kind == "no name":
        pair = authority.pair("n1", dns_names=())
    elif kind == "another authority":
        cacert = Authority(tmp_path / "foreign", "cacert").cacert
    elif kind == "server only":
        pair = authority.pair("n1", dns_names=("n1",), usages=[ExtendedKeyUsageOID.SERVER_AUTH])
    elif kind == "client only":
        pair = authority.pair("n1", dns_names=("n1",), usages=[ExtendedKeyUsageOID.CLIENT_AUTH])
    else:
        crl = authority.revocation_list(pair)
    with pytest.raises(StartError, match=r"^tls\.cert: ") as error:
        tls_of(pair, cacert, crl=crl).renew()
    assert all(part in str(error.value) for part in parts)


def test_a_certificate_that_expired_keeps_no_node_from_starting(authority: Authority) -> None:
    """New files and a reload mend it while the node serves its clients."""
    tls = tls_of(authority.node("n1", age_days=5), authority.cacert)
    tls.renew()
    assert "expired" in tls.warning


def test_a_fault_keeps_the_former_contexts(authority: Authority) -> None:
    pair = authority.node("n1")
    tls = tls_of(pair, authority.cacert)
    tls.renew()
    before = (tls.server, tls.client, tls.expires_at)
    Path(pair.cert).write_text("nothing")
    with pytest.raises(StartError):
        tls.renew()
    assert (tls.server, tls.client, tls.expires_at) == before


def test_relative_paths_begin_where_the_node_says() -> None:
    files = FederationTlsSettings("a.pem", "a.key", "/ca.pem", "a.crl").files(lambda file: f"/etc/{file}")
    assert (files.cert, files.key, files.cacert, files.crl) == (
        "/etc/a.pem",
        "/etc/a.key",
        "/etc//ca.pem",
        "/etc/a.crl",
    )
    assert (files.verify, files.min_version) == (True, "1.3")
    assert FederationTlsSettings("a", "b", "c").files(str).crl == ""
