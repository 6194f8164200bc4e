"""The page of metrics: name, type, labels and meaning of all that Prometheus can read."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.rpc.lane.traffic import Traffic
from tools.reference.sources import GAP, calls, modules, text_of

KINDS = {
    "Gauge": "gauge",
    "Counter": "counter",
    "Histogram": "histogram",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
}
PROCESSES = {
    "paceline_run_": "Servers",
    "paceline_server_": "Servers",
    "paceline_worker_": "Workers",
    "paceline_eval_": "Evaluator",
    "paceline_serve_": "`paceline serve`",
    "paceline_shard": "Sharder",
    "paceline_lane_": "The lane, in every process",
    "paceline_": "Every process",
}
HEAD = """# Metrics

Made by `make pages` from the code. Every process serves these at `/metrics`. [The
dashboard](docs/watch/grafana.md) shows them; it says which question each panel answers. A histogram
has the series `_bucket`, `_sum` and `_count`.
"""


@dataclass(frozen=True, order=True)
class Described:
    """A metric, as its definition says."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


def page() -> str:
    """The whole page; its links are from the repository's root."""
    found = sorted({*written(), *_of_the_lane()})
    lines = [HEAD]
    for title in dict.fromkeys(PROCESSES.values()):
        rows = [_row(one) for one in found if _process(one.name) == title]
        lines.append(
            f"\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return "".join(lines)


def written() -> Iterator[Described]:
    """What the code defines by a text, alone or through a helper that puts a prefix before it."""
    for _, tree in modules(KINDS):
        imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
        known = {name: ("", kind) for name, kind in KINDS.items() if name in imported}
        known |= dict(_helpers(tree, known))
        if known:
            for call, name, names in calls(tree, known):
                yield from _described(call, *known[name], names)


def _helpers(tree: ast.Module, known: dict[str, tuple[str, str]]) -> Iterator[tuple[str, tuple[str, str]]]:
    for helper in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        match helper.body:
            case [*_, ast.Return(ast.Call(ast.Name(kind), [ast.JoinedStr([ast.Constant(str(prefix)), _]), *_]))]:
                if kind in known:
                    yield helper.name, (prefix, known[kind][1])


def _described(call: ast.Call, prefix: str, kind: str, names: dict[str, ast.expr]) -> Iterator[Described]:
    name = text_of(call.args[0], names) if call.args else None
    text = text_of(call.args[1], names) if len(call.args) > 1 else None
    if name is None or text is None or GAP in name or not (prefix + name).startswith("paceline_"):
        return
    given: list[ast.expr] = [
        *call.args[2:],
        *(word.value for word in call.keywords if word.arg in ("labels", "labelnames")),
    ]
    labels = [label for one in given for label in _labels(one, names)] if kind else []
    full = prefix + name
    counts = kind == "counter" and not full.endswith("_total")
    yield Described(full + "_total" * counts, kind, tuple(labels), text)


def _labels(node: ast.expr, names: dict[str, ast.expr]) -> list[str]:
    if isinstance(node, ast.Name):
        return _labels(names[node.id], {}) if node.id in names else []
    if isinstance(node, (ast.Tuple, ast.List)):
        return [str(one.value) for one in node.elts if isinstance(one, ast.Constant)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _of_the_lane() -> Iterator[Described]:
    labels = {"paceline_lane_resets": ("direction", "code"), "paceline_lane_cut_offs": ("direction", "code")}
    for one in Traffic().collect():
        name = one.name + "_total" * (one.type == "counter")
        yield Described(name, one.type, labels.get(one.name, ()), one.documentation)


def _process(name: str) -> str:
    return next(title for prefix, title in PROCESSES.items() if name.startswith(prefix))


def _row(one: Described) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.name}` | {one.kind} | {labels} | {one.text}. |"
