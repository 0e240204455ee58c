"""The values of `max_memory`: a size, or a share of the machine's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.loader import load


@pytest.mark.parametrize("text", ["0", "64MiB", "67108864", "1%", "60%", "100%"])
def test_sizes_and_shares(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yml"
    path.write_text(f"mqtt: {{max_memory: {text}}}\n")
    settings = load(str(path)).settings
    assert settings is not None
    assert settings.mqtt.max_memory == text


@pytest.mark.parametrize("text", ["0%", "101%", "1.5%", "63MiB", "1", "lots"])
def test_what_is_neither(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yml"
    path.write_text(f"mqtt: {{max_memory: {text}}}\n")
    loaded = load(str(path))
    assert loaded.settings is None
    fault = str(loaded.faults[0])
    assert "mqtt.max_memory" in fault
    assert f'"{text}"' in fault
    assert "64MiB" in fault
