"""The file with the keys of the gossip: a JSON list of them in base64, the primary one first, as that of `serf agent`."""

from __future__ import annotations

import json
from typing import Final

from broker.server.private_file import PrivateFile
from broker.server.start_error import StartError, file_error
from federation.gossip.keyring import KEYS_MAX, KeyRefused, key_text, parse_key

FILE_BYTES_MAX: Final = 65_536
REMEDY: Final = 'right is a JSON list such as ["KEY"], where `gmqttd keygen` prints a KEY'


class KeyringFile:
    """`key` is the configuration key that names it. The methods do input and output: a node calls them in a thread."""

    def __init__(self, path: str, key: str) -> None:
        self._file = PrivateFile(path)
        self._key = key

    def read(self) -> tuple[bytes, ...]:
        """The keys. Raises StartError."""
        path = self._file.path
        try:
            data = self._file.read(FILE_BYTES_MAX + 1, may_be_missing=False)
        except OSError as error:
            raise file_error(self._key, path, error) from error
        if self._file.is_readable_by_others():
            raise StartError(f"{self._key}: {path} is open to others than its owner; chmod 600 {path}")
        return self._parsed(data)

    def write(self, keys: tuple[bytes, ...]) -> None:
        """Replace the keys. Raises OSError."""
        text = json.dumps([key_text(key) for key in keys], indent=2) + "\n"
        self._file.change(text.encode)

    def _parsed(self, data: bytes) -> tuple[bytes, ...]:
        try:
            texts = json.loads(data) if len(data) <= FILE_BYTES_MAX else None
        except (ValueError, RecursionError):
            texts = None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self._fault(f"is no list of keys; {REMEDY}")
        if not 0 < len(texts) <= KEYS_MAX:
            raise self._fault(f"has {len(texts)} keys; it needs 1 to {KEYS_MAX}; {REMEDY}")
        keys: dict[bytes, None] = {}
        for index, text in enumerate(texts):
            try:
                keys[parse_key(text)] = None
            except KeyRefused as error:
                raise self._fault(f"[{index}] {error}") from error
        return tuple(keys)

    def _fault(self, text: str) -> StartError:
        return StartError(f"{self._key}: {self._file.path}: {text}")
