"""The keys of the gossip of a running node: key queries that it asks, and changes of its keyring that are written."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from federation.errors import NotRunning
from federation.gossip.keyring import parse_key
from federation.serf.asked_queries import AskedQuery
from federation.serf.events import Event, KeysChanged, QueryEnded, QueryResponded
from federation.serf.key_queries import QUERY_LIST_KEYS, KeyCounts, count_key_responses
from federation.shell.gossip import GossipShell
from federation.shell.keyring_file import KeyringFile

CHANGES_MAX: Final = 256
"""Changes whose answer waits for the file; further ones are answered that they failed."""


class KeysRefused(Exception):
    """This node has no keys, or cannot ask now."""


class KeyControl:
    """`file`: where changes are kept; None: in memory alone."""

    def __init__(self, gossip: GossipShell, file: KeyringFile | None, log: Any) -> None:
        self._gossip = gossip
        self._file = file
        self._log = log
        self._loop = asyncio.get_running_loop()
        keyring = gossip.serf.keyring
        self._told = () if keyring is None else keyring.keys
        self._written = self._told  # the file has them; () when a write failed
        self._changes: list[KeysChanged] = []
        self._writing: asyncio.Task[None] | None = None
        self._asked: dict[int, tuple[AskedQuery, int, asyncio.Future[None]]] = {}

    async def ask(self, name: str, text: str) -> KeyCounts:
        """Ask all members one of QUERY_KEYS, with a key in base64 or, for a list, without one. Waits until all have
        answered, or the query is over. Raises KeyRefused for what is no key, KeysRefused, and NotRunning."""
        serf = self._gossip.serf
        key = b"" if name == QUERY_LIST_KEYS else parse_key(text)
        if serf.keyring is None:
            raise KeysRefused(
                "the gossip of this node is not encrypted; set encrypt_keys or keyring_file, and restart it"
            )
        nodes = serf.alive_others() + 1
        try:
            asked = serf.ask_keys(name, key, self._loop.time())
        except ValueError as error:
            raise KeysRefused(str(error)) from error
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._asked[asked.number] = (asked, nodes, waiter)
        try:
            self._gossip.flush()
            await waiter
        finally:
            del self._asked[asked.number]
            serf.asked_queries.end(asked)
        counts = count_key_responses(asked.responses, nodes)
        self._log.info(
            "key query asked by the API", query=name, nodes=nodes, responses=counts.responses, errors=counts.errors
        )
        return counts

    def receive(self, events: list[Event]) -> None:
        """Of Serf."""
        for event in events:
            if isinstance(event, (QueryResponded, QueryEnded)):
                found = self._asked.get(event.number)
                if found is not None:
                    asked, nodes, waiter = found
                    if (asked.is_over or len(asked.responses) >= nodes) and not waiter.done():
                        waiter.set_result(None)
            elif isinstance(event, KeysChanged):
                self._changed(event)

    async def stop(self) -> None:
        """After the gossip: nothing more is asked, and what has changed is written."""
        for _, _, waiter in self._asked.values():
            if not waiter.done():
                waiter.set_exception(NotRunning())
        if self._writing is not None:
            await self._writing

    def _changed(self, change: KeysChanged) -> None:
        """Log and write the keys, where they are others than before: a query may be repeated."""
        query = change.query
        if change.keys != self._told:
            self._told = change.keys
            self._log.info("keys of the gossip changed", query=query.name, by=query.source_node, keys=len(change.keys))
            if self._file is None:
                self._log.warning(
                    "keys of the gossip are kept until this process ends: write them into encrypt_keys, or use keyring_file"
                )
        if self._file is None:
            return
        if change.keys == self._written and self._writing is None:
            self._gossip.serf.keys_kept(change, "", self._loop.time())
        elif len(self._changes) >= CHANGES_MAX:
            self._gossip.serf.keys_kept(change, f"{CHANGES_MAX} changes wait to be written already", self._loop.time())
        else:
            self._changes.append(change)
            if self._writing is None:
                self._writing = self._loop.create_task(self._write(self._file))

    async def _write(self, file: KeyringFile) -> None:
        while self._changes:
            changes, self._changes = self._changes, []
            error = ""
            self._written = ()
            try:
                await asyncio.to_thread(file.write, changes[-1].keys)
                self._written = changes[-1].keys
            except Exception as fault:  # else no change would be answered any more
                text = fault.strerror if isinstance(fault, OSError) else None
                error = f"the keyring file cannot be written: {text or fault}"
                self._log.error("keys of the gossip changed, and are lost with this process", reason=error)
            now = self._loop.time()
            for change in changes:
                self._gossip.serf.keys_kept(change, error, now)
            self._gossip.flush()
        self._writing = None
