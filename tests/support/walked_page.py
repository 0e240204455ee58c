"""The commands of a page of the documentation, run as a reader would: one after the other in one shell, in an empty folder.

In blocks that are indented by four spaces, lines with `$ ` are commands, and those below them are what they print: these
lines come in this order among others, `…` stands for any text. A block whose first line is `# NAME.yml`, or another file name,
is that file. What does not end by itself (a node, a subscriber) is left running; its lines have come when the page ends.

The shell has a network, a process table and host names of its own (unshare), so that the ports of the pages are free.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from repository import ROOT
from waiting import eventually

INDENT: Final = "    "
SECONDS: Final = 120.0  # of one command
FILE: Final = re.compile(r"# [\w./-]+\.[a-z]+")
PARTS: Final = re.compile(rf"\n\n(?=\$ |{FILE.pattern}$)", re.MULTILINE)
# These do not end by themselves.
GOES_ON: Final = re.compile(r"(gmqttd start|mosquitto -p|mosquitto_sub)\b(?!.* -(C|W|E)\b)")
SERVES: Final = "serving"  # in the log of a node
# It says when it has subscribed, and at once: the next command may publish.
SAYS_MORE: Final = 'mosquitto_sub() { stdbuf -oL mosquitto_sub -d "$@"; }'
SUBSCRIBED: Final = "Subscribed (mid: 1)"
UNSHARE: Final = (
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
)


class Command(NamedTuple):
    """text  of the command line; `output`: the lines below it"""

    text: str
    output: list[str]


class File(NamedTuple):
    name: str
    content: str


Step = Command | File


def steps_of(page: str) -> list[Step]:
    """What a reader does, in the order of the page."""
    found: list[Step] = []
    for block in re.findall(rf"(?:^{INDENT}.*\n(?:\n(?={INDENT}))*)+", page, re.MULTILINE):
        # An empty line before a command, or before the name of a file, ends what was before.
        for part in PARTS.split(re.sub(rf"^{INDENT}", "", block, flags=re.MULTILINE)):
            lines = part.splitlines()
            is_file = FILE.fullmatch(lines[0]) is not None
            if is_file:
                found.append(File(lines[0].removeprefix("# "), "\n".join(lines[1:]).rstrip() + "\n"))
            else:
                found += commands_of(lines)
    return found


def commands_of(lines: list[str]) -> list[Command]:
    found: list[Command] = []
    for line in lines:
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif found and found[-1].text.endswith("\\"):
            found[-1] = Command(found[-1].text[:-1] + line.strip(), [])
        elif found and line.strip():
            found[-1].output.append(line)
    return found


def missing_line(expected: Sequence[str], output: str) -> str:
    """The first expected line that does not come behind those before it; "" where all come."""
    lines = iter(output.splitlines())
    for line in expected:
        parts = (re.sub(r"(?:\\ )+", r"\\s+", re.escape(part.strip())) for part in line.split("…"))
        pattern = re.compile(r"\s*" + ".*".join(parts) + r"\s*")
        if not any(pattern.fullmatch(one) for one in lines):
            return line
    return ""


class Walk:
    """One shell. `home` is the folder of the reader, `folder` the current one, if that is another; `hosts` are names that
    lead to this machine, `answers` what is typed into commands that begin so."""

    def __init__(
        self,
        home: Path,
        hosts: Sequence[str] = (),
        answers: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._home = home
        self._folder = folder or home
        self._hosts = hosts
        self._answers = answers or {}
        self._shell: asyncio.subprocess.Process | None = None
        self._count = 0

    async def __aenter__(self) -> Walk:
        out = self._home / ".walk"
        out.mkdir(parents=True)
        (out / "hosts").write_text(f"127.0.0.1 localhost {' '.join(self._hosts)}\n")
        environment = {
            **{name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self._home),
        }
        self._shell = await asyncio.create_subprocess_exec(
            *UNSHARE, "bash", cwd=self._folder, env=environment, stdin=asyncio.subprocess.PIPE
        )
        self._type(f"set -m; ip link set lo up; mount --bind {out}/hosts /etc/hosts")
        self._type(SAYS_MORE)
        return self

    async def __aexit__(self, *fault: object) -> None:
        assert self._shell is not None
        self._shell.kill()  # and with it all that runs in its process table
        await self._shell.wait()

    def _type(self, line: str) -> None:
        assert self._shell is not None
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\n".encode())

    async def page(self, text: str) -> None:
        """Do what the page says. Raises AssertionError that names the command."""
        waiting: list[tuple[Command, Path]] = []
        for step in steps_of(text):
            if isinstance(step, File):
                file = self._folder / step.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(step.content)
                continue
            goes_on = GOES_ON.search(step.text) is not None or step.text.endswith("&")
            output = await self._run(step, goes_on)
            if goes_on:
                waiting.append((step, output))
        for command, output in waiting:
            await eventually(
                lambda command=command, output=output: not missing_line(command.output, output.read_text()),
                f"`{command.text}` prints what the page says, not {output.read_text()!r}",
            )

    async def _run(self, command: Command, goes_on: bool) -> Path:
        self._count += 1
        output, ended = (self._home / f".walk/{self._count}.{kind}" for kind in ("out", "ended"))
        typed = next((text for begin, text in self._answers.items() if command.text.startswith(begin)), "")
        (self._home / f".walk/{self._count}.in").write_text(typed)
        source = f"<{self._home}/.walk/{self._count}.in" if typed else "</dev/null"
        line = re.sub(r"\s+# .*", "", command.text)
        ampersand = " &" if goes_on and not line.endswith("&") else ""
        self._type(f"{{ {line}{ampersand}\n}} {source} >{output} 2>&1; echo $? >{ended}.new; mv {ended}.new {ended}")
        await eventually(ended.exists, f"`{command.text}` ends", SECONDS)
        if goes_on:
            if "gmqttd start" in command.text:
                await eventually(lambda: SERVES in output.read_text(), f"`{command.text}` serves", SECONDS)
            elif "mosquitto_sub" in command.text:
                await eventually(lambda: SUBSCRIBED in output.read_text(), f"`{command.text}` subscribes", SECONDS)
            return output
        said, status = output.read_text(), ended.read_text().strip()
        missing = missing_line(command.output, said)
        assert not missing, f"`{command.text}` does not print {missing!r}:\n{said}"
        assert status == "0" or command.output, f"`{command.text}` ended with {status}:\n{said}"
        return output


def can_walk() -> str:
    """Why no page can be walked here; "" when one can."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "no unshare or no ip (Debian packages util-linux, iproute2)"
    return "" if os.system(f"{' '.join(UNSHARE)} true 2>/dev/null") == 0 else "this user may make no namespaces"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
