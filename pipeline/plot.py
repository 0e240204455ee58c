"""Draws a rollup: `gmqttctl pipeline plot`."""

from __future__ import annotations

from pathlib import Path

from pipeline.aside import committed_files
from pipeline.errors import OptionError, PipelineError
from pipeline.jobs.rollup import FOLDER, merge
from pipeline.options import read_duration
from pipeline.pictures import draw_rollup, save
from pipeline.session import quiet_session


def find_table(folder: Path, name: str | None) -> Path:
    """The folder of a rollup. Raises OptionError, and PipelineError where there is none."""
    found = sorted(path.parent for path in folder.glob(f"{FOLDER}-*/_spark_metadata"))
    if name is not None:
        if folder / name not in found:
            raise OptionError("TABLE", name, f"is no rollup in {folder}; there are {_names(found)}")
        return folder / name
    if not found:
        raise PipelineError(f"{folder} has no rollup: run the pipeline `rollup` first")
    if len(found) > 1:
        raise OptionError("TABLE", "", f"is not given, and {folder} has {_names(found)}: name one")
    return found[0]


def _names(found: list[Path]) -> str:
    return ", ".join(path.name for path in found) or "none"


def plot_rollup(folder: Path, name: str | None, levels: int, window: str) -> list[Path]:
    """Write FOLDER/rollup.png and rollup.svg. Raises PipelineError."""
    table = find_table(folder, name)
    seconds = read_duration("--window", window, "1m")
    if not any(committed_files(table)):
        raise PipelineError(
            f"{table} has no window yet: the newest message is not `delay` after the end of one. Run the rollup again later"
        )
    spark = quiet_session("gmqttd plot", "local[2]", {})
    try:
        rows = merge(spark.read.parquet(str(table.resolve())), levels, seconds).orderBy("start").toPandas()
    finally:
        spark.stop()
    return save(draw_rollup(rows), folder / "rollup")
