"""Pictures of rollups and of the matrix, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

BARS: Final = 12  # filters in the picture of a matrix
LINES: Final = 8  # prefixes in the picture of a rollup; the others are one line
LABEL_MAX: Final = 40  # letters
UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
# Topics may hold dollar signs, which are no formulas here; texts of an SVG stay texts.
SETTINGS: Final[dict[Any, Any]] = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "gmqttd"}


def shown_bytes(count: float) -> str:
    """Three digits and a unit: 12.3 MB."""
    size, unit = next((each for each in UNITS if count >= each[0]), UNITS[-1])
    return f"{count / size:.3g} {unit}"


def label(text: str) -> str:
    return text if len(text) <= LABEL_MAX else f"{text[: LABEL_MAX - 1]}…"


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg, each in one step."""
    paths = []
    for kind in ("png", "svg"):
        path = stem.with_suffix(f".{kind}")
        part = path.with_name(f".{path.name}")
        with mpl.rc_context(SETTINGS):
            figure.savefig(part, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
        part.replace(path)
        paths.append(path)
    return paths


def draw_matrix(nodes: Iterable[str], links: pd.DataFrame, filters: pd.DataFrame) -> Figure:
    """Bytes from each node to each node, and the filters that draw most over links.

    `links` has source, target and bytes; `filters` has filter, target and bytes.
    """
    with mpl.rc_context(SETTINGS):
        nodes = sorted({*nodes, *links["source"], *links["target"]})
        table = links.pivot_table(index="source", columns="target", values="bytes", aggfunc="sum", fill_value=0.0)
        table = table.reindex(index=nodes, columns=nodes, fill_value=0.0)
        figure = Figure(figsize=(12, 5), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.imshow(table.to_numpy(float), cmap="Blues", vmin=0.0)
        names = [label(node) for node in nodes]
        left.set_xticks(range(len(nodes)), names, rotation=45, ha="right")
        left.set_yticks(range(len(nodes)), names)
        left.set_xlabel("receivers at")
        left.set_ylabel("published at")
        left.set_title("bytes between nodes (diagonal: stays on its node)")
        half = table.to_numpy(float).max(initial=0.0) / 2
        for row, source in enumerate(nodes):
            for column, target in enumerate(nodes):
                value = float(table.loc[source, target])
                if value:
                    colour = "white" if value > half else "black"
                    left.text(column, row, shown_bytes(value), ha="center", va="center", color=colour)
        top = filters.nlargest(BARS, "bytes")
        bars = [f"{label(name)} at {label(node)}" for name, node in zip(top["filter"], top["target"], strict=True)]
        right.barh(range(len(top)), top["bytes"])
        right.set_yticks(range(len(top)), bars)
        right.invert_yaxis()
        right.xaxis.set_major_formatter(lambda count, _: shown_bytes(count))
        right.set_xlim(left=0.0)
        right.set_title(
            "filters that carry most between nodes" if len(top) else "no filter carries anything between nodes"
        )
    return figure


def draw_rollup(rows: pd.DataFrame) -> Figure:
    """Messages of each window and prefix over time, and the median time between messages of a device.

    `rows` has start, prefix, messages and gap_median_us, as `rollup.merge` makes them.
    """
    with mpl.rc_context(SETTINGS):
        largest = rows.groupby("prefix")["messages"].sum().nlargest(LINES).index
        shown = rows.assign(prefix=rows["prefix"].where(rows["prefix"].isin(largest), "other"))
        counts = shown.pivot_table(index="start", columns="prefix", values="messages", aggfunc="sum", fill_value=0)
        gaps = shown[shown["prefix"] != "other"].pivot_table(index="start", columns="prefix", values="gap_median_us")
        figure = Figure(figsize=(12, 7), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        for number, prefix in enumerate(counts.columns):
            colour = f"C{number}"
            top.plot(counts.index, counts[prefix], colour, marker=".", label=label(prefix))
            if prefix in gaps:
                bottom.plot(gaps.index, gaps[prefix].astype(float) / 1e6, colour, marker=".")
        top.set_title("messages by topic prefix")
        top.set_ylabel("messages in a window")
        bottom.set_ylabel("median gap of a device, s")
        bottom.set_xlabel("start of the window, UTC")
        if len(counts.columns):
            figure.legend(loc="outside right upper", fontsize="small")
        figure.autofmt_xdate()
    return figure
