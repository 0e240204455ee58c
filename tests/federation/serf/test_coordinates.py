"""Network coordinates: what they converge to, and what they do not take."""

from __future__ import annotations

import itertools
import math
import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.msgpack_fields import decode, encode
from federation.serf.coordinate import COORDINATE_MAX, ERROR_MAX, HEIGHT_MIN, ORIGIN, Coordinate
from federation.serf.coordinates import Coordinates

numbers = st.floats(-COORDINATE_MAX, COORDINATE_MAX)
positive = st.floats(0.0, COORDINATE_MAX)
coordinates = st.builds(Coordinate, st.tuples(*[numbers] * 8), positive, numbers, positive)


@given(coordinates, coordinates)
def test_a_distance_is_positive_and_the_same_both_ways(a: Coordinate, b: Coordinate) -> None:
    assert a.distance(b) == pytest.approx(b.distance(a))
    assert a.distance(b) >= 0.0
    assert Coordinate.decode(a.encode()) == a


def test_the_encoding_is_that_of_serf() -> None:
    """wire-gossip 9: the initial coordinate has 130 bytes with its version."""
    payload = Coordinates("a", Random(1), Counters()).ack_payload()
    assert len(payload) == 130
    assert payload[0] == 1
    assert decode(payload[1:]) == {b"Adjustment": 0.0, b"Error": 1.5, b"Height": 1e-5, b"Vec": [0.0] * 8}


GOOD = ORIGIN.fields()


@pytest.mark.parametrize(
    "change",
    [
        {"Vec": [0.0] * 7},
        {"Vec": [0.0] * 9},
        {"Vec": []},
        {"Vec": None},
        {"Vec": ["x"] * 8},
        {"Vec": [0.0] * 7 + [math.nan]},
        {"Vec": [math.inf] * 8},
        {"Vec": [-2e4] * 8},
        {"Error": math.nan},
        {"Error": -0.1},
        {"Height": -1e-5},
        {"Height": math.inf},
        {"Adjustment": 1e300},
        {"Adjustment": "1"},
    ],
)
def test_coordinates_that_are_not_finite_or_of_another_dimension_are_counted(change: dict[str, object]) -> None:
    data = encode(GOOD | change)
    with pytest.raises(WireError):
        Coordinate.decode(data)
    counters = Counters()
    node = Coordinates("a", Random(1), counters)
    for payload in (b"\x01" + data, b"\x02" + ORIGIN.encode(), b"\x01", b"\x01\x90"):
        node.ping_completed("b", 0.1, payload)
    assert (node.own, node.known) == (ORIGIN, {})
    assert counters.dropped[DropReason.BAD_COORDINATE] == 4
    node.ping_completed("b", 0.1, None)
    node.ping_completed("b", 0.1, b"")
    assert counters.drops == 4


@given(st.lists(st.tuples(st.sampled_from("bcd"), st.floats(0.0, 20.0), coordinates), max_size=40), st.integers(0, 9))
def test_no_input_makes_a_coordinate_invalid(acks: list[tuple[str, float, Coordinate]], seed: int) -> None:
    node = Coordinates("a", Random(seed), Counters())
    for name, round_trip, other in acks:
        node.ping_completed(name, round_trip, b"\x01" + other.encode())
        own = node.own
        assert own.is_valid()
        assert 0.0 <= own.error <= ERROR_MAX
        assert own.height >= HEIGHT_MIN
        assert Coordinate.decode(node.ack_payload()[1:]) == own or max(map(abs, own.vec)) > COORDINATE_MAX
        estimate = node.round_trip(name)
        assert estimate is not None
        assert math.isfinite(estimate)


def converge(round_trips: dict[tuple[int, int], float], count: int, rounds: int, rng: Random) -> list[Coordinates]:
    """Each node pings one other node in each round, as Serf does each second."""
    nodes = [Coordinates(f"n{number}", Random(number), Counters()) for number in range(count)]
    for _ in range(rounds):
        for number, node in enumerate(nodes):
            other = rng.choice([index for index in range(count) if index != number])
            exact = round_trips[min(number, other), max(number, other)]
            measured = exact * rng.uniform(1.0, 1.1) + (0.5 if rng.random() < 0.02 else 0.0)  # some are late
            node.ping_completed(f"n{other}", measured, nodes[other].ack_payload())
    return nodes


def relative_errors(nodes: list[Coordinates], round_trips: dict[tuple[int, int], float]) -> list[float]:
    return [
        abs(nodes[a].own.distance(nodes[b].own) - exact) / exact
        for (a, b), exact in round_trips.items()
        if exact > 0.001
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_estimates_converge_to_the_latencies_of_a_plane_with_access_links(seed: int) -> None:
    rng = Random(seed)
    places = [(rng.uniform(0, 0.1), rng.uniform(0, 0.1), rng.uniform(0.0005, 0.01)) for _ in range(25)]
    round_trips = {
        (a, b): math.dist(places[a][:2], places[b][:2]) + places[a][2] + places[b][2]
        for a, b in itertools.combinations(range(25), 2)
    }
    early = relative_errors(converge(round_trips, 25, 5, Random(seed)), round_trips)
    late = relative_errors(converge(round_trips, 25, 300, Random(seed)), round_trips)
    assert statistics.median(late) < 0.15
    assert statistics.median(late) < statistics.median(early) / 2


def test_two_sites_are_told_apart() -> None:
    """Within a site a millisecond, between the sites 80: the estimates are of these orders."""
    count = 12
    round_trips = {(a, b): 0.001 if (a < 6) == (b < 6) else 0.080 for a, b in itertools.combinations(range(count), 2)}
    nodes = converge(round_trips, count, 400, Random(4))
    near = [nodes[a].own.distance(nodes[b].own) for (a, b), exact in round_trips.items() if exact < 0.01]
    far = [nodes[a].own.distance(nodes[b].own) for (a, b), exact in round_trips.items() if exact > 0.01]
    assert statistics.median(far) == pytest.approx(0.080, rel=0.2)
    assert statistics.median(near) < 0.015
    assert max(near) < min(far)


def test_a_liar_moves_a_node_by_a_bounded_force_and_members_are_forgotten() -> None:
    node = Coordinates("a", Random(1), Counters())
    for number in range(50):
        far = Coordinate(tuple([COORDINATE_MAX] * 8), 0.0)
        node.ping_completed(f"liar{number}", 0.0, b"\x01" + far.encode())
        node.ping_completed("honest", 0.010, b"\x01" + ORIGIN.encode())
    assert node.own.is_valid()
    for _ in range(200):
        node.ping_completed("honest", 0.010, b"\x01" + ORIGIN.encode())
    estimate = node.round_trip("honest")
    assert estimate is not None
    assert estimate < 1.0
    node.keep({"honest"})
    assert list(node.known) == ["honest"]
    assert node.get("a") is node.own
    assert node.get("liar1") is None
