"""The node that publishes the rows of a query. A query keeps it: only that node knows which batches it published.

A stream writes the node's name into its checkpoint folder, so that it finds the node again after a restart, whatever its
options say then.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pipeline.client import NodeClient
from pipeline.cluster import Cluster
from pipeline.durable import replace_text
from pipeline.errors import OptionError, PipelineError
from pipeline.options import SinkOptions

NODE_FILE: Final = "mqtt-sink.json"
NODE_PATIENCE_SECONDS: Final = 60.0  # a batch waits for its node, which may be restarted


def kept_node(options: SinkOptions) -> tuple[str, str]:
    """(name, address) of the node that publishes. Raises PipelineError.

    Of a stream the name is that of the checkpoint folder; the first call chooses it and writes it there.
    """
    cluster = Cluster(options.connection)
    try:
        file = _node_file(options)
        kept = read_node(file) if file is not None else ""
        if kept and options.node and kept != options.node:
            raise OptionError(
                "node",
                options.node,
                f"is not {kept}, which published the earlier batches of this query ({file}); "
                "to change the node give the query a checkpoint folder of its own",
            )
        name = kept or options.node
        if not name and options.job_id:
            name = _first_server(options)
        if not kept:
            members = cluster.ask()
            name = name or next(iter(members.nodes))
            known = members.nodes.keys() | members.away.keys()
            if name not in known:
                raise OptionError("node", name, f"is no member; there are {', '.join(sorted(known))}")
        members = cluster.wait_for({name}, NODE_PATIENCE_SECONDS)
        if file is not None and not kept:
            write_node(file, name)
        return name, members.nodes[name].address
    finally:
        cluster.close()


def _first_server(options: SinkOptions) -> str:
    """The node behind the first of `servers`: a batch write has no checkpoint, and its second run must find the same node.
    Raises NodeAway."""
    with NodeClient(options.connection.servers[0], options.connection, patience=NODE_PATIENCE_SECONDS) as client:
        return client.describe().node


def _node_file(options: SinkOptions) -> Path | None:
    """None where option `node` names the node, and a restart finds it there."""
    folder = urlsplit(options.checkpoint)
    if options.job_id or (options.node and folder.scheme not in ("", "file")):
        return None
    if not options.checkpoint:
        if options.node:
            return None
        raise OptionError("checkpointLocation", "", "is not given as an option of this query; give it, or option node")
    if folder.scheme not in ("", "file"):
        raise OptionError("node", "", f"is empty, and the checkpoint {options.checkpoint} is no folder of this machine")
    return Path(unquote(folder.path), NODE_FILE)


def read_node(file: Path) -> str:
    """The node's name; "" when the file is not there. Raises PipelineError."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("node"), str) or not found["node"]:
        raise PipelineError(f'{file} has {found!r}, and should have {{"node": NAME}}')
    return str(found["node"])


def write_node(file: Path, node: str) -> None:
    """On disk when the call returns. Raises PipelineError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps({"node": node}))
    except OSError as error:
        raise PipelineError(f"the checkpoint folder {file.parent} cannot be written: {error}") from None
