"""Rules of a replay: which topic a message gets, what goes into one commit and when, and how far a replay is.

A replay reads messages in order of (time, node, offset), and publishes them through the sink in numbered batches. Its
state file says before each commit which messages the batch has, so that a run after a crash repeats that batch, which
publishes nothing twice, and goes on behind it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.errors import MqttError
from broker.routing.names import check_topic_name
from pipeline.durable import replace_text
from pipeline.errors import OptionError, PipelineError

SLICE_SECONDS: Final = 0.25  # of real time, published with one commit
BATCH_ROWS_MAX: Final = 5_000
BATCH_BYTES_MAX: Final = 2 << 20  # of payloads, unless one message has more
NANOSECONDS: Final = 1_000_000_000


class Key(NamedTuple):
    """The place of a message in the order of a replay. The id of the log is not part of it: a log may get another one between
    two runs, with the same records."""

    time: int
    node: str
    offset: int


class Message(NamedTuple):
    key: Key
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: tuple[tuple[str, str], ...]


class TopicMap:
    """OLD=NEW for a topic, OLD/#=NEW/# for all topics below OLD, #=NEW/# for all. The first that fits counts; a topic that
    none fits keeps its name."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises OptionError."""
        self._rules: list[tuple[str, str, bool]] = []
        for text in texts:
            old, equals, new = text.partition("=")
            is_tree = old == "#" or old.endswith("/#")
            if not equals or not old or not new or is_tree != (new == "#" or new.endswith("/#")):
                raise OptionError("--topic-map", text, "is not OLD=NEW or OLD/#=NEW/#, such as house/#=replay/house/#")
            if is_tree:
                old, new = old[:-1], new[:-1]
            for name in (old, new):
                if name:
                    _check(text, name.rstrip("/") or name)
            self._rules.append((old, new, is_tree))

    def map(self, topic: str) -> str:
        for old, new, is_tree in self._rules:
            if topic == old or (is_tree and topic.startswith(old)):
                return new + topic[len(old) :]
        return topic


def _check(text: str, name: str) -> None:
    try:
        check_topic_name(name.encode())
    except MqttError as error:
        raise OptionError("--topic-map", text, f"has {name}, which is no topic name: {error}") from None


def batches(messages: Iterable[Message], slice_ns: int) -> Iterator[list[Message]]:
    """Portions for one commit each: of one slice of the messages' time, or all with `slice_ns` 0, within the bounds."""
    found: list[Message] = []
    size = number = 0
    for message in messages:
        its_number = message.key.time // slice_ns if slice_ns else 0
        is_full = len(found) >= BATCH_ROWS_MAX or size + len(message.payload) > BATCH_BYTES_MAX
        if found and (is_full or its_number != number):
            yield found
            found, size = [], 0
        found.append(message)
        size += len(message.payload)
        number = its_number
    if found:
        yield found


def due(time_ns: int, first_ns: int, begin: float, speed: float) -> float:
    """Return when a message is published: `speed` times as fast as they came since the first one; with speed 0 at
    once."""
    return begin + (time_ns - first_ns) / NANOSECONDS / speed if speed else begin


@dataclass
class ReplayState:
    """The contents of a state file.

    parameters  what was asked for: a run with others is another replay
    node        that publishes
    batch       number of batches whose commit is known to be done, `rows` in them
    last        place of their last message
    pending     place of the last message of the batch whose commit has begun
    done        whether all was published
    query       as the node knows the replay; "" before a batch has begun, and in a file of an earlier build
    """

    parameters: dict[str, Any]
    node: str
    batch: int = 0
    rows: int = 0
    last: Key | None = None
    pending: Key | None = None
    done: bool = False
    query: str = ""

    def begin(self, last: Key, job: str) -> str:
        """The next batch, or the pending one once more, ends with `last`. Returns the query of which it is a batch.

        The node remembers the last batch of each query, and another replay may have the name of this job, in another
        folder: a query of a name that only this state file has, so that what the node has of it is of this replay. The
        pending batch of an earlier build has none.
        """
        if not self.query and self.pending is None:
            self.query = f"replay-{job}-{secrets.token_hex(4)}"
        self.pending = last
        return self.query or f"replay-{job}"

    def finish(self, rows: int) -> None:
        self.batch += 1
        self.rows += rows
        self.last, self.pending = self.pending, None

    def write(self, path: Path) -> None:
        """Replace the file in one step, on disk."""
        replace_text(path, json.dumps(asdict(self)))


def read_state(path: Path, parameters: dict[str, Any]) -> ReplayState | None:
    """None where no run was. Raises PipelineError for a replay of other parameters, and for one that is done."""
    try:
        found = json.loads(path.read_bytes())
        state = ReplayState(**found)
        state.last = _key(state.last)
        state.pending = _key(state.pending)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise PipelineError(f"{path} cannot be read: {error}") from None
    name = path.stem
    for each, value in parameters.items():
        if state.parameters.get(each) != value:
            raise OptionError(
                f"--{each}",
                value,
                f"is not {state.parameters.get(each)}, with which replay {name} began; give another --job to begin anew",
            )
    if state.done:
        raise OptionError("--job", name, f"is done, with {state.rows} messages; give another name to replay them again")
    return state


def _key(values: Any) -> Key | None:
    """Of a state file; an earlier build wrote the id of the log before the offset."""
    return Key(values[0], values[1], values[-1]) if values else None
