"""The commands that a package adds, without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CommandList:
    """title           above them in the help
    commands        name -> (module:attribute of a click command, its line in the help; "" hides it)
    aliases         other name -> the words that it stands for: names of RabbitMQ, and former ones
    how_to_install  the packages that these commands need and an installation may lack; "" where there are none
    """

    title: str
    commands: Mapping[str, tuple[str, str]]
    aliases: Mapping[str, str] = field(default_factory=dict)
    how_to_install: str = ""
