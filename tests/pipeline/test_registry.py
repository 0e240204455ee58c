"""The registry: every pipeline and its options, defaults of streams."""

from __future__ import annotations

import pytest

from pipeline.registry import JOBS, options_of, parse, pipelines, show, stream_options


def test_every_job_registers_its_pipeline() -> None:
    found = pipelines()
    assert tuple(found) == JOBS
    for each in found.values():
        assert each.summary.endswith(".")
        assert (each.queries is None) != (each.work is None)


@pytest.mark.parametrize("name", JOBS)
def test_defaults_are_read_as_they_are_shown(name: str) -> None:
    for option, kind, annotation, default in options_of(pipelines()[name].options):
        assert parse(option, show(default, annotation), kind, annotation) == default
        assert annotation.doc


def test_options_of_the_user_take_the_place_of_defaults() -> None:
    found = stream_options({"STARTINGOFFSETS": "latest", "servers": "a:1"}, {"queryName": "q"})
    assert found["STARTINGOFFSETS"] == "latest"
    assert "startingOffsets" not in found
    assert (found["queryName"], found["groupId"]) == ("q", "pipeline")
    assert "startingOffsets" not in stream_options({"startingTimestamp": "1"})
    assert stream_options({}, {"startingOffsets": "latest"})["startingOffsets"] == "latest"
