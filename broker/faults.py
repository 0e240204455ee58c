"""Exceptions of plugins in calls of the core."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Faults:
    """Is told of the exceptions of plugins, to log them (`Context.faults`). The exception goes no further."""

    def plugin_failed(self, call: str, error: Exception) -> None:
        """`call` is the seam and its method, such as `Authorizer.may_read`."""
