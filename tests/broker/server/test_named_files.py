"""Files that a configuration names and that would stop a start: the same texts, before the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from broker.auth.settings import AuthSettings, WebhookSettings
from broker.auth.settings_jwt import JwtSettings
from broker.config.addresses import Address
from broker.config.settings import ApiSettings, Settings
from broker.config.settings_listeners import ApiListener, ListenerSettings, TlsSettings
from broker.metrics.settings import PrometheusSettings
from broker.server.cli import main
from broker.server.named_files import unusable_files
from certificates import Authority


def keys(settings: Settings, folder: Path) -> list[str]:
    return [text.partition(": ")[0] for text in unusable_files(settings, str(folder))]


def test_files_of_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good, other = authority.pair("good"), authority.pair("other")
    address = Address("tcp", "127.0.0.1", 0)
    right = TlsSettings(cert=good.cert, key=good.key)
    wrong = TlsSettings(cert=good.cert, key=other.key)
    settings = Settings(
        listeners=(ListenerSettings(address, right), ListenerSettings(address), ListenerSettings(address, wrong)),
        api=ApiSettings((ApiListener(address, tls=wrong),), (ApiListener(address, tls=right),)),
        plugin_order=("prometheus",),
    )
    plugins = replace(settings.plugins, prometheus=PrometheusSettings(tls=wrong))
    assert keys(replace(settings, plugins=plugins), tmp_path) == [
        "listeners[2].tls.key",
        "api.grpc[0].tls.key",
        "plugins.prometheus.tls.key",
    ]


def test_files_of_accounts_keys_rules_and_tokens(tmp_path: Path) -> None:
    """Relative paths start at the folder of the configuration. Of a plugin that is not loaded none is read."""
    for name in ("accounts", "keys", "authority", "acl", "tokens"):
        (tmp_path / name).write_text("wrong")
    auth = AuthSettings(
        password_file="accounts",
        jwt=JwtSettings(algorithms=("RS256",), public_key_file="keys"),
        webhook=WebhookSettings(url="https://x", cacert="authority"),
        acl_file="acl",
    )
    settings = Settings(api=ApiSettings(token_file="tokens"))
    settings = replace(settings, plugins=replace(settings.plugins, auth=auth))
    assert keys(settings, tmp_path) == ["api.token_file"]
    assert list(unusable_files(replace(settings, plugin_order=("auth",)), str(tmp_path)))[1:] == [
        f"plugins.auth.password_file: {tmp_path}/accounts: line 1: this is not a list of accounts, whose lines begin with `- `",
        f"plugins.auth.jwt.public_key_file: {tmp_path}/keys: there is no PEM block of a public key",
        f"plugins.auth.webhook.cacert: {tmp_path}/authority is not a PEM file of certificates",
        f"plugins.auth.acl_file: {tmp_path}/acl: line 1: 'wrong' is not `user`, `topic` or `pattern`",
    ]


def test_good_files_and_those_that_need_not_be_there(tmp_path: Path) -> None:
    """An account file and a token file may be made after the start."""
    (tmp_path / "acl").write_text("topic read a\n")
    settings = Settings(plugin_order=("auth",), api=ApiSettings(token_file="tokens"))
    auth = AuthSettings(password_file="accounts", acl_file="acl")
    settings = replace(settings, plugins=replace(settings.plugins, auth=auth))
    assert keys(settings, tmp_path) == []


def test_check_prints_the_configuration_and_the_faults_of_files(tmp_path: Path) -> None:
    config = tmp_path / "gmqtt.yml"
    config.write_text("plugin_order: [auth]\nplugins: {auth: {acl_file: acl, password_file: ''}}\n")
    (tmp_path / "acl").write_text("topics read a\n")
    result = CliRunner().invoke(main, ["check", "-c", str(config)])
    assert result.exit_code == 1
    assert f"plugins.auth.acl_file: {tmp_path}/acl: line 1: 'topics'" in result.stderr
    assert "acl_file: " in result.stdout
