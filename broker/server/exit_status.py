"""The exit statuses of `gmqttd`; 0 is done, or stopped as asked."""

from __future__ import annotations

from typing import Final

EXIT_FAILED: Final = 1  # the line on standard error says why
EXIT_BAD_CONFIGURATION: Final = 2  # trying again does not help
