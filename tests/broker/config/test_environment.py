"""Variables of the environment in a configuration: in values, and as keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.loader import load_bytes
from broker.config.schema import keys_of
from broker.config.settings import Settings


def loaded(text: str, **environment: str) -> Settings:
    result = load_bytes(text.encode(), "x.yml", environment=environment)
    assert result.settings is not None, [str(fault) for fault in result.faults]
    return result.settings


def faults(text: str, **environment: str) -> list[str]:
    result = load_bytes(text.encode(), "x.yml", environment=environment)
    assert result.settings is None
    return [str(fault) for fault in result.faults]


def test_a_value_names_a_variable() -> None:
    settings = loaded(
        "mqtt:\n  max_inflight: ${MAX}\n  retain_available: ${RETAIN}\npid_file: /run/${NAME}/${NAME}.pid\n",
        MAX="7",
        RETAIN="false",
        NAME="a",
    )
    assert (settings.mqtt.max_inflight, settings.mqtt.retain_available) == (7, False)
    assert settings.pid_file == "/run/a/a.pid"


def test_a_default_stands_for_what_is_not_set() -> None:
    text = 'pid_file: "${NAME:-/run/x}"\nmqtt: {max_inflight: "${MAX:-9}"}\n'
    assert (loaded(text).pid_file, loaded(text).mqtt.max_inflight) == ("/run/x", 9)
    assert loaded(text, NAME="/b").pid_file == "/b"


def test_a_file_has_the_value(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("se: cret #1\n")
    text = "persistence: {redis: {password: '${REDIS}'}}\n"
    assert loaded(text, REDIS_FILE=str(secret)).persistence.redis.password == "se: cret #1"
    assert loaded(text, REDIS="now", REDIS_FILE=str(secret)).persistence.redis.password == "now"


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "No such file"), (b"\xff", "UTF-8"), (b"x" * 70_000, "bytes")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, what: str) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    (fault,) = faults("log: {level: warn}\npid_file: ${A}\n", A_FILE=str(secret))
    assert fault.startswith("x.yml:2:")
    assert "A_FILE" in fault
    assert str(secret) in fault
    assert what in fault


def test_a_variable_that_is_not_set_is_named() -> None:
    (fault,) = faults("log: {level: warn}\nmqtt:\n  max_inflight: ${MAX}\n")
    assert fault.startswith("x.yml:3:")
    assert "MAX_FILE" in fault


@pytest.mark.parametrize("text", ["${", "${1}", "${A B}", "a ${"])
def test_what_names_no_variable_is_refused(text: str) -> None:
    assert any("$${" in fault for fault in faults(f"pid_file: '{text}'\n"))
    assert loaded(f"pid_file: '{text.replace('${', '$${')}'\n").pid_file == text


def test_an_alias_is_replaced_once() -> None:
    text = "pid_file: &a '${NAME}'\nmqtt: {max_inflight: 5}\napi: {token_file: *a}\n"
    assert loaded(text, NAME="$${X}").pid_file == "$${X}"  # what a variable has is not read again


def test_a_variable_sets_a_key() -> None:
    settings = loaded(
        "mqtt: {max_inflight: 5, retain_available: true}\nlog: {level: warn}\n",
        GMQTTD_MQTT__MAX_INFLIGHT="50",
        GMQTTD_LOG__LEVEL="debug",
        GMQTTD_PID_FILE="/run/x: #y",
        GMQTTD_PERSISTENCE__REDIS__PASSWORD="~",
        GMQTTD_PLUGIN_ORDER="admin, prometheus",
        GMQTTD_MQTT__MAX_AWAIT_REL="",
    )
    assert (settings.mqtt.max_inflight, settings.mqtt.retain_available) == (50, True)
    assert (settings.log.level, settings.pid_file, settings.persistence.redis.password) == ("debug", "/run/x: #y", "~")
    assert settings.plugin_order == ("admin", "prometheus")


def test_a_variable_sets_lists_and_their_items() -> None:
    text = "listeners:\n- {address: ':1'}\n- {address: ':2'}\n"
    settings = loaded(text, GMQTTD_LISTENERS__1__ADDRESS=":3", GMQTTD_LISTENERS__2__ADDRESS=":4")
    assert [item.address.port for item in settings.listeners] == [1, 3, 4]
    settings = loaded(text, GMQTTD_LISTENERS="[{address: ':9'}]", GMQTTD_PLUGIN_ORDER="[admin]")
    assert [item.address.port for item in settings.listeners] == [9]
    assert settings.plugin_order == ("admin",)


def test_an_alias_keeps_its_other_places() -> None:
    text = "listeners:\n- &a {address: ':1', tls: {cert: c, key: k}}\n- *a\n"
    settings = loaded(text.replace("- *a", "- {<<: *a, address: ':2'}"), GMQTTD_LISTENERS__0__TLS__CERT="d")
    assert [item.tls.cert for item in settings.listeners if item.tls is not None] == ["d", "c"]


@pytest.mark.parametrize("merge", ["*a", "[*a, {tls: {cert: x, key: x}}]"])
def test_a_variable_changes_one_key_of_what_is_merged(merge: str) -> None:
    text = f"listeners:\n- &a {{address: ':1', tls: {{cert: c, key: k}}}}\n- {{<<: {merge}, address: ':2'}}\n"
    settings = loaded(text, GMQTTD_LISTENERS__1__TLS__CERT="d")
    found = [(item.tls.cert, item.tls.key) for item in settings.listeners if item.tls is not None]
    assert found == [("c", "k"), ("d", "k")]


def test_a_file_that_sets_nothing_is_enough_with_variables() -> None:
    assert loaded("", GMQTTD_LISTENERS="[{address: ':9'}]").listeners[0].address.port == 9
    assert faults("", GMQTTD_SERVICE_HOST="10.0.0.1")


def test_variables_that_are_no_keys() -> None:
    # Those of a Service of that name in Kubernetes.
    kubernetes = {"GMQTTD_PORT": "tcp://10.0.0.1:1883", "GMQTTD_PORT_1883_TCP_ADDR": "10.0.0.1"}
    assert loaded("log: {level: warn}\n", GMQTTD_COMPILE="1", **kubernetes) == loaded("log: {level: warn}\n")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("GMQTTD_LISTENER", "x", ["GMQTTD_LISTENERS"]),
        ("GMQTTD_MQT__X", "1", ["MQT", "MQTT"]),
        ("GMQTTD_MQTT__MAX_INFLIGH", "1", ["MAX_INFLIGHT"]),
        ("GMQTTD_MQTT__MAX_INFLIGHT__A", "1", ["MQTT__MAX_INFLIGHT"]),
        ("GMQTTD_MQTT__MAX_INFLIGHT", "many", ["mqtt.max_inflight", "many"]),
        ("GMQTTD_LISTENERS__5__ADDRESS", ":1", ["5", "0"]),
        ("GMQTTD_LISTENERS__A__ADDRESS", ":1", ["A"]),
        ("GMQTTD_LISTENERS", "[", ["list"]),
        ("GMQTTD_MQTT", "{max_inflight: many}", ["mqtt.max_inflight"]),
        ("GMQTTD_PERSISTENCE__", "1", ["unknown key"]),
    ],
)
def test_a_variable_that_cannot_be_meant_is_named(variable: str, value: str, words: list[str]) -> None:
    found = faults("log: {level: warn}\n", **{variable: value})
    assert found[0].startswith(variable)
    assert all(word.lower() in found[0].lower() for word in words), found


@given(
    st.dictionaries(
        st.text("ABMQT_L0", max_size=8).map("GMQTTD_{}".format)
        | st.sampled_from(["GMQTTD_MQTT__MAX_INFLIGHT", "GMQTTD_LISTENERS", "GMQTTD_LISTENERS__0", "A", "A_FILE"]),
        st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8"), max_size=30),
        max_size=4,
    ),
    st.sampled_from(["${A}", "'${A:-x}'", "[${A}]", "{a: '${A}'}", "$${"]),
)
def test_nothing_raises(environment: dict[str, str], value: str) -> None:
    result = load_bytes(f"pid_file: {value}\n".encode(), "x.yml", environment=environment)
    assert (result.settings is None) is bool(result.faults)


def test_each_key_of_the_first_levels_can_be_set() -> None:
    """A name in capitals leads to each key: no two keys of a section differ in case only."""
    sections: list[type[object]] = [Settings]
    while sections:
        section = sections.pop()
        names = [word.lower() for key in keys_of(section) for word in {key.name, *key.setting.aliases}]
        assert all("__" not in name for name in names), section
        assert len({key.name.lower() for key in keys_of(section)}) == len(keys_of(section)), section
        sections += [key.section for key in keys_of(section) if key.section is not None]
