"""The command lines of gmqttctl and gmqttd in pages of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LINE: Final = re.compile(r"^(?: {4,}|\t)(?:\$ )?(.*?)(?:\s#.*)?$")
# What stands between commands of a line, and before a command.
BETWEEN: Final = re.compile(r"\s\|\s|\$\(|\s--\s")
COMMAND: Final = re.compile(r"\s*(?:\w+=\S*\s|nohup\s|\.venv/bin/)*((?:gmqttd|gmqttctl) .*)")
# What stands behind a command on its line: what it does, a file, the end of `$(…)`.
REST: Final = re.compile(r" {2,}|\s[<>&]|\s2>|\)(?:\\?\"|$)")


def lines_of(text: str) -> Iterator[str]:
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        if found := LINE.match(line):
            for piece in BETWEEN.split(found.group(1)):
                if command := COMMAND.match(piece):
                    yield REST.split(command.group(1), maxsplit=1)[0].strip()
