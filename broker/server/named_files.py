"""Says what a start would say beyond the keys of the file, without a start: files that cannot be used, warnings of plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol, runtime_checkable

from broker.config.settings import Settings
from broker.server.private_file import sync_folder
from broker.server.start_error import StartError
from broker.server.tls_context import tls_fault

FOLDER_MODE: Final = 0o700  # as the store and the event log make theirs


@runtime_checkable
class NamesFiles(Protocol):
    """A plugin's settings class whose keys name files."""

    def unusable_files(self, key: str, path_of: Callable[[str], str]) -> Iterator[str]:
        """A text for each file that would stop a start now. `key` is that of the plugin's section, `path_of` as that of
        Host."""


@runtime_checkable
class WarnsAtStart(Protocol):
    """A plugin's settings class that a start has more to say about than its keys and files."""

    def start_warnings(self, settings: Settings, path_of: Callable[[str], str]) -> Iterator[str]:
        """A text for each warning of a start. Raises StartError where the start would end. `path_of` is as that of Host."""


def folder_of(config_file: str) -> str:
    """The folder of a configuration file, where relative paths in it start."""
    return os.path.dirname(os.path.abspath(config_file))


def path_in(folder: str, file: str) -> str:
    return os.path.normpath(os.path.join(folder, file))


def make_folder(key: str, folder: str) -> None:
    """Make a folder of the node in one that exists; nothing where it is there. Raises StartError that names the key."""
    try:
        os.mkdir(folder, FOLDER_MODE)
        sync_folder(os.path.dirname(os.path.abspath(folder)))  # what is in it would go with its name
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise StartError(f"{key}: {folder} cannot be made; make the folder above it") from None
    except OSError as error:
        raise StartError(f"{key}: {folder} cannot be made: {error.strerror or error}") from None


def unusable_files(settings: Settings, config_folder: str) -> Iterator[str]:
    """A text for each file that would stop a start now."""
    path_of = partial(path_in, config_folder)
    for index, listener in enumerate(settings.listeners):
        yield from tls_fault(listener.tls, f"listeners[{index}].tls")
    for key, api_listener in settings.api.listeners():
        yield from tls_fault(api_listener.tls, f"{key}.tls")
    if settings.api.token_file:
        yield from _token_fault(path_of(settings.api.token_file))
    for name in settings.plugin_order:
        section = getattr(settings.plugins, name, None)
        if isinstance(section, NamesFiles):
            yield from section.unusable_files(f"plugins.{name}", path_of)


def _token_fault(path: str) -> Iterator[str]:
    from broker.api.tokens import read_token_file

    try:
        read_token_file(path)
    except StartError as error:
        yield str(error)


def start_warnings(settings: Settings, config_folder: str) -> Iterator[str]:
    """A text for each warning of the plugins. Raises StartError."""
    for name in settings.plugin_order:
        section = getattr(settings.plugins, name, None)
        if isinstance(section, WarnsAtStart):
            for text in section.start_warnings(settings, partial(path_in, config_folder)):
                yield f"plugins.{name}: {text}"
