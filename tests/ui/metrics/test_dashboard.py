"""The dashboard and the alerting rules are valid, and about metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from needs import needed
from places import ROOT

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "superhosts.json").read_text(encoding="utf-8"))
CASES = Path(__file__).parent / "rules_test.yml"
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# The page lists what the endpoint has: test_endpoint.py compares them.
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
KINDS = dict(re.findall(r"(?m)^\| `(superhosts_\w+)` \| (\w+) \|", PAGE))
SAMPLES = {
    f"{name}{ending}"
    for name, kind in KINDS.items()
    for ending in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return queries + [rule["expr"] for rule in rules()]


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bsuperhosts_\w+", text))


def test_every_metric_in_dashboard_and_rules_exists() -> None:
    named = set().union(*map(metrics_in, expressions()))
    assert len(named) > 30
    assert named - SAMPLES == set()


def test_counters_are_rates_and_gauges_are_not() -> None:
    for text in expressions():
        for name in metrics_in(text):
            rated = re.search(rf"(?:rate|increase)\({name}(?:\{{[^}}]*\}})?\[", text) is not None
            is_counter = name.endswith(("_total", "_bucket"))
            assert rated == is_counter, text


def test_what_operators_must_know_has_a_rule() -> None:
    about = {
        "superhosts_site_reporting",  # a site is missing
        "superhosts_dropped_total",  # drops
        "superhosts_destination_queued",  # a queue grows
        "superhosts_ready",  # a hub is not ready
        "superhosts_last_window_closed_timestamp_seconds",  # a window is late
    }
    assert about <= set().union(*(metrics_in(rule["expr"]) for rule in rules()))


def test_labels_in_the_texts_of_rules_and_panels_exist() -> None:
    known = {"instance", *re.findall(r"`(\w+)`", PAGE)}
    for rule in rules():
        texts = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= known
    for panel in PANELS:
        for target in panel["targets"]:
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known


def test_panels_ask_the_chosen_source_about_the_chosen_programs() -> None:
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert names == {"datasource", "instance"}
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert '{instance=~"$instance"}' in target["expr"]


def test_panels_lie_side_by_side() -> None:
    """None covers another, and none is wider than the page."""
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(at["x"] + x, at["y"] + y) for at in places for x in range(at["w"]) for y in range(at["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def promtool(*arguments: str, folder: Path) -> None:
    program = needed("promtool", "SUPERHOSTS_NEED_PROMTOOL")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES), folder=RULES.parent)


def test_rules_fire_when_they_should(tmp_path: Path) -> None:
    for file in (RULES, CASES):
        shutil.copy(file, tmp_path)
    promtool("test", "rules", CASES.name, folder=tmp_path)


def test_every_rule_has_a_case() -> None:
    cases = CASES.read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules() if rule["alert"] not in cases] == []
