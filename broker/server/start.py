"""Starts a node: as this process, or as several with a supervisor."""

from __future__ import annotations

from typing import NoReturn

from broker.config.settings import Settings
from broker.server.logging import get_logger


def start_node(settings: Settings, config_file: str, allow_missing: bool) -> NoReturn:
    """Run a node until a stop is requested, and end the process."""
    if settings.workers != "1" or settings.data_dir:  # an earlier start with more workers may have left something there
        from broker.server.worker_folders import needs_supervisor, worker_warnings

        for text in worker_warnings(settings):
            get_logger("supervisor").warning(text)
        if needs_supervisor(settings, config_file):
            from broker.server.supervisor import run_supervisor

            run_supervisor(settings, config_file, allow_missing)
    from broker.server.run import run_node

    run_node(settings, config_file, allow_missing)
