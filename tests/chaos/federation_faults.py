"""The faults of `scripts/chaos federation`, each a function that returns when what it hit is there again."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from broker.workers.shares import worker_folder
from federation_evidence import all_whole, is_known_as_whole
from federation_schedule import Incident, Trouble
from node_process import Node
from split_network import SplitNetwork
from waiting import eventually, stand_still

DRAIN_SECONDS_MAX: Final = 120.0
UNLIMITED: Final = resource.RLIM_INFINITY


class Scene(ABC):
    """nodes  all of them
    network  between them
    wiped    nodes whose disk was lost in this incident
    spared   how often a disk was left, since its copy was not whole any more when the node was dead
    """

    nodes: list[Node]
    network: SplitNetwork
    wiped: set[str]
    spared: int

    @abstractmethod
    def client_ids(self) -> list[str]:
        """Of all durable sessions."""

    @abstractmethod
    def serves_again(self, node: Node) -> None:
        """The node has been drained, and takes clients."""


async def kill(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    await asyncio.gather(*(node.kill() for node in hit))
    await asyncio.sleep(incident.seconds)
    await asyncio.gather(*(node.start() for node in hit))


async def kill_beside_still(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    killed, still = hit
    stopped = await stop_all(still)
    await asyncio.sleep(incident.seconds)  # the outbox of the node that is killed fills
    await kill(scene, incident, [killed])
    go_on(stopped)


async def kill_worker(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    """The second time perhaps while it starts, or while another one is killed."""
    (node,) = hit
    random = Random(incident.seconds)
    for _ in range(2):
        before = node.workers()
        index = random.choice(list(before))
        with suppress(ProcessLookupError):
            os.kill(before[index], signal.SIGKILL)
        await asyncio.sleep(random.uniform(0.0, 1.0))
        await eventually(lambda: node.workers()[index] != before[index], f"worker {index} is started again")  # noqa: B023


async def stop_all(node: Node) -> list[int]:
    """Stop all processes of a node, the supervisor first, which would end the others. Returns them."""
    found = node.processes()
    for process in found:
        await stand_still(process)
    return found


def go_on(stopped: list[int]) -> None:
    for process in reversed(stopped):
        os.kill(process, signal.SIGCONT)


async def wipe(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    (node,) = hit
    behind = len(node.log())
    await all_whole(scene.nodes, scene.client_ids())
    await node.kill()
    if is_known_as_whole(node.log(), behind):
        shutil.rmtree(data_dir(node))
        scene.wiped.add(node.name)
    else:  # a busy machine: what was acknowledged since may be on this disk alone
        scene.spared += 1
    await asyncio.sleep(incident.seconds)
    await node.start()


async def stand(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    (node,) = hit
    stopped = await stop_all(node)
    await asyncio.sleep(incident.seconds)
    go_on(stopped)


async def cut(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    scene.network.split(*hit)
    await asyncio.sleep(incident.seconds)
    scene.network.heal()


async def fill_disk(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    """No file of the process grows beyond a size that its log of the database has reached, or will soon. With workers: that of
    one of them."""
    (node,) = hit
    process, folder = node.pid, str(data_dir(node))
    if workers := node.workers():
        index = Random(incident.seconds).choice(list(workers))
        process, folder = workers[index], worker_folder(folder, index)
    wal = Path(folder) / "store.db-wal"
    size = wal.stat().st_size if wal.exists() else 0
    resource.prlimit(process, resource.RLIMIT_FSIZE, (Random(size).randrange(size + 65_536), UNLIMITED))
    await asyncio.sleep(incident.seconds)
    if incident.is_harder:
        await node.kill()
        await node.start()
    else:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


async def drain(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    (node,) = hit
    path = "/v1/federation/drain"

    async def drained() -> Any:
        _, answer = await node.rest("GET", path)
        return answer if answer["state"] == "drained" else None

    async def has_begun() -> bool:
        status, answer = await node.rest("POST", path, {})
        return status == 200 or "message" not in answer  # no other node that takes sessions is known just after a fault

    await eventually(has_begun, f"{node.name} begins to be drained", DRAIN_SECONDS_MAX)
    answer = await eventually(drained, f"{node.name} is drained", DRAIN_SECONDS_MAX)
    assert (answer["clients_left"], answer["sessions_left"], answer["waits_for"]) == ("0", "0", ""), answer
    await asyncio.sleep(incident.seconds)
    if incident.is_harder:
        await node.stop()
        await node.start()
    else:
        status, answer = await node.rest("POST", "/v1/federation/undrain", {})
        assert status == 200, answer
    scene.serves_again(node)


async def restart(scene: Scene, incident: Incident, hit: Sequence[Node]) -> None:
    (node,) = hit
    await node.stop()
    await asyncio.sleep(incident.seconds)
    await node.start()


def data_dir(node: Node) -> Path:
    return Path(node.config["data_dir"])


Fault = Callable[[Scene, Incident, Sequence[Node]], Awaitable[None]]
FAULTS: Final[dict[Trouble, Fault]] = {
    Trouble.KILL: kill,
    Trouble.KILL_ALL: kill,
    Trouble.KILL_BESIDE_STILL: kill_beside_still,
    Trouble.WIPE: wipe,
    Trouble.STILL: stand,
    Trouble.STILL_LONG: stand,
    Trouble.CUT: cut,
    Trouble.FULL: fill_disk,
    Trouble.DRAIN: drain,
    Trouble.RESTART: restart,
    Trouble.KILL_WORKER: kill_worker,
}
