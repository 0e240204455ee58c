"""The command `gmqttd cert`: what it makes is trusted, what exists stays, each fault is named. And `gmqttd keygen`."""

from __future__ import annotations

import base64
import os
import ssl
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.config.settings_listeners import TlsSettings
from broker.server.cli import main
from certificates import Authority
from federation.shell.node_tls import NodeTls


def cert(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["cert", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """One with an authority."""
    assert cert("create-ca", "--dir", str(tmp_path)).exit_code == 0
    return str(tmp_path)


def test_a_node_with_the_files_is_trusted(folder: str) -> None:
    """By itself, with the checks of a start, and as a client that compares the name."""
    assert cert("create-node", "node1", "--dir", folder).exit_code == 0
    files = TlsSettings(cacert=f"{folder}/ca.pem", cert=f"{folder}/node1.pem", key=f"{folder}/node1.key", verify=True)
    tls = NodeTls(files, "node1", "tls")
    tls.renew()
    assert tls.warning == ""


def test_strict_checks_accept_the_certificates(folder: str) -> None:
    """Those that Python's default contexts have from 3.13 on."""
    assert cert("create-node", "localhost", "--host", "127.0.0.1", "--dir", folder).exit_code == 0
    client = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(f"{folder}/localhost.pem", f"{folder}/localhost.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = 0
    while done < 2:
        for end in ends:
            try:
                end.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
    assert ends[0].getpeercert()["subjectAltName"] == (("DNS", "localhost"), ("IP Address", "127.0.0.1"))  # type: ignore[index]


def test_keys_are_private_whatever_the_umask(folder: str) -> None:
    before = os.umask(0)
    try:
        assert cert("create-node", "node1", "--dir", folder).exit_code == 0
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(folder).iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "node1.key": 0o600, "node1.pem": 0o644}


@pytest.mark.parametrize(
    ("arguments", "file"),
    [(["create-ca"], "ca.pem"), (["create-ca"], "ca.key"), (["create-node", "node1"], "node1.key")],
)
def test_what_exists_stays_without_force(folder: str, arguments: list[str], file: str) -> None:
    cert("create-node", "node1", "--dir", folder)
    before = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    (Path(folder) / {"ca.pem": "ca.key", "ca.key": "ca.pem", "node1.key": "node1.pem"}[file]).unlink()
    result = cert(*arguments, "--dir", folder)
    assert result.exit_code == 1
    assert file in result.stderr
    assert "--force" in result.stderr
    assert (Path(folder) / file).read_bytes() == before[file]
    assert arguments[0] == "create-node" or cert(*arguments, "--dir", folder, "--force").exit_code == 0
    assert arguments[0] == "create-node" or (Path(folder) / file).read_bytes() != before[file]


def test_show_names_the_nodes_and_the_days(folder: str) -> None:
    cert("create-node", "node1", "--host", "10.0.0.1", "--host", "n1.local", "--days", "30", "--dir", folder)
    result = cert("show", f"{folder}/ca.pem", f"{folder}/node1.pem")
    assert result.exit_code == 0
    for part in ("gmqttd nodes", "node1, n1.local", "10.0.0.1", "29 days left"):
        assert part in result.stdout


def test_show_says_by_its_exit_status_that_one_has_expired(folder: str, tmp_path: Path) -> None:
    expired = Authority(tmp_path / "other").node("node1", age_days=5)
    result = cert("show", f"{folder}/ca.pem", expired.cert)
    assert result.exit_code == 1
    assert "EXPIRED" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["create-node", "ca"], '"ca"'),
        (["create-node", "a/b"], '"/"'),
        (["create-node", ".."], "dot"),
        (["create-node", ""], "1 to 128"),
        (["create-node", "n" * 129], "1 to 128"),
        (["create-node", "nöde"], "ASCII"),
        (["create-node", "node1", "--host", "hö"], "ASCII"),
        (["create-node", "node1", "--days", "9000"], "--days"),
        (["show", "ca.key"], "ca.key"),
        (["show", "missing.pem"], "No such file"),
    ],
)
def test_a_fault_is_named(folder: str, arguments: list[str], part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = cert(*arguments)
    assert result.exit_code == 1
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in Path(folder).iterdir()) == ["ca.key", "ca.pem"]


@pytest.mark.parametrize("kind", ["no authority", "another key", "no PEM", "password", "no key"])
def test_an_authority_that_cannot_sign_is_named(folder: str, tmp_path: Path, kind: str) -> None:
    key, pem = Path(folder) / "ca.key", Path(folder) / "ca.pem"
    if kind == "no authority":
        pem.unlink()
    elif kind == "no key":
        key.unlink()
    elif kind == "another key":
        key.write_bytes(Path(Authority(tmp_path / "x").node("n").key).read_bytes())
    elif kind == "no PEM":
        pem.write_text("hello")
    else:
        key.write_bytes(Path(Authority(tmp_path / "x").pair("n", password=b"x").key).read_bytes())
    result = cert("create-node", "node1", "--dir", folder)
    assert result.exit_code == 1
    assert ("ca.pem" if kind in ("no authority", "no PEM") else "ca.key") in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (Path(folder) / "node1.key").exists()


def test_a_key_of_the_gossip_is_32_random_bytes() -> None:
    keys = [CliRunner().invoke(main, ["keygen"]).stdout for _ in range(2)]
    assert keys[0] != keys[1]
    assert [len(base64.b64decode(key, validate=False)) for key in keys] == [32, 32]
