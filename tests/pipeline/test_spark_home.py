"""The SPARK_HOME with which Python workers take the installed PySpark."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.spark_home import SPARK_HOME, fast_workers, link_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_home_has_all_of_the_package_but_the_zips(tmp_path: Path) -> None:
    package, folder = tmp_path / "pyspark", tmp_path / "cache"
    for name in ("bin", "jars", "python"):
        (package / name).mkdir(parents=True)
    (package / "bin" / "spark-submit").touch()
    home = link_spark_home(package, folder)
    assert sorted(os.listdir(home)) == ["bin", "jars"]
    assert (home / "bin" / "spark-submit").exists()
    (package / "conf").mkdir()
    assert link_spark_home(package, folder) == home  # again, as the next session does
    assert sorted(os.listdir(home)) == ["bin", "conf", "jars"]
    other = tmp_path / "other"
    other.mkdir()
    assert link_spark_home(other, folder) != home


@pytest.mark.parametrize(
    ("master", "python", "given", "is_set"),
    [
        ("local[2]", sys.executable, None, True),
        ("spark://host:7077", sys.executable, None, False),
        (None, sys.executable, None, False),
        ("local[2]", "/usr/bin/python3", None, False),
        ("local[2]", sys.executable, "/opt/spark", False),
    ],
)
def test_the_home_is_for_workers_of_this_machine_and_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str | None, python: str, given: str | None, is_set: bool
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    monkeypatch.delenv(SPARK_HOME, raising=False)
    if given is not None:
        monkeypatch.setenv(SPARK_HOME, given)
    with fast_workers(master, tmp_path):
        home = os.environ.get(SPARK_HOME)
        if is_set:
            assert home is not None
            assert Path(home).parent == tmp_path
            assert Path(home, "jars").is_dir()
        else:
            assert home == given
    assert os.environ.get(SPARK_HOME) == given


def test_a_home_that_cannot_be_made_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv(SPARK_HOME, raising=False)
    (tmp_path / "file").touch()
    with fast_workers("local", tmp_path / "file"):
        assert SPARK_HOME not in os.environ


def test_workers_take_the_installed_package(spark: SparkSession) -> None:
    def place(_: int) -> str:
        import pyspark

        return pyspark.__file__

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(place).collect() == [pyspark.__file__]
