"""The commands that a package adds, without importing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandList:
    """commands        name -> (module:attribute of a click command, its line in the help)
    how_to_install  the packages that these commands need and an installation may lack; "" where there are none
    """

    commands: Mapping[str, tuple[str, str]]
    how_to_install: str = ""
