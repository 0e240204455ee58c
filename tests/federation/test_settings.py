"""The keys of trust between nodes: rules, addresses that stay closed, warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.loader import LoadResult, load_bytes
from broker.config.printer import effective_yaml
from broker.config.rules import on_every_interface
from broker.config.settings import Settings
from federation.exposure import exposure_warnings
from federation.settings import FederationSettings

TLS = "cert: a.pem, key: a.key, cacert: ca.pem"


def loaded(federation: str) -> LoadResult:
    text = f"plugin_order: [federation]\nplugins:\n  federation: {{node_name: n1, {federation}}}\n"
    return load_bytes(text.encode(), "a.yml")


def settings_of(federation: str) -> Settings:
    found = loaded(federation)
    assert found.settings is not None, found.faults
    return found.settings


@pytest.mark.parametrize(
    ("federation", "keys"),
    [
        (f"tls: {{{TLS}}}", []),
        (f"tls: {{{TLS}}}, require_tls: true", []),
        ("tls: {cert: a.pem, key: a.key, ca: ca.pem}", []),
        ("tls: {cert: a.pem, key: a.key}", ["tls.cacert"]),
        ("tls: {cacert: a.pem}", ["tls.cert", "tls.key"]),
        ("require_tls: true", ["require_tls"]),
        (f"tls: {{{TLS}, addr: ':8901'}}", ["tls.addr"]),
        (f"tls: {{{TLS}, addr: ':8901'}}, require_tls: true", []),
        (f"tls: {{{TLS}, addr: ':8902'}}, require_tls: true", ["gossip_addr"]),
        (f"tls: {{{TLS}, verify: false}}", ["tls.verify"]),
    ],
)
def test_rules_of_tls(federation: str, keys: list[str]) -> None:
    assert sorted(fault.key for fault in loaded(federation).faults) == [f"plugins.federation.{key}" for key in keys]


def test_the_name_of_other_listeners_for_authorities_is_known_too() -> None:
    section = settings_of("tls: {cert: a.pem, key: a.key, ca: ca.pem}").plugins.federation.tls
    assert section.cacert == "ca.pem"


@pytest.mark.parametrize(
    ("federation", "opened"),
    [
        ("gossip_addr: '127.0.0.1:1'", ["fed_addr"]),
        (f"gossip_addr: '127.0.0.1:1', tls: {{{TLS}}}", ["fed_addr", "tls.addr"]),
        (f"gossip_addr: '127.0.0.1:1', tls: {{{TLS}}}, require_tls: true", ["tls.addr"]),
    ],
)
def test_the_addresses_on_every_interface(federation: str, opened: list[str]) -> None:
    found = [text.partition(" ")[0] for text in on_every_interface(settings_of(federation))]
    assert found == [f"plugins.federation.{key}" for key in opened]


@pytest.mark.parametrize(
    ("federation", "keys"),
    [
        ("fed_addr: '127.0.0.1:1', gossip_addr: '127.0.0.1:2'", []),
        ("fed_addr: '10.0.0.1:1', gossip_addr: '127.0.0.1:2'", ["fed_addr"]),
        ("fed_addr: '127.0.0.1:1'", ["gossip_addr"]),
        (f"fed_addr: '10.0.0.1:1', gossip_addr: '127.0.0.1:2', tls: {{{TLS}}}", ["fed_addr"]),
        (f"gossip_addr: '127.0.0.1:2', tls: {{{TLS}}}, require_tls: true", []),
        (f"tls: {{{TLS}}}, require_tls: true", ["gossip_addr"]),
    ],
)
def test_a_start_warns_of_addresses_that_need_no_proof(federation: str, keys: list[str]) -> None:
    found = list(exposure_warnings(settings_of(federation).plugins.federation))
    assert [key for key, _ in found] == keys
    has_tls = "tls:" in federation
    assert all(("require_tls: true" in text) is has_tls for key, text in found if key == "fed_addr")


@pytest.mark.parametrize(
    ("federation", "words"),
    [
        ("rpc_addr: '127.0.0.1:7373'", []),
        ("rpc_addr: '10.0.0.1:7373'", ["whoever reaches", "rpc_auth"]),
        ("rpc_addr: ':7373', rpc_auth: k", ["whoever reads the key", "loopback"]),
    ],
)
def test_a_start_warns_of_an_rpc_that_others_reach(federation: str, words: list[str]) -> None:
    settings = settings_of(f"{federation}, fed_addr: '127.0.0.1:1', gossip_addr: '127.0.0.1:2'").plugins.federation
    found = list(exposure_warnings(settings))
    assert [key for key, _ in found] == ["rpc_addr"] * bool(words)
    assert all(word in text for _, text in found for word in words)


def test_the_address_of_the_rpc_belongs_to_no_other_key_and_its_key_is_not_printed() -> None:
    (fault,) = loaded("rpc_addr: '127.0.0.1:1', fed_addr: '127.0.0.1:1'").faults
    assert "rpc_addr" in f"{fault.key} {fault}"
    (text,) = settings_of("rpc_auth: k").plugins.federation.start_warnings(Settings(), str)
    assert "rpc_addr" in text


def test_an_address_that_is_not_opened_is_named() -> None:
    federation = settings_of(f"fed_addr: '10.0.0.1:1', tls: {{{TLS}}}, require_tls: true").plugins.federation
    (text,) = federation.start_warnings(Settings(), str)
    assert text.startswith("fed_addr: ")


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    federation = settings_of(f"tls: {{{TLS}}}").plugins.federation
    (text,) = federation.unusable_files("plugins.federation", lambda file: str(tmp_path / file))
    assert text.startswith("plugins.federation.tls.cert: ")
    assert str(tmp_path) in text
    assert list(settings_of("retry_join: []").plugins.federation.unusable_files("plugins.federation", str)) == []


def test_a_start_warns_of_a_name_that_other_members_may_drop() -> None:
    for name, words in (("node-1", []), ("node_1", ["node_name", "'node_1'", "ValidateNodeNames"])):
        texts = list(FederationSettings(node_name=name).start_warnings(Settings(), str))
        assert len(texts) == bool(words)
        assert all(word in text for text in texts for word in words)


KEY = "MDEyMzQ1Njc4OWFiY2RlZg=="
OTHER = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.mark.parametrize(
    ("federation", "faults"),
    [
        (f"encrypt_keys: [{KEY}, {OTHER}]", {}),
        ("keyring_file: keys.json", {}),
        (f"keyring_file: keys.json, encrypt_keys: [{KEY}]", {"encrypt_keys": "keyring_file"}),
        ("encrypt_keys: [YWJj]", {"encrypt_keys[0]": "16, 24 or 32"}),
        (f"encrypt_keys: [{KEY}, '?', {KEY}]", {"encrypt_keys[1]": "base64", "encrypt_keys[2]": "already"}),
        (f"encrypt_keys: {KEY}", {"encrypt_keys": "list"}),
        (f"gossip_label: {'x' * 256}", {"gossip_label": "berlin"}),
        ("gossip_cidrs_allowed: [10.0.0.0/8, 10.0.0.1/8]", {"gossip_cidrs_allowed[1]": "10.0.0.0/8"}),
        ("gossip_cidrs_allowed: ['fe80::/10', host]", {"gossip_cidrs_allowed[1]": "host"}),
    ],
)
def test_keys_label_and_networks_of_the_gossip(federation: str, faults: dict[str, str]) -> None:
    found = {fault.key: fault.text for fault in loaded(federation).faults}
    assert sorted(found) == sorted(f"plugins.federation.{key}" for key in faults)
    assert all(word in found[f"plugins.federation.{key}"] for key, word in faults.items())
    assert not any(KEY in text or OTHER in text for text in found.values())


def test_keys_are_not_printed() -> None:
    text = effective_yaml(settings_of(f"encrypt_keys: [{KEY}]"))
    assert "encrypt_keys" in text
    assert KEY not in text


@pytest.mark.parametrize(
    ("federation", "warned", "exposed"),
    [
        ("gossip_verify_incoming: true", [], True),
        ("gossip_verify_outgoing: false", ["gossip_verify_outgoing"], True),
        (f"encrypt_keys: [{KEY}]", [], False),
        ("keyring_file: keys.json, gossip_verify_outgoing: false", [], False),
        (f"encrypt_keys: [{KEY}], gossip_verify_incoming: false", ["gossip_verify_incoming"], True),
    ],
)
def test_a_start_warns_of_gossip_that_is_not_encrypted(federation: str, warned: list[str], exposed: bool) -> None:
    section = settings_of(f"fed_addr: '127.0.0.1:1', {federation}").plugins.federation
    assert [text.partition(":")[0] for text in section.start_warnings(Settings(), str)] == warned
    assert [key for key, _ in exposure_warnings(section)] == (["gossip_addr"] if exposed else [])


def test_a_snapshot_that_is_none_is_named(tmp_path: Path) -> None:
    section = settings_of("snapshot_path: members").plugins.federation
    path_of = lambda file: str(tmp_path / file)  # noqa: E731
    assert list(section.unusable_files("plugins.federation", path_of)) == []
    (tmp_path / "members").write_text("mqtt: {}\n")
    (text,) = section.unusable_files("plugins.federation", path_of)
    assert text.startswith(f"plugins.federation.snapshot_path: {tmp_path}")


def test_a_keyring_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    section = settings_of("keyring_file: keys.json").plugins.federation
    (text,) = section.unusable_files("plugins.federation", lambda file: str(tmp_path / file))
    assert text.startswith(f"plugins.federation.keyring_file: {tmp_path}")
