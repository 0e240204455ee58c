"""Wrong input by the million: see scripts/fuzz."""

from __future__ import annotations

import argparse
import gc
import hashlib
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

from broker.config.settings import LogSettings
from broker.server.logging import setup_logging
from definition_targets import DefinitionFileTarget, DefinitionTarget, ImportTarget, MappingTarget, MemberTarget
from federation_targets import DirectTarget, GossipPacketTarget, GossipStreamTarget, GoTarget
from fuzz_target import CORPUS, Target
from kafka_target import KafkaTarget
from link_targets import LinkHeaderTarget, LinkTarget
from login_targets import AnswerTarget, KeyTarget, TokenTarget
from mqtt_targets import PacketTarget, SessionTarget
from rest_target import RequestTarget, RestTarget
from rpc_target import RpcTarget
from text_targets import AccountTarget, AclTarget, ConfigurationTarget, ProxyTarget
from websocket_target import WebSocketTarget

TARGETS: Final[dict[str, Callable[[], Target]]] = {
    "packets": PacketTarget,
    "session": SessionTarget,
    "direct": DirectTarget,
    "go": GoTarget,
    "gossip-packets": GossipPacketTarget,
    "gossip-streams": GossipStreamTarget,
    "gossip-rpc": RpcTarget,
    "rest": RestTarget,
    "rest-requests": RequestTarget,
    "configuration": ConfigurationTarget,
    "proxy": ProxyTarget,
    "acl": AclTarget,
    "accounts": AccountTarget,
    "websocket": WebSocketTarget,
    "tokens": TokenTarget,
    "token-keys": KeyTarget,
    "webhook": AnswerTarget,
    "kafka": KafkaTarget,
    "link": LinkTarget,
    "link-headers": LinkHeaderTarget,
    "definitions": DefinitionTarget,
    "definitions-file": DefinitionFileTarget,
    "mappings": MappingTarget,
    "imports": ImportTarget,
    "link-members": MemberTarget,
}
CPU_SECONDS_MAX: Final = 10.0  # of one input
BLOCKS_MAX: Final = 5_000  # objects that may be there after the second half and were not after the first: caches
FAILURES_MAX: Final = 10  # of one kind; more are the same again


class TookTooLong(Exception):
    """An input that keeps the processor for CPU_SECONDS_MAX."""


@dataclass
class Report:
    """blocks    objects more after the second half of the inputs than after the first
    failures  names of the files with the inputs that failed
    """

    kind: str
    inputs: int = 0
    seconds: float = 0.0
    blocks: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.failures and self.blocks <= BLOCKS_MAX

    def __str__(self) -> str:
        rate = self.inputs / max(self.seconds, 0.001)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        text = f"{self.kind}: {self.inputs} inputs in {self.seconds:.0f} s ({rate:.0f} a second), "
        text += f"{len(self.failures)} failed, {self.blocks:+d} objects in the second half, at most {memory:.0f} MB"
        return text if self.blocks <= BLOCKS_MAX else f"{text}: memory grows"


@contextmanager
def bounded() -> Iterator[None]:
    """Raises TookTooLong in what runs for CPU_SECONDS_MAX."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"one input takes more than {CPU_SECONDS_MAX:.0f} s")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def input_of(target: Target, kind: str, seed: int, number: int) -> bytes:
    """The input with this number; it depends on nothing that ran before."""
    return target.make(Random(f"{kind} {seed} {number}"))


def run_one(target: Target, data: bytes) -> Exception | None:
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS_MAX)
    try:
        target.run(data)
    except Exception as error:
        return error
    return None


def save(kind: str, data: bytes) -> str:
    path = CORPUS / kind / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


def fuzz(kind: str, inputs: int, seed: int = 1, first: int = 0, seconds: float = 0.0) -> Report:
    """Run the inputs; ends early after so many seconds, when given."""
    target = TARGETS[kind]()
    report = Report(kind)
    begun = time.monotonic()
    half = 0
    with bounded():
        for number in range(first, first + inputs):
            data = input_of(target, kind, seed, number)
            error = run_one(target, data)
            report.inputs += 1
            if error is not None:
                name = save(kind, data)
                if name not in report.failures:
                    report.failures.append(name)
                    print(f"{kind}, seed {seed}, input {number}: {data[:200]!r}", file=sys.stderr)
                    traceback.print_exception(error)
                if len(report.failures) >= FAILURES_MAX:
                    break
            passed = time.monotonic() - begun
            if not half and (report.inputs >= inputs // 2 or (seconds and passed > seconds / 2)):
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                half = allocated()
            if seconds and passed > seconds:
                break
    report.blocks = allocated() - half
    report.seconds = time.monotonic() - begun
    target.close()
    return report


def allocated() -> int:
    """Blocks of memory that Python objects take."""
    gc.collect()
    return sys.getallocatedblocks()


def replay(kind: str, path: Path) -> Exception | None:
    """One input from a file."""
    target = TARGETS[kind]()
    with bounded():
        error = run_one(target, path.read_bytes())
    target.close()
    return error


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz")
    parser.add_argument("--kind", action="append", choices=sorted(TARGETS), help="only these, all without it")
    parser.add_argument("--inputs", type=int, default=10_000, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.0, help="of each kind at most")
    parser.add_argument("--replay", type=Path, help="run one saved input of the one --kind")
    options = parser.parse_args()
    setup_logging(LogSettings(level="error"))
    kinds = options.kind or list(TARGETS)
    if options.replay is not None:
        error = replay(kinds[0], options.replay)
        if error is not None:
            traceback.print_exception(error)
        return 1 if error is not None else 0
    reports = []
    for kind in kinds:
        report = fuzz(kind, options.inputs, options.seed, options.first, options.seconds)
        reports.append(report)
        print(report, flush=True)
        for name in report.failures:
            print(f"  scripts/fuzz --kind {kind} --replay {name}")
    print(f"{sum(report.inputs for report in reports)} inputs, {sum(len(r.failures) for r in reports)} failed")
    return 0 if all(report.good for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
