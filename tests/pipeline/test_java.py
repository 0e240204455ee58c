"""Java is found, or the text says what installs it. Programs named `java` stand in for other versions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline import java
from pipeline.errors import PipelineError
from pipeline.java import find_java_home, java_version, write_launcher


def make_java(home: Path, version: str) -> Path:
    """A `java` that says it has this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _no_other_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "JVM_FOLDER", tmp_path / "jvm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21)])
def test_versions(version: str, number: int, tmp_path: Path) -> None:
    assert java_version(make_java(tmp_path / "home", version) / "bin" / "java") == number


def test_java_on_path_and_below_the_folder_of_all(tmp_path: Path) -> None:
    on_path = make_java(tmp_path / "a", "17.0.1")
    assert find_java_home({"PATH": str(on_path / "bin")}, tmp_path) == on_path
    below = make_java(tmp_path / "jvm" / "java-21", "21.0.1")
    old = make_java(tmp_path / "b", "11.0.1")
    assert find_java_home({"PATH": str(old / "bin")}, tmp_path) == below


def test_java_home_counts_first(tmp_path: Path) -> None:
    given, on_path = make_java(tmp_path / "a", "21.0.1"), make_java(tmp_path / "b", "17.0.1")
    assert find_java_home({"JAVA_HOME": str(given), "PATH": str(on_path / "bin")}, tmp_path) == given


@pytest.mark.parametrize(("version", "text"), [("11.0.2", "has Java 11"), (None, "has no bin/java that runs")])
def test_a_java_home_that_is_not_right_is_named(version: str | None, text: str, tmp_path: Path) -> None:
    given = make_java(tmp_path / "a", version) if version else tmp_path / "a"
    with pytest.raises(PipelineError, match=f"JAVA_HOME={given} {text}; Spark needs Java 17 or newer.*apt-get install"):
        find_java_home({"JAVA_HOME": str(given)}, tmp_path)


def test_no_java_names_the_commands_that_install_one(tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match=r"there is no Java; .*apt-get install openjdk-17.*pip install 'gmqttd\[java\]'"
    ):
        find_java_home({"PATH": str(tmp_path)}, tmp_path)
    old = make_java(tmp_path / "b", "11.0.1")
    with pytest.raises(PipelineError, match=rf"Java is too old \({old}/bin/java is Java 11\)"):
        find_java_home({"PATH": str(old / "bin")}, tmp_path)


def test_the_launcher_leaves_out_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    home = tmp_path / "it's here"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    program.chmod(0o755)
    launcher = write_launcher(home, tmp_path / "launchers")
    assert write_launcher(home, tmp_path / "launchers") == launcher  # again, as a second session does
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "$HOME", "", "Main"]
    done = subprocess.run([launcher / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b:*>", "<$HOME>", "<>", "<Main>"]
