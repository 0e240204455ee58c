"""The committed generated code is what proto/ gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def has_plugins(python: Path) -> bool:
    return (python.parent / "protoc-gen-mypy").exists()


def test_generated_code_is_fresh() -> None:
    pytest.importorskip("grpc_tools", reason="the extra dev is not installed")
    # The compiled form's environment sees the packages of .venv, but protoc's plugins stand only beside its interpreter.
    python = next(path for path in (Path(sys.executable), ROOT / ".venv/bin/python") if has_plugins(path))
    done = subprocess.run(
        [str(python), str(ROOT / "scripts/build_proto"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
