"""What a scan reports without options: which hosts, which windows, and what it says at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

import superhosts as sh
from commands import Run
from traffic import Frames, talk, write

SMALL = ["--memory", "1MiB", "--inner", "10.0.0.0/8"]


def crowd(*sizes: int) -> Frames:
    """Return traffic of one host for each number of peers: 10.0.0.1, 10.0.0.2 and so on."""
    return [frame for i, peers in enumerate(sizes) for frame in talk(f"10.0.0.{i + 1}", peers, step=1000)]


def found(ended: object) -> list[tuple[str, int]]:
    return [(row["host"], row["peers"]) for row in ended.rows]  # type: ignore[attr-defined]


def test_the_ten_largest_hosts_are_reported_however_small(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(*range(1, 16)))
    ended = run("scan", path, "--json", *SMALL)
    assert found(ended) == [(f"10.0.0.{peers}", peers) for peers in range(15, 5, -1)]
    shown = run("scan", path, *SMALL)
    assert "top 10 hosts, none of them with at least 1,024 peers" in shown.out


@pytest.mark.parametrize("exact", ["on", "off"])
def test_every_host_from_the_threshold_on_is_reported_beyond_ten(run: Run, tmp_path: Path, exact: str) -> None:
    sizes = [*range(1100, 1112), 500, 400]
    path = write(tmp_path / "a.pcap", crowd(*sizes))
    ended = run("scan", path, "--json", "--exact", exact, *SMALL)
    assert {row["host"] for row in ended.rows} == {f"10.0.0.{i}" for i in range(1, 13)}
    assert "12 hosts with at least 1,024 peers" in run("scan", path, "--exact", exact, *SMALL).out


@pytest.mark.parametrize("exact", ["on", "off"])
def test_hosts_below_the_threshold_fill_up_to_ten(run: Run, tmp_path: Path, exact: str) -> None:
    path = write(tmp_path / "a.pcap", crowd(3000, *range(200, 212)))
    ended = run("scan", path, "--exact", exact, "--json", *SMALL)
    assert len(ended.rows) == 10
    assert ended.rows[0]["host"] == "10.0.0.1"
    assert [row["peers"] for row in ended.rows] == sorted((row["peers"] for row in ended.rows), reverse=True)
    assert "top 10 hosts, 1 of them with at least 1,024 peers" in run("scan", path, "--exact", exact, *SMALL).out


def test_ten_hosts_over_all_parts(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(*range(1, 16)) + talk("2001:db8::7", 9))
    ended = run("scan", path, "--json", "--memory", "1MiB", "--inner", "10.0.0.0/8", "--inner", "2001:db8::/32")
    assert [row["host"] for row in ended.rows] == [
        *(f"10.0.0.{peers}" for peers in range(15, 8, -1)),
        "2001:db8::/64",
        "10.0.0.8",
        "10.0.0.7",
    ]


def test_the_python_interface_has_the_same_default(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(*range(1, 16)))
    (window,) = sh.scan(path, inner="10.0.0.0/8", memory="1MiB")
    assert [item.peers for item in window] == list(range(15, 5, -1))


def test_small_hosts_are_no_find(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(20, 30))
    assert run("scan", path, "--fail-on-find", *SMALL).status == 0
    assert run("scan", path, "--fail-on-find", "-t", 20, *SMALL).status == 1
    path = write(tmp_path / "b.pcap", crowd(1024, 30))
    assert run("scan", path, "--fail-on-find", *SMALL).status == 1


# A threshold that no host reaches


def test_the_largest_host_is_named_if_none_reaches_the_threshold(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(365, 30))
    ended = run("scan", path, "-t", 1024, *SMALL)
    assert "Z: none with 1,024 peers or more; largest: 10.0.0.1 with 365\n" in ended.out
    assert run("scan", path, "-t", 1024, "--json", *SMALL).out == ""


def test_a_window_without_hosts_has_no_largest_one(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", talk("192.0.2.1", 3))
    assert run("scan", path, *SMALL).out.endswith("Z: no hosts\n")
    assert run("scan", path, "-t", 5, *SMALL).out.endswith("Z: none with 5 peers or more\n")


# Top hosts


def test_top_is_complete_if_the_window_is_exact(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(15, 2, 1))
    ended = run("scan", path, "--top", 5, *SMALL)
    assert "top 3 hosts\n" in ended.out
    assert found(run("scan", path, "--top", 5, "--json", *SMALL)) == [
        ("10.0.0.1", 15),
        ("10.0.0.2", 2),
        ("10.0.0.3", 1),
    ]


def test_an_estimate_says_how_deep_it_looked(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(15))
    depth = "hosts with fewer than 16 peers cannot be listed: the window is estimated"
    ended = run("scan", path, "--top", 5, "--exact", "off", *SMALL)
    assert f"Z: none with 16 peers or more; {depth}\n" in ended.out
    assert depth in run("scan", path, "--exact", "off", *SMALL).out
    assert depth not in run("scan", path, "-t", 100, "--top", 5, "--exact", "off", *SMALL).out
    path = write(tmp_path / "b.pcap", crowd(200, 15))
    assert f"top 1 host; {depth}\n" in run("scan", path, "--top", 5, "--exact", "off", *SMALL).out
    assert depth not in run("scan", path, "--top", 1, "--exact", "off", *SMALL).out


def test_a_filter_lists_nothing_below_its_threshold(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(15))
    ended = run("scan", path, "--top", 5, "--detector", "filter", *SMALL)
    assert "hosts with fewer than 1,024 peers cannot be listed" in ended.out


def test_saved_sketches_say_how_deep_they_look(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", crowd(15))
    assert run("scan", path, "--save", tmp_path / "saved", "-q", *SMALL).status == 0
    ended = run("hosts", tmp_path / "saved", "--top", 5)
    assert "none with 16 peers or more; hosts with fewer than 16 peers cannot be listed" in ended.out
