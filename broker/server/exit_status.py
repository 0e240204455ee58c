"""The exit statuses of `gmqttd`. 0 is success, also after a requested stop."""

from __future__ import annotations

from typing import Final

EXIT_FAILED: Final = 1  # the last line on standard error gives the reason
EXIT_BAD_CONFIGURATION: Final = 2  # a retry without changes fails again
