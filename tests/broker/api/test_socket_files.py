"""Unix sockets of the API: whose file it is, and what is said when one cannot be made."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from broker.server.start_error import StartError


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_socket_files(make_api: Any, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "api"
    address = f"unix://{path}"
    addresses = ([address], []) if kind == "grpc" else ([], [address])
    path.write_text("something else")
    api, _ = make_api(*addresses)
    with pytest.raises(StartError, match=r"is not a socket"):
        await api.start()
    assert path.read_text() == "something else"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(StartError, match=rf"api\.{kind}\[0\]\.address: unix://.*is in use"):
            await api.start()
        assert path.is_socket()
    await api.start()  # the file of a dead process is in nobody's way
    for far, words in (
        (f"unix://{tmp_path}/no/where", "No such file or directory"),
        (f"unix:///{'a' * 200}", "too long"),
    ):
        api, _ = make_api(*(([far], []) if kind == "grpc" else ([], [far])))
        with pytest.raises(StartError, match=words):
            await api.start()
