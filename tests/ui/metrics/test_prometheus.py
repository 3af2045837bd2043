"""A real Prometheus server scrapes a real command, and takes the rules and the queries of the dashboard."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
import yaml

from needs import needed
from processes import Node, ending, free_port
from scraping import ask, endpoint
from traffic import three_windows, write
from ui.metrics.test_dashboard import RULES, expressions
from waiting import wait_for


def answers(server: str) -> bool:
    try:
        return ask(f"{server}/-/ready").status == 200
    except OSError:
        return False


def query(server: str, expression: str) -> list[dict[str, Any]]:
    answer = ask(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    found = json.loads(answer.text)
    assert found["status"] == "success", (expression, found)
    return found["data"]["result"]


def health(server: str) -> set[tuple[str, str]]:
    groups = json.loads(ask(f"{server}/api/v1/rules").text)["data"]["groups"]
    return {(rule["health"], rule.get("lastError", "")) for group in groups for rule in group["rules"]}


@pytest.mark.slow
def test_a_server_scrapes_a_watch_and_takes_rules_and_queries(tmp_path: Path) -> None:
    program, own = needed("prometheus", "SUPERHOSTS_NEED_PROMTOOL"), f"127.0.0.1:{free_port()}"
    (tmp_path / "captures").mkdir()
    write(tmp_path / "captures" / "a.pcap", three_windows())
    shutil.copy(RULES, tmp_path)
    watch, server = (
        Node(tmp_path / "log", "watch", str(tmp_path / "captures"), "--json", "--metrics", ":0"),
        f"http://{own}",
    )
    with ending(watch):
        place = endpoint(watch.start()).removeprefix("http://")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [RULES.name],
            "scrape_configs": [{"job_name": "superhosts", "static_configs": [{"targets": [place]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        options = {"config.file": "prometheus.yml", "storage.tsdb.path": "data", "web.listen-address": own}
        command = [program, *(f"--{name}={value}" for name, value in options.items())]
        with (tmp_path / "words").open("wb") as words, subprocess.Popen(command, cwd=tmp_path, stderr=words) as process:
            try:
                wait_for(lambda: answers(server), (tmp_path / "words").read_text)
                (built,) = wait_for(lambda: query(server, "superhosts_build_info"), "a scrape")
                closed = "superhosts_windows_closed_total"
                wait_for(lambda: [row["value"][1] for row in query(server, closed)] == ["2"], "both windows")
                wait_for(lambda: "unknown" not in {each for each, _ in health(server)}, "the rules are evaluated")
                assert (built["metric"]["command"], built["metric"]["job"]) == ("watch", "superhosts")
                assert health(server) == {("ok", "")}
                for expression in expressions():
                    query(server, expression.replace("$instance", ".*"))
            finally:
                process.terminate()
