"""Keys that are to protect a node, of a plugin that it does not load."""

from __future__ import annotations

import pytest

from broker.config.loader import load_bytes


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ("password_file: ./accounts.yml", ["password_file"]),
        ("hash: md5, acl_file: ./acl", ["acl_file"]),
        ("jwt: {algorithms: [HS256], secret: of at least thirty-two characters}", ["jwt.algorithms", "jwt.secret"]),
        ("jwt: {jwks_file: keys.json}", ["jwt.jwks_file"]),
        ("webhook: {url: 'http://127.0.0.1:1/', token: x}", ["webhook.url"]),
        ("use_identity_as_username: true", ["use_identity_as_username"]),
        ("allow_anonymous: false", ["allow_anonymous"]),
    ],
)
def test_a_node_does_not_start_without_the_plugin_whose_keys_are_to_protect_it(keys: str, named: list[str]) -> None:
    """The faults say what to write. As written there, the file is right."""
    text = f"plugins: {{auth: {{{keys}}}}}\n"
    found = load_bytes(f"plugin_order: [admin, federation]\n{text}".encode(), "x.yml").faults
    assert len(found) == len(named)
    for key, fault in zip(named, found, strict=True):
        assert f"plugins.auth.{key}" == fault.key
        assert "plugin_order: [auth, admin, federation]" in fault.text
    if keys != "jwt: {jwks_file: keys.json}":
        assert not load_bytes(f"plugin_order: [auth, admin, federation]\n{text}".encode(), "x.yml").faults


@pytest.mark.parametrize(
    "keys", ["hash: md5", "hash: md5, password_file: ", "password_file: '', acl_file: ''", "allow_anonymous: true"]
)
def test_keys_that_protect_nothing_draw_a_warning(keys: str) -> None:
    """The Go broker's own files have `hash`."""
    result = load_bytes(f"plugins: {{auth: {{{keys}}}}}\n".encode(), "x.yml")
    assert result.settings is not None, result.faults
    assert [warning.key for warning in result.warnings] == ["plugins.auth"]
