"""The committed generated code is what proto/ gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_generated_code_is_fresh() -> None:
    pytest.importorskip("grpc_tools", reason="the extra dev is not installed")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/build_proto"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
