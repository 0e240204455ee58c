"""Warnings of a start beyond the keys of the file, without a start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, runtime_checkable

from broker.config.settings import Settings
from broker.server.named_files import path_in


@runtime_checkable
class WarnsAtStart(Protocol):
    """A plugin's settings class that a start has more to say about than its keys and files."""

    def start_warnings(self, settings: Settings, path_of: Callable[[str], str]) -> Iterator[str]:
        """A text for each warning of a start. Raises StartError where the start would end. `path_of` is as that of Host."""


def start_warnings(settings: Settings, config_folder: str) -> Iterator[str]:
    """A text for each warning of the plugins. Raises StartError."""
    for name in settings.plugin_order:
        section = getattr(settings.plugins, name, None)
        if isinstance(section, WarnsAtStart):
            for text in section.start_warnings(settings, partial(path_in, config_folder)):
                yield f"plugins.{name}: {text}"
