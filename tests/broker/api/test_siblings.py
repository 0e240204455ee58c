"""Calls of other workers that are not there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc
import pytest

from broker.api import siblings
from broker.api.errors import ApiError
from broker.api.siblings import Siblings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.interpreted  # replaces a constant
@pytest.mark.parametrize("how", ["call", "stream"])
async def test_a_worker_that_does_not_come_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(siblings, "CALL_SECONDS_MAX", 0.05)
    others = Siblings({1: str(tmp_path / "nobody")})
    answer = others.call(1, "/a", b"") if how == "call" else anext(others.stream(1, "/a", b""))
    with pytest.raises(ApiError, match=re.escape("worker 1 of this node does not answer")) as refused:
        await answer
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    await others.stop()
