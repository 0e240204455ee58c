"""The form and its reason: from the record of the wheel, else from the sources of a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.server import form
from broker.server.form import Form, log_form, running_form, shared_folder, version_text


class Lines:
    def __init__(self) -> None:
        self.written: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.written.append(("info", event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.written.append(("warning", event, values))


def test_the_record_of_the_wheel_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "form.txt"
    record.write_text("built where there was no C compiler (cc)\n")
    monkeypatch.setattr(form, "RECORD_FILE", record)
    assert running_form().reason == "built where there was no C compiler (cc)"
    assert "no C compiler (cc); Python 3." in version_text()


def test_the_reason_without_a_record_names_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "RECORD_FILE", tmp_path / "form.txt")
    assert running_form().reason == f"the sources in {form.ROOT} run, by an editable install or from a checkout"


@pytest.mark.parametrize(("name", "levels"), [("compiled", ["info"]), ("interpreted", ["info", "warning"])])
def test_only_the_interpreted_form_warns(monkeypatch: pytest.MonkeyPatch, name: str, levels: list[str]) -> None:
    monkeypatch.setattr(form, "running_form", lambda: Form(name, "because"))
    lines = Lines()
    log_form(lines, ["listeners[0].address :1883"])
    assert [line[0] for line in lines.written] == levels
    first = lines.written[0]
    assert (first[1], first[2]["form"], first[2]["reason"]) == ("starting", name, "because")
    assert first[2]["on_every_interface"] == ["listeners[0].address :1883"]
    for _, event, values in lines.written[1:]:
        assert "interpreted" in event
        assert "C compiler" in values["remedy"]


def test_the_shared_folder_has_the_configurations_and_the_documentation() -> None:
    assert (shared_folder() / "configs" / "single.yml").is_file()
    assert (shared_folder() / "docs" / "operations.md").is_file()
