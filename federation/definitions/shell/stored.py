"""The file in which a node keeps the definitions that are made while it runs, read as a start reads it."""

from __future__ import annotations

import os
from typing import Final

from broker.server.private_file import PrivateFile
from broker.server.start_error import StartError
from federation.definitions.document import FILE_BYTES_MAX, DocumentFault, read_document
from federation.definitions.entry import Entry

FILE: Final = "definitions.json"
KEY: Final = "plugins.links"
NO_NODE: Final = "node"
"""Name in versions of a node that is in no cluster."""
NOT_KEPT: Final = "definitions that the API makes are lost when the node stops; data_dir keeps them"


def stored_in(folder: str) -> PrivateFile:
    """The file of the definitions in a folder."""
    return PrivateFile(os.path.join(folder, FILE))


def read_stored(file: PrivateFile) -> list[Entry]:
    """The definitions; none where there is no file. Raises StartError. The file stays as it is."""
    try:
        return read_document(file.read(FILE_BYTES_MAX))
    except DocumentFault as fault:
        text = f"{fault}; the file is left as it is: repair it, or move it away to begin without its definitions"
        raise StartError(f"{KEY}: {file.path}: {text}") from None
    except OSError as error:
        raise StartError(f"{KEY}: {file.path} cannot be read: {error.strerror or error}") from None
