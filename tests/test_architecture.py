"""The architecture as tests: what a core may import, who knows whom, how long a module may be, what stays outside."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from repository import ROOT, is_generated, tracked_files

LINES_MAX: Final = 500

# Folders and files of rules without input and output (docs/architecture.md). All else is a shell.
CORES: Final = (
    "broker/errors.py",
    "broker/admission.py",
    "broker/reclaiming.py",
    "broker/unaccepted.py",
    "broker/listener_facts.py",
    "broker/job_header.py",
    "broker/link_header.py",
    "broker/message.py",
    "broker/token_bucket.py",
    "broker/server/layers.py",
    "broker/server/proxy_header.py",
    "broker/auth/accounts.py",
    "broker/auth/failed_logins.py",
    "broker/auth/fair_queue.py",
    "broker/auth/acl_authorizer.py",
    "broker/auth/acl_file.py",
    "broker/auth/acl_rules.py",
    "broker/auth/scram.py",
    "broker/codec",
    "broker/routing",
    "broker/session",
    "broker/timers.py",
    "broker/slices.py",
    "broker/publisher.py",
    "broker/authorization.py",
    "broker/context.py",
    "broker/broker.py",
    "broker/counters.py",
    "broker/faults.py",
    "broker/hook_points.py",
    "broker/hooks.py",
    "broker/store/journal.py",
    "broker/store/records.py",
    "broker/store/restoring.py",
    "broker/observers.py",
    "broker/wrappers.py",
    "broker/event_log/appender.py",
    "broker/event_log/block.py",
    "broker/event_log/contents.py",
    "broker/event_log/holds.py",
    "broker/event_log/identity.py",
    "broker/event_log/index.py",
    "broker/event_log/reading.py",
    "broker/event_log/retention.py",
    "broker/event_log/segment.py",
    "broker/event_log/selection.py",
    "broker/event_log/records.py",
    "broker/event_log/row_publisher.py",
    "broker/event_log/staged_block.py",
    "broker/event_log/staged_rows.py",
    "broker/event_log/synced_mark.py",
    "federation/definitions/collisions.py",
    "federation/definitions/definitions.py",
    "federation/definitions/document.py",
    "federation/definitions/echoes.py",
    "federation/definitions/entry.py",
    "federation/definitions/error.py",
    "federation/definitions/exchange.py",
    "federation/definitions/imports/amqp_uri.py",
    "federation/definitions/imports/erlang_properties.py",
    "federation/definitions/imports/erlang_terms.py",
    "federation/definitions/imports/imported.py",
    "federation/definitions/imports/mosquitto_bridges.py",
    "federation/definitions/imports/mosquitto_conf.py",
    "federation/definitions/imports/mosquitto_topics.py",
    "federation/definitions/imports/namespaces.py",
    "federation/definitions/imports/rabbitmq_config.py",
    "federation/definitions/imports/rabbitmq_definitions.py",
    "federation/definitions/imports/regular_expressions.py",
    "federation/definitions/policy.py",
    "federation/definitions/replication.py",
    "federation/definitions/resolution.py",
    "federation/definitions/upstream.py",
    "federation/definitions/upstream_pattern.py",
    "federation/definitions/upstream_set.py",
    "federation/definitions/uri.py",
    "federation/gossip",
    "federation/links/addresses.py",
    "federation/links/backoff.py",
    "federation/links/client.py",
    "federation/links/confirmation.py",
    "federation/links/cover.py",
    "federation/links/filters.py",
    "federation/links/flow.py",
    "federation/links/interest.py",
    "federation/links/link.py",
    "federation/links/mapping.py",
    "federation/links/notes.py",
    "federation/links/ownership.py",
    "federation/links/queue_client.py",
    "federation/links/queue_credit.py",
    "federation/links/queue_link.py",
    "federation/links/queues.py",
    "federation/links/rewriting.py",
    "federation/links/scope.py",
    "federation/links/status.py",
    "federation/links/subscriptions.py",
    "federation/links/topic_link.py",
    "federation/links/wants.py",
    "federation/serf",
    "federation/stream",
    "federation/node.py",
)
INPUT_AND_OUTPUT: Final = frozenset(
    [
        "aiohttp",
        "asyncio",
        "grpc",
        "multiprocessing",
        "os",
        "pathlib",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uvloop",
        "uuid",
    ]
)
# The type of what a core is handed; all else in that module draws from state of its own.
RANDOM_NAMES: Final = frozenset({"Random"})


def sources(*places: str) -> list[Path]:
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists()
    return [path for path in found if not is_generated(path)]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(source: str) -> list[tuple[int, str, str]]:
    """(line, module, name) of every import that runs, also inside functions; name is "" for `import module`."""
    found: list[tuple[int, str, str]] = []
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, node.module or "", alias.name) for alias in node.names]
        if isinstance(node, ast.If) and is_type_checking(node):
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)
    return sorted(found)


def core_faults(source: str) -> list[str]:
    """What of this source a core must not have: imports of input and output, the module's own random state."""
    faults = [
        f"line {line}: imports {module}"
        for line, module, name in imports(source)
        if module.split(".")[0] in INPUT_AND_OUTPUT or (module == "random" and name not in RANDOM_NAMES | {""})
    ]
    for node in ast.walk(ast.parse(source)):
        is_attribute_of_random = (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random"
        )
        if is_attribute_of_random and isinstance(node, ast.Attribute) and node.attr not in RANDOM_NAMES:
            faults.append(f"line {node.lineno}: random.{node.attr}: take a random.Random instead")
    return faults


@pytest.mark.parametrize(
    ("source", "fault_count"),
    [
        ("import time", 1),
        ("def f() -> None:\n    import asyncio.streams", 1),
        ("from os import path", 1),
        ("from random import choice", 1),
        ("import random\nrandom.random()", 1),
        ("import random\ndef f(r: random.Random) -> float:\n    return r.random()", 0),
        ("from random import Random", 0),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio", 0),
        ("from . import time", 0),
    ],
)
def test_the_import_check_names_each_fault(source: str, fault_count: int) -> None:
    assert len(core_faults(source)) == fault_count


def test_cores_do_no_input_or_output() -> None:
    faults = [
        f"{path.relative_to(ROOT)} {fault}" for path in sources(*CORES) for fault in core_faults(path.read_text())
    ]
    assert faults == []


def test_cores_are_found() -> None:
    assert [core for core in CORES if not sources(core)] == []


# Cores without a unit file: interfaces and values without rules, and rules that a neighbouring file tests.
WITHOUT_UNIT_FILE: Final = {
    "broker/listener_facts.py": "values",
    "broker/faults.py": "interface",
    "federation/links/queue_client.py": "tests/federation/links/test_queue_link.py",
    "federation/links/topic_link.py": "tests/federation/links/test_link.py",
    "broker/publisher.py": "interface",
    "broker/session/draining.py": "tests/broker/session/test_group_queues.py",
    "broker/session/acks.py": "tests/broker/session/test_session.py",
    "broker/session/publishing.py": "tests/broker/test_wrappers.py",
    "broker/session/incoming.py": "tests/broker/session/test_session.py",
    "broker/routing/subscriber.py": "interface",
    "broker/server/layers.py": "interface",
    "federation/gossip/config.py": "values",
    "federation/gossip/delegate.py": "interface",
    "federation/gossip/errors.py": "values",
    "federation/serf/events.py": "values",
    "federation/stream/counters.py": "values",
    "federation/stream/effects.py": "tests/federation/stream/test_go_events.py",
    "federation/stream/go_client.py": "tests/federation/stream/test_go_streams.py",
    "federation/stream/go_server.py": "tests/federation/stream/test_go_streams.py",
    "federation/stream/go_state.py": "tests/federation/stream/test_go_streams.py",
    "federation/stream/receivers.py": "tests/federation/stream/test_receiver.py",
    "federation/stream/served_stream.py": "tests/federation/stream/test_direct_server.py",
    "federation/stream/state.py": "values",
}


def test_each_core_has_its_unit_file() -> None:
    cores = [path.relative_to(ROOT) for path in sources(*CORES) if path.name != "__init__.py"]
    missing = {str(core) for core in cores if not (ROOT / "tests" / core.with_name(f"test_{core.name}")).exists()}
    assert missing == set(WITHOUT_UNIT_FILE)
    assert [place for place in WITHOUT_UNIT_FILE.values() if "/" in place and not (ROOT / place).exists()] == []


def test_broker_does_not_know_the_federation_nor_the_pipeline() -> None:
    faults = [
        f"{path.relative_to(ROOT)} line {line}: imports {module}"
        for path in sources("broker")
        for line, module, name in imports(path.read_text())
        if module.split(".")[0] in ("federation", "pipeline")
    ]
    assert faults == []


# The format of the log and the generated code of its service. A Spark worker loads no shell of the broker.
PIPELINE_MAY_IMPORT: Final = (
    "broker.errors",
    "broker.codec",
    "broker.routing",
    "broker.event_log.block",
    "broker.api.pb",
    "broker.event_log.pb",
    "broker.event_log.records",
    "broker.event_log.selection",
    "broker.event_log.staged_rows",
    "broker.config.durations",
)


def test_the_pipeline_knows_cores_and_the_wire_of_the_broker() -> None:
    faults = [
        f"{path.relative_to(ROOT)} line {line}: imports {module}"
        for path in sources("pipeline")
        for line, module, name in imports(path.read_text())
        if module.split(".")[0] in ("broker", "federation")
        if not f"{module}.{name}".startswith(PIPELINE_MAY_IMPORT)
    ]
    assert faults == []


def test_modules_have_one_idea() -> None:
    long = {
        name: lines
        for name in tracked_files()
        if name.endswith(".py") and not is_generated(Path(name))
        if (lines := len((ROOT / name).read_text().splitlines())) > LINES_MAX
    }
    assert long == {}, f"more than {LINES_MAX} lines: two ideas in one?"


# Written so that this file does not hold what it looks for.
FOREIGN: Final = re.compile(
    "|".join(
        (
            r"/(?:work|farm|home/\w+|root)/",
            r"/tmp/[a-z]+lab",
            r"\.\./" + "shared",
            "pypi" + r"\.org",
            "python" + "hosted",
            r"registry\.npm" + "js",
            "deb" + r"\.debian\.org",
            "proxy" + r"\.golang",
            r"repo1?\.ma" + "ven",
        )
    )
)


def test_nothing_names_this_machine_or_a_registry() -> None:
    faults = []
    for name in tracked_files():
        data = (ROOT / name).read_bytes()
        if b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if FOREIGN.search(line):
                faults.append(f"{name}:{number}: {line.strip()[:100]}")
    assert faults == []
