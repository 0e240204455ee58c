"""The Debian package in a fresh Debian of its own: installed, started, used, stopped, removed, purged."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from node_process import free_port
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ROOT / "run/packages"
RELEASE: Final = Path("/etc/os-release")
BUILD_SECONDS: Final = 1800.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


def debian_release() -> str:
    """The code name of this Debian; skips where a package cannot be made or tried."""
    if os.getuid() != 0:
        pytest.skip("only root may make a Debian in a folder")
    for program in ("debootstrap", "dpkg-deb", "chroot"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: scripts/setup --packages, on Debian")
    found = dict(line.split("=", 1) for line in RELEASE.read_text().splitlines() if "=" in line)
    if found.get("ID") != "debian":
        pytest.skip("this is not Debian")
    return found["VERSION_CODENAME"]


@pytest.fixture(scope="module")
def package() -> Path:
    debian_release()
    done = subprocess.run(
        [ROOT / "scripts/package", "deb"], capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.split()[-1])


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of a Debian with what the package depends on."""
    release = debian_release()
    root = tmp_path_factory.mktemp("debian") / "root"
    command = ["debootstrap", "--variant=minbase", "--include=python3,adduser,init-system-helpers", release, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        pytest.skip(f"debootstrap cannot make a Debian here: {(done.stdout + done.stderr)[-300:]}")
    yield root
    shutil.rmtree(root, ignore_errors=True)


def inside(root: Path, *command: str) -> str:
    done = subprocess.run(
        ["chroot", root, *command], capture_output=True, text=True, check=False, timeout=300, env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def environment(**variables: str) -> dict[str, str]:
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        **variables,
    }


def test_what_the_package_says(package: Path) -> None:
    text = subprocess.run(["dpkg-deb", "--info", package], capture_output=True, text=True, check=True).stdout
    assert "Package: gmqttd" in text
    names = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    for name in (
        "./usr/bin/gmqttd",
        "./usr/bin/gmqttctl",
        "./lib/systemd/system/gmqttd.service",
        "./etc/gmqtt/gmqttd.yml",
    ):
        assert f" {name}\n" in names
    assert all(line.split()[1] == "root/root" for line in names.splitlines())


async def test_install_start_serve_stop_purge(package: Path, debian: Path, clients: Clients) -> None:
    shutil.copy(package, debian / "gmqttd.deb")
    await asyncio.to_thread(inside, debian, "dpkg", "--install", "/gmqttd.deb")
    assert "(compiled" in inside(debian, "gmqttd", "version")
    inside(debian, "gmqttctl", "--help")
    inside(debian, "gmqttd", "check", "-c", "/etc/gmqtt/gmqttd.yml")
    # The service's start line and user, with ports that are free on this machine.
    unit = (debian / "lib/systemd/system/gmqttd.service").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    uid, gid = (
        inside(debian, "id", "-u", settings["User"]).strip(),
        inside(debian, "id", "-g", settings["User"]).strip(),
    )
    # The configuration is the node's and root's alone, until the administrator says more.
    folder = debian / "etc/gmqtt"
    assert (folder.stat().st_uid, folder.stat().st_gid, folder.stat().st_mode & 0o777) == (0, int(gid), 0o750)
    for user, status in (("65534:65534", 1), (f"{uid}:{gid}", 0)):
        done = subprocess.run(  # noqa: ASYNC221
            ["chroot", f"--userspec={user}", debian, "/bin/cat", "/etc/gmqtt/gmqttd.yml"],
            capture_output=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
    folder.chmod(0o755)
    await asyncio.to_thread(inside, debian, "dpkg", "--install", "/gmqttd.deb")
    assert folder.stat().st_mode & 0o777 == 0o755
    port, rest, grpc = free_port(), free_port(), free_port()
    log = debian.parent / "log"
    with log.open("wb") as output:
        node = subprocess.Popen(  # noqa: ASYNC220
            ["chroot", f"--userspec={uid}:{gid}", debian, *settings["ExecStart"].split()],
            env=environment(
                GMQTTD_LISTENERS__0__ADDRESS=f"127.0.0.1:{port}",
                GMQTTD_API__GRPC__0__ADDRESS=f"127.0.0.1:{grpc}",
                GMQTTD_API__HTTP=f"[{{address: '127.0.0.1:{rest}', map: '127.0.0.1:{grpc}'}}]",
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        await eventually(lambda: " serving" in log.read_text(), "the node serves", 60)
        client = await clients.connect(port, "c")
        await client.subscribe("a", qos=1)
        await client.publish("a", b"x", qos=1, retain=True)
        assert (await client.message()).payload == b"x"
    finally:
        node.send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(node.wait, 30)
    assert status == 0, log.read_text()
    state = debian / "var/lib/gmqttd"
    assert (state.stat().st_uid, state.stat().st_mode & 0o777) == (int(uid), 0o700)
    assert list(state.iterdir())
    configuration = debian / "etc/gmqtt/gmqttd.yml"
    await asyncio.to_thread(inside, debian, "dpkg", "--remove", "gmqttd")
    assert configuration.exists()
    assert list(state.iterdir())
    await asyncio.to_thread(inside, debian, "dpkg", "--purge", "gmqttd")
    assert not configuration.exists()
    assert not state.exists()
    assert not (debian / "opt/gmqttd").exists()
