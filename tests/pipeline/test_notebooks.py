"""The notebooks of docs/notebooks run on a node, from the first cell to the last one, and draw their pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mqtt_client import Clients
from node_process import Nodes
from repository import ROOT
from spark_runs import api_address, clean_environment, node_with_messages, run_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
EXECUTE = "from nbclient.cli import main; main()"


def pictures(notebook: dict[str, Any]) -> list[int]:
    """How many pictures each cell shows, of those that draw with axes."""
    return [
        sum("image/png" in output.get("data", {}) for output in cell["outputs"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code" and "plt.subplots" in "".join(cell["source"])
    ]


def test_the_notebooks_are_kept_with_their_pictures() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        found = pictures(json.loads(path.read_text()))
        assert found == [1] * len(found) != [], path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
async def test_a_notebook_runs(path: Path, nodes: Nodes, clients: Clients, tmp_path: Path) -> None:
    node = await node_with_messages(nodes, clients, tmp_path)
    places = {"GMQTTCTL_SERVERS": api_address(node), "IPYTHONDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    if not sys.flags.safe_path:
        places["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", EXECUTE, str(path), f"--output={tmp_path / 'done.ipynb'}"]
    await run_program(command, tmp_path, clean_environment(**places))
    done = json.loads((tmp_path / "done.ipynb").read_text())
    assert all(cell["execution_count"] for cell in done["cells"] if cell["cell_type"] == "code")
    assert set(pictures(done)) == {1}
