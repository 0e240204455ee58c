"""The sdist and the wheel that scripts/build_fast makes: what they hold, and the wheel in a fresh virtual environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from fresh_environment import PIP, ROOT, InstallFailed, environment, faults, hot_modules, install, run, setup_module

NO_COMPILER: Final = 3  # exit status of scripts/build_fast
NOT_PACKED: Final = (".ci/", ".gitignore")
SMALL_PACKAGE: Final = "mypy-extensions"  # asks the package index for a dependency of a few kilobytes
pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist and the wheel. Waits for a build that is under way."""
    folder = tmp_path_factory.mktemp("index")
    try:
        run([sys.executable, *PIP, "download", "--no-deps", "--no-cache-dir", SMALL_PACKAGE], folder)
    except (InstallFailed, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no package index here: {error}")
    build = ["scripts/build_fast"]
    done = subprocess.run(build, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode == NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return ROOT / "run" / "dist"


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """The files of this project, as paths below the checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout: nothing tells its files from strays")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in names if (ROOT / name).is_file()}


def test_the_sdist_holds_the_project(packages: Path, tracked: set[str]) -> None:
    with tarfile.open(next(packages.glob("*.tar.gz"))) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    made = {"PKG-INFO", "setup.cfg", "gmqttd.egg-info/SOURCES.txt"}
    assert names - made == {name for name in tracked if not name.startswith(NOT_PACKED)}
    assert made <= names


def test_the_wheel_holds_the_packages_and_the_shared_files(packages: Path, tracked: set[str]) -> None:
    with zipfile.ZipFile(next(packages.glob("*.whl"))) as archive:
        names = set(archive.namelist())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    version = next(name for name in names if name.endswith(".dist-info/METADATA")).partition(".dist-info/")[0]
    shared = f"{version}.data/data/share/gmqttd/"
    expected = {
        name
        for name in tracked
        if name.startswith(("broker/", "federation/", "gmqttctl/", "pipeline/", "pyspark_gmqttd"))
    }
    expected |= {shared + name for name in tracked if name.startswith(("configs/", "docs/"))}
    expected |= {module.replace(".", "/") + suffix for module in hot_modules()}
    expected |= {f"gmqttd__mypyc{suffix}", "broker/server/form.txt", f"{shared}README.md"}
    metadata = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt")
    assert names == expected | {f"{version}.dist-info/{name}" for name in metadata}


@pytest.mark.slow
def test_the_wheel_in_a_fresh_environment(packages: Path, tmp_path: Path) -> None:
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert faults(install(base, next(packages.glob("*.whl")), tmp_path), tmp_path) == []


def test_the_interpreted_form_is_built_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GMQTTD_COMPILE", raising=False)
    monkeypatch.setenv("CC", "/no/such/compiler")
    extensions, reason = setup_module().extensions()
    assert extensions == []
    assert (
        reason == "built where there was no C compiler (/no/such/compiler); on Debian: apt-get install gcc python3-dev"
    )


@pytest.mark.parametrize(("wanted", "compiler"), [("0", "cc"), ("0", "/no/such/compiler")])
def test_the_interpreted_form_on_demand(monkeypatch: pytest.MonkeyPatch, wanted: str, compiler: str) -> None:
    monkeypatch.setenv("GMQTTD_COMPILE", wanted)
    monkeypatch.setenv("CC", compiler)
    assert setup_module().extensions() == ([], "built with GMQTTD_COMPILE=0")


def test_the_compiled_form_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMQTTD_COMPILE", "1")
    monkeypatch.setenv("CC", "/no/such/compiler")
    with pytest.raises(SystemExit, match=r"cannot be compiled: no C compiler \(/no/such/compiler\)"):
        setup_module().extensions()
