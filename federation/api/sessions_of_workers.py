"""The drain, and the sessions, of a node with several workers: worker 0 answers for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from google.protobuf.empty_pb2 import Empty

from broker.api.errors import invalid_argument
from broker.api.merging import How, Merged
from broker.workers.shares import share
from federation.sessions.drain import DRAINED, DRAINING, RATE_DEFAULT, RATE_MAX
from federation.sessions.pb.sessions_pb2 import (
    Copies,
    DrainRequest,
    DrainStatus,
    GetSessionRequest,
    MoveRequest,
    MoveResponse,
    Session,
)

SERVICE: Final = "/gmqtt.sessions.api.Sessions/"
PLACES: Final = ("here", "arriving", "leaving", "elsewhere", "ended", "unknown")  # what says most first


async def drain(
    note_rates: Callable[[list[int]], None], merged: Merged, request: DrainRequest, context: object
) -> DrainStatus:
    """Each worker gives what it has, at its part of the rate. One that does not answer is found before any begins; one that
    ends after that finds its rate when it is back, also where this worker has ended (note_rates)."""
    rate = checked_rate(request)
    count = len(merged.indexes) + 1
    if rate < count:
        raise invalid_argument(
            f"rate is {rate}, may be {count} to {RATE_MAX} clients a second on a node of {count} workers"
        )
    for index in merged.indexes:
        await merged.siblings.call(index, f"{SERVICE}GetDrain", b"")
    rates = [share(rate, count, index) for index in range(count)]
    own: DrainStatus = await merged.own(DrainRequest(rate=rates[0]), context)  # raises where none is to be drained
    note_rates(rates)
    return joined([own, *[await merged.call(index, DrainRequest(rate=rates[index])) for index in merged.indexes]])


def checked_rate(request: DrainRequest) -> int:
    """Raises ApiError."""
    rate = request.rate or RATE_DEFAULT
    if rate > RATE_MAX:
        raise invalid_argument(f"rate is {rate}, may be 1 to {RATE_MAX} clients a second")
    return rate


async def undrain(
    note_rates: Callable[[list[int]], None], merged: Merged, request: Empty, context: object
) -> DrainStatus:
    note_rates([0] * (len(merged.indexes) + 1))
    return await drain_status(merged, request, context)


async def drain_status(merged: Merged, request: Empty, context: object) -> DrainStatus:
    return joined(await merged.all(request, context))


def joined(answers: list[DrainStatus]) -> DrainStatus:
    """Return the status of the node: it is drained when all of its workers are."""
    states = {answer.state for answer in answers}
    found = DrainStatus(
        state=states.pop() if len(states) == 1 else DRAINING,
        rate=sum(answer.rate for answer in answers),
        clients_left=sum(answer.clients_left for answer in answers),
        sessions_left=sum(answer.sessions_left for answer in answers),
        sessions_on_way=sum(answer.sessions_on_way for answer in answers),
        clients_closed=sum(answer.clients_closed for answer in answers),
        sessions_given=sum(answer.sessions_given for answer in answers),
        waits_for=next((answer.waits_for for answer in answers if answer.waits_for), ""),
        node_name=answers[0].node_name,
    )
    times = [answer.since.ToNanoseconds() for answer in answers]
    # A node is drained since its last worker is, and in any other state since the first one.
    found.since.FromNanoseconds(max(times) if found.state == DRAINED else min(times))
    return found


async def session(merged: Merged, request: GetSessionRequest, context: object) -> Session:
    """Return the answer of the worker that knows most."""
    answers: list[Session] = await merged.all(request, context)
    return min(answers, key=lambda answer: PLACES.index(answer.state))


async def move(merged: Merged, request: MoveRequest, context: object) -> MoveResponse:
    """By the worker that has the session."""
    asked = GetSessionRequest(client_id=request.client_id).SerializeToString()
    for index in merged.indexes:
        place = Session.FromString(await merged.siblings.call(index, f"{SERVICE}GetSession", asked))
        if place.state == "here":
            answer: MoveResponse = await merged.call(index, request)
            return answer
    own: MoveResponse = await merged.own(request, context)
    return own


async def copies(merged: Merged, request: Empty, context: object) -> Copies:
    """A copy is whole where the store of each worker has it."""
    first, *others = await merged.all(request, context)
    found: Copies = first
    for other in others:
        found.wanted = max(found.wanted, other.wanted)
        found.whole = min(found.whole, other.whole)
        found.short_seconds = max(found.short_seconds, other.short_seconds)
        known = {keeper.node_name: keeper for keeper in found.keepers}
        for keeper in other.keepers:
            if keeper.node_name in known:
                known[keeper.node_name].whole = known[keeper.node_name].whole and keeper.whole
            else:
                found.keepers.append(keeper)
    return found


def for_workers(note_rates: Callable[[list[int]], None]) -> dict[str, How]:
    """note_rates: keeps the rates at which the workers are to be drained, by index, for those that end and are started
    again."""
    return {
        "Drain": partial(drain, note_rates),
        "Undrain": partial(undrain, note_rates),
        "GetDrain": drain_status,
        "GetSession": session,
        "Move": move,
        "GetCopies": copies,
    }
