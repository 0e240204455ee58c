"""The picture of docs/architecture.md: packages and the modules beside them, drawn from their imports.

A box is a folder, or the modules of one row that stand beside folders. Rows are ordered so that as few imports as possible go
upwards; those that do are drawn in red with their number. Of the others an arrow that follows from two others is left out.
Generated code has no box.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

COLOURS: Final = {"broker": "#dbe9f6", "federation": "#e2f0d9", "pipeline": "#fdebd0", "gmqttctl": "#eadcf4"}
OPENED: Final = ("broker", "federation")  # their modules stand in several rows; the other packages are one box each
BOX_WIDTH, LINE_HEIGHT, GAP_X, GAP_Y, MARGIN = 180, 15, 18, 34, 16

Weights = Counter[tuple[str, str]]  # (importer, imported) -> number of imports
Graph = dict[str, set[str]]


def read_imports(root: Path) -> tuple[list[str], Weights]:
    """The names of boxes (broker.codec, or broker.message for a module), and the imports between them."""
    names: list[str] = []
    found: list[tuple[str, ast.Module]] = []
    for top in COLOURS:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if "pb" in parts or parts[-1] == "__init__":
                continue
            name = box_of(".".join(parts))
            found.append((name, ast.parse(path.read_text(encoding="utf-8"))))
            if name not in names:
                names.append(name)
    weights: Weights = Counter()
    for name, tree in found:
        for module in imported(tree):
            other = box_of(module)
            if other != name and other in names:
                weights[name, other] += 1
    return names, weights


def box_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] in OPENED else 1])


def imported(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def downward(names: list[str], weights: Weights) -> Weights:
    """The imports without those that go upwards.

    Each box in turn moves to the place where the fewest imports go upwards, as long as that helps.
    """
    order = list(names)

    def upward(at: int, name: str) -> int:
        above = set(order[:at])
        return sum(n for (a, b), n in weights.items() if (a == name and b in above) or (b == name and a in order[at:]))

    moved = True
    while moved:
        moved = False
        for name in names:
            before = order.index(name)
            order.remove(name)
            best = min(range(len(order) + 1), key=lambda at: (upward(at, name), at != before))
            moved = moved or upward(best, name) < upward(before, name)
            order.insert(best, name)
    place = {name: number for number, name in enumerate(order)}
    return Counter({(a, b): count for (a, b), count in weights.items() if place[a] < place[b]})


def rows_of(names: list[str], down: Weights) -> list[list[str]]:
    """The boxes in rows, the lowest row first: each stands above everything that it imports."""
    below: Graph = {name: {b for a, b in down if a == name} for name in names}
    height: dict[str, int] = {}

    def height_of(name: str) -> int:
        if name not in height:
            height[name] = 1 + max((height_of(other) for other in below[name]), default=-1)
        return height[name]

    rows: dict[int, list[str]] = defaultdict(list)
    for name in names:
        rows[height_of(name)].append(name)
    return [rows[at] for at in sorted(rows)]


def is_folder(root: Path, name: str) -> bool:
    return root.joinpath(*name.split(".")).is_dir()


def boxes_of(root: Path, rows: list[list[str]]) -> tuple[list[list[list[str]]], dict[str, str]]:
    """(rows of boxes, name -> first name of its box). Modules of one package in one row share a box."""
    drawn: list[list[list[str]]] = []
    owner: dict[str, str] = {}
    for row in rows:
        boxes: list[list[str]] = []
        for top in COLOURS:
            of_top = [name for name in row if name.split(".")[0] == top]
            modules = [name for name in of_top if not is_folder(root, name)]
            boxes += [[name] for name in of_top if name not in modules]
            if modules:
                boxes.append(modules)
        for box in boxes:
            owner.update(dict.fromkeys(box, box[0]))
        drawn.append(boxes)
    return drawn, owner


def reduced(edges: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The edges without those that follow from others."""
    graph: Graph = defaultdict(set)
    for a, b in edges:
        graph[a].add(b)

    def reaches(start: str, end: str) -> bool:
        todo, seen = [start], {start}
        while todo:
            for name in graph.get(todo.pop(), ()):
                if name == end:
                    return True
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        return False

    return sorted((a, b) for a, b in edges if not any(reaches(other, b) for other in graph[a] if other != b))


def picture(root: Path) -> str:
    """The SVG."""
    names, weights = read_imports(root)
    down = downward(names, weights)
    drawn, owner = boxes_of(root, rows_of(names, down))
    width = max(len(row) for row in drawn) * (BOX_WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    place: dict[str, tuple[float, float, float]] = {}  # centre, top, bottom
    shapes: list[str] = []
    y = float(MARGIN)
    for row in reversed(drawn):
        x = (width - len(row) * (BOX_WIDTH + GAP_X) + GAP_X) / 2
        texts = [lines_of(root, box) for box in row]
        tall = max(len(lines) for lines in texts) * LINE_HEIGHT + 12
        for box, lines in zip(row, texts, strict=True):
            high = len(lines) * LINE_HEIGHT + 12
            top = y + (tall - high) / 2
            shapes.append(
                f'<rect x="{x:.0f}" y="{top:.0f}" width="{BOX_WIDTH}" height="{high}" rx="4" '
                f'fill="{COLOURS[box[0].split(".")[0]]}" stroke="#555"/>'
            )
            for number, line in enumerate(lines):
                at = top + 17 + number * LINE_HEIGHT
                shapes.append(
                    f'<text x="{x + BOX_WIDTH / 2:.0f}" y="{at:.0f}" text-anchor="middle">{escape(line)}</text>'
                )
            place[box[0]] = (x + BOX_WIDTH / 2, top, top + high)
            x += BOX_WIDTH + GAP_X
        y += tall + GAP_Y
    arrows: list[str] = []
    for a, b in reduced({(owner[a], owner[b]) for a, b in down if owner[a] != owner[b]}):
        arrows.append(arrow((place[a][0], place[a][2]), (place[b][0], place[b][1]), "#777", "arrow"))
    upward: Counter[tuple[str, str]] = Counter()
    for (a, b), count in (weights - down).items():
        upward[owner[a], owner[b]] += count
    for (a, b), count in sorted(upward.items()):
        start, end = (place[a][0] + 30, place[a][1]), (place[b][0] + 30, place[b][2])
        arrows.append(arrow(start, end, "#c33", "upward"))
        arrows.append(f'<text x="{start[0] + 4:.0f}" y="{start[1] - 6:.0f}" fill="#c33">{count}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {y - GAP_Y + MARGIN:.0f}" '
        'font-family="sans-serif" font-size="12">'
    )
    markers = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for name, colour in (("arrow", "#777"), ("upward", "#c33"))
    )
    comment = "<!-- Drawn from the imports by scripts/build_docs. -->"
    return "\n".join(
        [
            head,
            comment,
            f"<defs>{markers}</defs>",
            '<rect width="100%" height="100%" fill="white"/>',
            *arrows,
            *shapes,
            "</svg>",
            "",
        ]
    )


def lines_of(root: Path, box: list[str]) -> list[str]:
    """A folder's path, or the names of modules, two in a line."""
    if is_folder(root, box[0]):
        return [box[0].replace(".", "/") + "/"]
    names = [name.split(".")[-1] for name in box]
    top = box[0].split(".")[0]
    return [f"{top}/", *(" ".join(names[at : at + 2]) for at in range(0, len(names), 2))]


def arrow(start: tuple[float, float], end: tuple[float, float], colour: str, marker: str) -> str:
    (x1, y1), (x2, y2) = start, end
    bend = (y2 - y1) / 2
    return (
        f'<path d="M{x1:.0f} {y1:.0f} C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}" '
        f'fill="none" stroke="{colour}" marker-end="url(#{marker})"/>'
    )
