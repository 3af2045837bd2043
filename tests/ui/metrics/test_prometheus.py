"""A real Prometheus server scrapes a real command, and takes the rules and the queries of the dashboard."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from needs import needed
from processes import Node, ending, free_port
from scraping import ask, endpoint
from traffic import three_windows, write
from ui.metrics.test_dashboard import RULES, expressions
from waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server that scrapes a watch."""
    program, folder = needed("prometheus", "SUPERHOSTS_NEED_PROMTOOL"), tmp_path_factory.mktemp("prometheus")
    (folder / "captures").mkdir()
    write(folder / "captures" / "a.pcap", three_windows())
    shutil.copy(RULES, folder)
    watch = Node(folder / "watch.log", "watch", str(folder / "captures"), "--json", "--metrics", ":0")
    with ending(watch):
        watch.start()
        place = endpoint(watch).removeprefix("http://")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [RULES.name],
            "scrape_configs": [{"job_name": "superhosts", "static_configs": [{"targets": [place]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        own = f"127.0.0.1:{free_port()}"
        options = {"config.file": "prometheus.yml", "storage.tsdb.path": "data", "web.listen-address": own}
        command = [program, *(f"--{name}={value}" for name, value in options.items())]
        with (folder / "prometheus.log").open("wb") as log:
            server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            log_text = (folder / "prometheus.log").read_text
            wait_for(lambda: server.poll() is not None or answers(own), log_text)
            yield f"http://{own}"
        finally:
            server.terminate()
            server.wait()


def answers(place: str) -> bool:
    try:
        return ask(f"http://{place}/-/ready").status == 200
    except OSError:
        return False


def query(prometheus: str, expression: str) -> list[dict[str, Any]]:
    answer = ask(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    found = json.loads(answer.text)
    assert found["status"] == "success", (expression, found)
    return found["data"]["result"]  # type: ignore[no-any-return]


def test_it_scrapes_the_metrics(prometheus: str) -> None:
    (built,) = wait_for(lambda: query(prometheus, "superhosts_build_info"), "a scrape")
    assert built["metric"]["command"] == "watch"
    assert built["metric"]["job"] == "superhosts"
    wait_for(lambda: [row["value"][1] for row in query(prometheus, "superhosts_windows_closed_total")] == ["2"], "two")
    assert query(prometheus, "up")[0]["value"][1] == "1"


def test_it_takes_the_rules(prometheus: str) -> None:
    def states() -> list[tuple[str, str]]:
        groups = json.loads(ask(f"{prometheus}/api/v1/rules").text)["data"]["groups"]
        return [(rule["health"], rule.get("lastError", "")) for group in groups for rule in group["rules"]]

    wait_for(lambda: states() and all(health != "unknown" for health, _ in states()), "the rules are evaluated")
    assert set(states()) == {("ok", "")}


def test_it_answers_every_query_of_the_dashboard(prometheus: str) -> None:
    wait_for(lambda: query(prometheus, "superhosts_build_info"), "a scrape")
    for expression in expressions():
        query(prometheus, expression.replace("$instance", ".*"))
