"""A RabbitMQ node with its plugin rabbitmq_mqtt (Debian package rabbitmq-server) as a process on 127.0.0.1, of any user. It is
ended by its id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from broker.codec.packets import MQTT_311, Connect
from broker.codec.writer import encode_packet
from node_process import free_port
from waiting import POLL_SECONDS

# The one in /usr/sbin runs as root or rabbitmq only.
PROGRAM: Final = shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin")
EPMD: Final = shutil.which("epmd")
RABBITMQ_MISSING: Final = "rabbitmq-server (Debian package rabbitmq-server) is missing"
START_SECONDS: Final = 90.0  # of a virtual machine on a busy machine
STOP_SECONDS: Final = 30.0
ACCEPTED: Final = b"\x20\x02\x00\x00"  # CONNACK of MQTT 3.1.1 without a session
CONFIG: Final = """
listeners.tcp = none
mqtt.listeners.tcp.1 = 127.0.0.1:{port}
mqtt.allow_anonymous = true
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 1MB
log.console = true
log.console.level = info
log.file = false
"""
# One scheduler that sleeps when it has nothing to do; nodes of Erlang are looked for on loopback only.
ERLANG: Final = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"


class RabbitMqBroker:
    """Its queues last over `stop` and `start`. `port` is that of MQTT."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._epmd_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "rabbitmq.conf").write_text(CONFIG.format(port=self.port))
        (folder / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        (folder / "rabbitmq-env.conf").touch()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        self._environment = {
            **environment,
            "HOME": str(folder),  # has the cookie of Erlang
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"gmqttd{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_PLUGINS_EXPAND_DIR": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        }

    def start(self) -> None:
        """Return when it accepts clients."""
        assert PROGRAM is not None
        assert EPMD is not None
        if self._epmd is None:
            # Without it the node starts one that stays when it ends.
            self._epmd = self._spawn(EPMD, "-port", str(self._epmd_port), "-address", "127.0.0.1")
        self._process = self._spawn(PROGRAM)
        until = time.monotonic() + START_SECONDS
        while not self._accepts():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < until, f"RabbitMQ does not accept clients:\n{self.log()}"
            time.sleep(POLL_SECONDS)

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / "rabbitmq.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _accepts(self) -> bool:
        """Its listener opens before it knows client identifiers: then it refuses each CONNECT."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(encode_packet(Connect("probe", MQTT_311, True), MQTT_311))
                return connection.recv(4) == ACCEPTED
        except OSError:
            return False

    def log(self) -> str:
        return (self._folder / "rabbitmq.log").read_text("utf-8", "replace")

    def stop(self) -> None:
        """Its graceful stop; nothing when it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the shell script, and the virtual machine that it has started
            process.wait()
            raise AssertionError(f"RabbitMQ does not stop:\n{self.log()[-4000:]}") from None

    def close(self) -> None:
        """End it and its epmd."""
        try:
            self.stop()
        finally:
            if self._epmd is not None:
                self._epmd.kill()
                self._epmd.wait()
