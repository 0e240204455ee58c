"""The files that a configuration names, read as a start reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from broker.config.settings import Settings
from broker.server.start_error import StartError
from broker.server.tls_context import tls_fault


@runtime_checkable
class NamesFiles(Protocol):
    """A plugin's settings class whose keys name files."""

    def unusable_files(self, key: str, path_of: Callable[[str], str]) -> Iterator[str]:
        """A text for each file that would stop a start now. `key` is that of the plugin's section, `path_of` as that of
        Host."""


def folder_of(config_file: str) -> str:
    """The folder of a configuration file, where relative paths in it start."""
    return os.path.dirname(os.path.abspath(config_file))


def path_in(folder: str, file: str) -> str:
    """The path of a file that a configuration in `folder` names."""
    return os.path.normpath(os.path.join(folder, file))


def unusable_files(settings: Settings, config_folder: str) -> Iterator[str]:
    """A text for each file that would stop a start now."""

    def path_of(file: str) -> str:
        return path_in(config_folder, file)

    for index, listener in enumerate(settings.listeners):
        yield from tls_fault(listener.tls, f"listeners[{index}].tls")
    for kind, listeners in (("grpc", settings.api.grpc), ("http", settings.api.http)):
        for index, api_listener in enumerate(listeners):
            yield from tls_fault(api_listener.tls, f"api.{kind}[{index}].tls")
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
