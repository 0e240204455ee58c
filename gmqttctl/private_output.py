"""A file that a command makes, with what only its owner may read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from broker.server.private_file import sync_folder
from gmqttctl.errors import CommandError


@contextmanager
def private_output(file: Path) -> Iterator[IO[bytes]]:
    """The bytes that are written become `file` at the end, whole or not at all, with mode 0600 and the owner of this
    process: a file of that name that there is gives none of its own. Raises CommandError."""
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)  # mode 0600
        with open(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, file)
        temporary = ""
        sync_folder(file.parent)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror or error}") from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
