"""The keyring file: what is read, what is refused, and that a change leaves the old file or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from broker.server.start_error import StartError
from federation.gossip.keyring import KEYS_MAX, key_text
from federation.shell.keyring_file import FILE_BYTES_MAX, KeyringFile

A, B = b"a" * 16, b"b" * 32


def made(path: Path, text: str, mode: int = 0o600) -> KeyringFile:
    path.write_text(text)
    path.chmod(mode)
    return KeyringFile(str(path), "plugins.federation.keyring_file")


def test_keys_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "keyring.json"
    file = made(path, json.dumps([key_text(A), key_text(B), key_text(A)]))
    assert file.read() == (A, B)
    file.write((B, A))
    assert file.read() == (B, A)
    assert json.loads(path.read_text()) == [key_text(B), key_text(A)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["keyring.json"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "gmqttd keygen"),
        ("[]", "0 keys"),
        ("{}", "gmqttd keygen"),
        ("[1]", "gmqttd keygen"),
        ('["YWJj"]', "[0] is a key of 3 bytes"),
        (json.dumps([key_text(A), "?"]), "[1] is not base64"),
        (json.dumps([key_text(bytes((n,)) * 16) for n in range(KEYS_MAX + 1)]), f"{KEYS_MAX + 1} keys"),
        ("[" * FILE_BYTES_MAX, "gmqttd keygen"),
        (" " * (FILE_BYTES_MAX + 1), "gmqttd keygen"),
    ],
)
def test_what_is_no_keyring_is_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "keyring.json"
    with pytest.raises(StartError) as error:
        made(path, text).read()
    assert str(error.value).startswith(f"plugins.federation.keyring_file: {path}")
    assert word in str(error.value)
    assert key_text(A) not in str(error.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602, 0o660])
def test_a_file_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keyring.json"
    with pytest.raises(StartError, match=f"chmod 600 {path}"):
        made(path, json.dumps([key_text(A)]), mode).read()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"none\.json cannot be read"):
        KeyringFile(str(tmp_path / "none.json"), "plugins.federation.keyring_file").read()


def test_a_change_that_fails_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "keyring.json"
    path.parent.mkdir()
    file = made(path, json.dumps([key_text(A)]))
    if os.geteuid() == 0:
        with pytest.raises(OSError):
            KeyringFile("/proc/keyring.json", "k").write((B,))
    else:
        path.parent.chmod(0o500)
        with pytest.raises(PermissionError):
            file.write((B,))
    assert file.read() == (A,)
