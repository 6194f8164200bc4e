"""`python -m tools.dashboard [--check]`: writes the Grafana dashboard and the PrometheusRule, or names those that are stale."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tools.panels import ROWS, Panel

COMPONENTS = Path(__file__).resolve().parent.parent / "k8s" / "components"
DASHBOARD = COMPONENTS / "dashboard" / "dashboard.json"
ALERTS = COMPONENTS / "prometheus" / "alerts.yaml"
"""Not generated, as Prometheus reads it; the PrometheusRule holds the same groups."""
RULE = COMPONENTS / "monitoring" / "prometheus-rule.yaml"
UID = "paceline"


class Position(NamedTuple):
    """Where a panel is, in Grafana's grid of 24 columns; y counts from below the row's title."""

    panel: Panel
    x: int
    y: int
    width: int
    height: int


def places(row: tuple[Panel, ...]) -> list[Position]:
    """Numbers in one line, then graphs, three or four in a line."""
    graphs = [panel for panel in row if not panel.is_number]
    each = 4 if len(graphs) == 4 else 3
    lines = [
        [panel for panel in row if panel.is_number],
        *(graphs[at : at + each] for at in range(0, len(graphs), each)),
    ]
    found: list[Position] = []
    y = 0
    for line in filter(None, lines):
        width, height = 24 // len(line), 4 if line[0].is_number else 8
        found += [Position(panel, number * width, y, width, height) for number, panel in enumerate(line)]
        y += height
    return found


def dashboard() -> dict[str, Any]:
    """Grafana's JSON."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(_placed({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, y, 24, 1, panels))
        there = places(row)
        for panel, x, below, width, height in there:
            panels.append(_placed(_body(panel), x, y + 1 + below, width, height, panels))
        y += 1 + there[-1].y + there[-1].height
    return {
        "uid": UID,
        "title": "Paceline",
        "description": "One training run: is it learning, how fast, and what holds it up? Made by tools/dashboard.py.",
        "tags": ["paceline"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timepicker": {},
        "annotations": {"list": []},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    source: dict[str, Any] = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return [
        source | {"current": {}, "hide": 0, "refresh": 1, "regex": "", "options": []},
        _query_variable("run", "Run", "label_values(paceline_run_info, run)"),
        _query_variable("namespace", "Namespace", 'label_values(paceline_run_info{run="$run"}, namespace)')
        | {"includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}},
    ]


def _query_variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 2,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "current": {},
        "regex": "",
        "options": [],
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_REDUCED = {"values": False, "calcs": ["lastNotNull"], "fields": ""}


def _placed(body: dict[str, Any], x: int, y: int, width: int, height: int, others: list[Any]) -> dict[str, Any]:
    return {"id": len(others) + 1, "gridPos": {"x": x, "y": y, "w": width, "h": height}} | body


def _body(panel: Panel) -> dict[str, Any]:
    """A panel without its place."""
    is_now = panel.says == "name"  # what was before is none of its series
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": query.promql,
            "legendFormat": query.legend,
            "editorMode": "code",
            "range": not is_now,
            "instant": is_now,
            "format": "heatmap" if panel.kind == "heatmap" else "time_series",
        }
        for number, query in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.unit == "percentunit":
        defaults["max"] = 1
    if panel.is_signed:
        del defaults["min"]
    if panel.kind == "timeseries":
        fill, mode = (30, "normal") if panel.stacked else (0, "none")
        defaults["custom"] = {"fillOpacity": fill, "stacking": {"mode": mode, "group": "A"}, "lineWidth": 1}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": _REDUCED, "textMode": panel.says, "colorMode": "none", "graphMode": "none"}
    if panel.kind == "gauge":
        return {"reduceOptions": _REDUCED}
    if panel.kind == "bargauge":
        return {"reduceOptions": _REDUCED, "orientation": "horizontal", "displayMode": "basic"}
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "yAxis": {"unit": "none"},
            "color": {"mode": "scheme", "scheme": "Blues"},
            "cellGap": 1,
            "tooltip": {"mode": "single"},
        }
    return {"legend": {"showLegend": True, "placement": "bottom", "displayMode": "list"}, "tooltip": {"mode": "multi"}}


def rule() -> dict[str, Any]:
    """The alerts as the Prometheus operator wants them."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "paceline", "labels": {"app.kubernetes.io/name": "paceline", "release": "prometheus"}},
        "spec": yaml.safe_load(ALERTS.read_text()),
    }


def files() -> dict[Path, str]:
    """What belongs into each file."""
    head = "# Made from ../prometheus/alerts.yaml by tools/dashboard.py.\n"
    made = yaml.safe_dump(rule(), sort_keys=False, width=120, allow_unicode=True)
    return {DASHBOARD: json.dumps(dashboard(), indent=1) + "\n", RULE: head + made}


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        for path, text in files().items():
            path.write_text(text)
    elif stale := [path.name for path, text in files().items() if not path.exists() or path.read_text() != text]:
        sys.exit(f"Stale: {', '.join(stale)}. Run: make docs")
