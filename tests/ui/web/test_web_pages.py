"""The pages of the dashboard in a real browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import superhosts as sh
from browsing import DESK, PHONE, Visit, axe_source, chromium, violations
from cli.test_hosts import NOON, save
from commands import Run
from dashboards import KNOWN, LENGTH, SITES, Shown, report, row, rows_of, seen_at, serving
from superhosts.cli.usage.sketches import Web
from superhosts.cli.web import folder_view
from superhosts.core.pairs import Part
from superhosts.core.results import Selection
from superhosts.fleet.sites import WRONG
from superhosts.ui.board import MOST_WINDOWS, Board
from superhosts.ui.folder import PartState, SketchFolder
from superhosts.ui.top.hosts import filtered, host_rows
from superhosts.ui.view import View
from superhosts.ui.web.access import Access
from superhosts.ui.web.answers import LONGEST_WHY
from superhosts.ui.web.server import WebServer
from waiting import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = pytest.mark.slow

SECTIONS = ("", "ask", "sites", "alerts", "accuracy", "host/10.2.7.66")
MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    made = Shown(tmp_path)
    yield made
    made.close()


@pytest.fixture
def web(shown: Shown) -> Iterator[WebServer]:
    with serving(shown.view) as served:
        yield served


@pytest.fixture
def visit(browser: BrowserContext, web: WebServer) -> Iterator[Visit]:
    made = Visit(browser, web.url)
    yield made
    made.close()


@contextmanager
def showing(browser: BrowserContext, view: View) -> Iterator[Visit]:
    with serving(view) as web:
        made = Visit(browser, web.url)
        yield made
        made.close()


def opened(visit: Visit) -> Page:
    page = visit.open()
    page.wait_for_selector(".hosts tbody a")
    return page


def hosts(page: Page) -> list[str]:
    return page.locator(".hosts tbody a").all_inner_texts()


def names(shown: Shown) -> list[str]:
    newest = shown.board.newest
    return [str(each["host"]) for each in newest.rows]


def test_the_first_page_shows_the_newest_window(visit: Visit, shown: Shown) -> None:
    page = opened(visit)
    assert hosts(page) == names(shown)
    assert page.inner_text("h1") == f"{len(names(shown))} super hosts"
    assert "13:55 – 14:00 UTC" in page.inner_text(".time")
    assert page.locator("canvas").count() == 2
    page.wait_for_selector(".link.up")
    assert page.inner_text("#link") == "Live"
    first = page.locator(".hosts tbody tr").first
    assert first.locator("svg rect.range").count() == 1
    assert "resolver-1" in first.inner_text()
    label = page.locator(".plot").first.get_attribute("aria-label")
    assert label.startswith("Super hosts in 24 windows: between")


def test_only_hosts_with_enough_peers_are_super_hosts(browser: BrowserContext, tmp_path: Path, run: Run) -> None:
    """The capture of the README, whose largest hosts are shown, too. It is of another year."""
    capture = Path(__file__).parents[2] / "first_hour" / "captures" / "office.pcap.gz"
    alerts = tmp_path / "alerts.sqlite"
    run("scan", capture, "--inner", "private", "--save", tmp_path, "--alerts", alerts, "--quiet")
    view = folder_view(tmp_path, Web(folder=tmp_path, alerts=alerts))
    view.clock, view.is_live = lambda: 1_772_442_600.0 + 50 * 86400.0, True  # as if windows were added
    view.start_filling(lambda _: None, follow=False)
    wait_for(lambda: len(view.windows()) == 2, view.summary)
    with showing(browser, view) as visit:
        page = visit.open()
        page.wait_for_selector(".link.up")
        assert len(hosts(page)) > 2
        assert (page.inner_text("h1"), page.inner_text("#link")) == ("2 super hosts", "Connected")
        told = page.inner_text(".time")
        assert told.startswith("2 Mar 2026, 09:05 – 09:10 UTC, ended 50 d ago · top ")
        assert " hosts, 2 with at least 1,024 peers" in told
        assert page.locator("caption").inner_text().startswith("Largest hosts, 2 Mar 2026")
        marked = page.locator(".hosts tbody tr:has(.mark)")
        assert [each.split()[:4] for each in marked.all_inner_texts()] == [
            ["10.20.0.80", "alert", "new", "2,600"],
            ["10.20.4.17", "alert", "new", "1,900"],
        ]
        assert "Peers (exact)" in page.inner_text(".hosts thead")
        graph = page.locator(".plot").first.get_attribute("aria-label")
        assert graph == "Super hosts in 2 windows: between 0 and 2, 2 in the newest."
        page.get_by_role("button", name="Earlier window").click()
        page.wait_for_selector("text=0 super hosts")
        assert "none with at least 1,024 peers" in page.inner_text(".time")
        page = visit.open("host/10.20.4.17")
        page.wait_for_selector("text=All windows")
        assert _fact(page, "Super host in") == "1 window of 2 known"
        assert _fact(page, "Peers, newest window") == "1,900 exact"
        assert page.inner_text(".history").split("\n") == ["2 Mar 2026, 09:10", "opened", "many-peers"]
        rows = page.locator("section:has(caption:text('All windows')) tbody tr").all_inner_texts()
        assert [each.split("\t")[1:] for each in rows] == [
            ["1,900", "exact", "super host"],
            ["0", "–", "below the threshold"],
        ]
        page = visit.open("alerts")
        page.wait_for_selector("text=2 open, 0 closed, 0 mutes")
        page.wait_for_selector("text=Nothing is muted.")
        assert page.locator("main caption").inner_text() == "Open: 2 alerts"
        page = visit.open("ask")
        page.wait_for_selector(
            "text=/^2 hosts with at least 1,024 peers. 2 Mar 2026, 09:00 – 09:10 UTC, from 2 sketches/"
        )
        assert page.locator("select option:checked").inner_text() == "The newest hour"
        page = visit.open("accuracy")
        page.wait_for_selector("text=All peers of the newest window were counted exactly.")
        page.wait_for_selector("text=/^Counted exactly: 5,428 distinct pairs[.]$/")


def test_the_largest_hosts_alone_are_no_super_hosts(browser: BrowserContext) -> None:
    view = View("watch local", Board(), lambda: Selection(top=2))
    view.board.write(report(1, [row("10.0.0.1", 7, 1), row("10.0.0.2", 5, 1)], threshold=None))
    with showing(browser, view) as visit:
        page = visit.open()
        page.wait_for_selector("text=2 largest hosts")
        assert "Super" not in page.inner_text("main")


def test_a_window_is_live_until_the_next_ones_are_overdue(visit: Visit, shown: Shown) -> None:
    late, clock = 0.0, shown.view.clock
    shown.view.clock = lambda: clock() + late
    page = visit.open()
    page.wait_for_selector("#link:text-is('Live')")
    assert "ended" not in page.inner_text(".time")
    late = 86400.0
    page = visit.open()
    page.wait_for_selector("#link:text-is('Connected')")
    assert "ended 24 h ago" in page.inner_text(".time")
    late, shown.next = 0.0, shown.next + 288  # the same time
    shown.add()
    page.wait_for_selector("#link:text-is('Live')")
    page.wait_for_selector(".time:not(:has-text('ended'))")


def test_only_what_is_missing_is_a_warning(visit: Visit, shown: Shown) -> None:
    shown.add(notes=["3 of 3 sites"])
    page = opened(visit)
    assert page.locator(".notice").count() == 0
    sites = {"sites": SITES[:2], "missing": SITES[2:], "refused": {"lon": "it is not known here"}}
    shown.add(**sites, revision=2, notes=["2 of 3 sites: missing nyc; refused lon (it is not known here), revision 2"])
    page.wait_for_selector(".notice")
    assert page.locator(".notice").all_inner_texts() == [
        "Missing in this window: nyc",
        "refused lon: it is not known here",
        "Revision 2: this window was reported before, with less.",
    ]


def test_a_new_window_appears_and_nothing_jumps(visit: Visit, shown: Shown) -> None:
    page = opened(visit)
    page.get_by_role("button", name="Host", exact=True).click()  # sorted by host
    page.fill("#filter", "10.")
    page.locator(".hosts tbody a").nth(20).focus()
    focused, before = page.locator(":focus").inner_text(), page.evaluate("() => scrollY")
    assert before > 0
    shown.add([*rows_of(23), row("10.200.0.1", 90_000, 24)])
    page.wait_for_selector("text=10.200.0.1")
    assert page.evaluate("() => scrollY") == before
    assert page.locator(":focus").inner_text() == focused
    assert page.input_value("#filter") == "10."
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Host")
    assert "14:00 – 14:05" in page.inner_text(".time")
    assert "new window" in page.inner_text("#announcer")


def test_a_link_that_is_pressed_while_a_window_comes_is_followed(visit: Visit, shown: Shown) -> None:
    page = visit.open()
    link = page.wait_for_selector(".hosts tbody a")
    host, place = link.inner_text(), link.bounding_box()
    page.mouse.move(place["x"] + 5, place["y"] + place["height"] / 2)
    page.mouse.down()
    shown.add([*rows_of(23), row("10.200.0.1", 90_000, 24)])
    page.wait_for_selector("text=14:00 – 14:05 UTC")
    assert page.locator("text=10.200.0.1").count() == 0
    page.mouse.up()
    page.wait_for_selector("h1.address")
    assert page.inner_text("h1.address") == host
    page.go_back()
    page.wait_for_selector("text=10.200.0.1")


def test_an_older_window_stays_while_new_ones_come(visit: Visit, shown: Shown) -> None:
    page = opened(visit)
    page.get_by_role("button", name="Earlier window").click()
    page.wait_for_selector("text=13:50 – 13:55 UTC")
    shown.add()
    page.wait_for_selector('.plot[aria-label^="Super hosts in 25 windows"]')
    assert "13:50 – 13:55" in page.inner_text(".time")
    page.get_by_role("button", name="Latest").click()
    page.wait_for_selector("text=14:00 – 14:05 UTC")
    page.locator(".plot").first.click(position={"x": 70, "y": 60})  # the first bars
    page.wait_for_selector("text=/12:[01][05] – 12:[01][05] UTC/")
    page.reload()
    page.wait_for_selector("text=/12:[01][05] – 12:[01][05] UTC/")  # the address names the window


def test_sorting_and_filtering(visit: Visit, shown: Shown) -> None:
    page = opened(visit)
    page.get_by_role("button", name="Peers").click()
    assert hosts(page) == [str(each["host"]) for each in sorted(_rows(shown), key=lambda each: each["peers"])]
    page.fill("#filter", "resolver")
    assert hosts(page) == ["10.0.0.1"]
    assert f"1 of {len(names(shown))} hosts" in page.inner_text(".tally")
    page.fill("#filter", "10.1.0.0/16")
    assert hosts(page) == ["10.1.4.20", "10.1.9.140"]
    page.fill("#filter", " 10.1.0.0/16  CACHE ")
    assert hosts(page) == ["10.1.9.140"]
    page.fill("#filter", "nothing like that")
    assert "No host matches" in page.inner_text(".hosts tbody")


def test_the_sites_of_hosts(visit: Visit, shown: Shown) -> None:
    page = opened(visit)
    scanner = page.locator(".hosts tbody tr:has-text('10.2.7.66')")
    assert scanner.locator(".seen").inner_text() == "ams, fra, nyc"
    page.get_by_role("button", name="Sites").click()
    page.get_by_role("button", name="Sites").click()
    assert hosts(page)[0] == "10.2.7.66"  # the only one that three sites have seen
    page.fill("#filter", "nyc")
    assert hosts(page) == ["10.2.7.66"]
    page.locator(".hosts tbody a").click()
    table = page.locator("section:has(caption:text('Sites, newest window'))")
    table.wait_for()
    rows = [each.split() for each in table.locator("tbody tr").all_inner_texts()]
    assert rows == [
        ["ams", "10,046", "9,644", "–", "10,448"],
        ["fra", "6,509", "6,249", "–", "6,769"],
        ["nyc", "2,547", "2,445", "–", "2,649"],
    ]
    assert table.locator("svg rect.range").count() == 3
    assert "3 sites" in page.inner_text(".facts")


def label_of(page: Page, number: int = 0) -> str:
    return str(page.locator(".plot").nth(number).get_attribute("aria-label"))


def test_graphs_show_patterns_and_the_largest_hosts_of_the_time_that_is_chosen(visit: Visit, shown: Shown) -> None:
    page = opened(visit)
    legend = page.locator(".legend").first.inner_text().split("\n")
    newest = shown.view.windows()[-1]["patterns"]
    assert " ".join(legend).replace("no pattern", "") != ""
    for name, number in newest.items():
        assert legend[legend.index(name or "no pattern") + 1] == str(number)
    page.wait_for_selector(".legend a")
    lines = page.locator(".legend").nth(1).locator("a").all_inner_texts()
    assert lines[:2] == ["10.0.0.1", "10.2.7.66"]
    assert len(lines) == 5
    assert label_of(page, 1).startswith("Peers of the largest hosts in 24 windows. In the newest, 10.0.0.1 has 2")
    page.get_by_role("button", name="1 h", exact=True).click()
    assert label_of(page).startswith("Super hosts in 12 windows")
    page.wait_for_selector('.plot[aria-label^="Peers of the largest hosts in 12 windows"]')
    page.get_by_role("button", name="All", exact=True).click()
    box = page.locator(".u-over").first.bounding_box()
    assert page.get_by_role("button", name="7 d", exact=True).count() == 0  # it would show all
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40, steps=5)
    page.mouse.up()
    page.wait_for_selector(
        '.plot[aria-label^="Super hosts in 7 windows"], .plot[aria-label^="Super hosts in 6 windows"]'
    )
    assert "13:55 – 14:00" in page.inner_text(".time")  # a brush chooses no window
    page.get_by_role("button", name="show the time before").click()
    assert label_of(page).startswith("Super hosts in 24 windows")


def test_the_table_tells_changes_marks_and_ports(visit: Visit, shown: Shown) -> None:
    scanner, before = (
        next(each["peers"] for each in shown.view.window(*span)["rows"] if each["host"] == "10.2.7.66")
        for span in ((None,), (NOON / 1e9 + 22 * 300,))
    )
    shown.add([*rows_of(23), row("10.200.0.1", 90_000, 24, pattern="horizontal scan")])
    page = opened(visit)
    page.wait_for_selector("text=14:00 – 14:05 UTC")
    new = page.locator(".hosts tbody tr:has-text('10.200.0.1')")
    assert new.locator(".mark").all_inner_texts() == ["alert", "new"]
    assert new.locator(".chip.severe").inner_text() == "horizontal scan"
    assert new.locator("svg.spark").count() == 1
    text = page.locator(".hosts tbody tr:has-text('10.2.7.66')").inner_text()
    assert "tcp/445" in text
    assert scanner > before
    page.get_by_role("button", name="Earlier window").click()
    page.wait_for_selector("text=13:55 – 14:00 UTC")
    told = page.locator(".hosts tbody tr:has-text('10.2.7.66')").inner_text()
    assert f"+{scanner - before:,}" in told
    assert "new" not in page.locator(".hosts tbody tr:has-text('10.0.0.1')").first.inner_text().split()


def test_columns_are_chosen_and_kept(visit: Visit) -> None:
    page = opened(visit)
    assert "Pattern" in page.inner_text(".hosts thead")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Pattern").uncheck()
    assert "Pattern" not in page.inner_text(".hosts thead")
    page.reload()
    page.wait_for_selector(".hosts tbody a")
    assert "Pattern" not in page.inner_text(".hosts thead")
    assert "Main port" in page.inner_text(".hosts thead")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Pattern").check()
    assert "Pattern" in page.inner_text(".hosts thead")


def test_hosts_follow_each_other_in_the_order_of_the_table(visit: Visit, shown: Shown) -> None:
    page = opened(visit)
    page.fill("#filter", "10.1.")
    page.get_by_role("button", name="Host", exact=True).click()
    page.click("text=10.1.4.20")
    page.wait_for_selector("text=1 of 2")
    assert page.get_by_role("link", name="Previous host").count() == 0
    page.get_by_role("link", name="Next host").click()
    page.wait_for_selector("h1:text-is('10.1.9.140')")
    page = visit.open(f"host/{names(shown)[1]}")  # without a table before: by the peers of the newest window
    page.wait_for_selector(f"text=2 of {len(names(shown))}")


def test_what_is_done_about_a_host(visit: Visit, shown: Shown, browser: BrowserContext) -> None:
    browser.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit.open("host/10.2.7.66")
    page.get_by_role("button", name="Copy").click()
    page.wait_for_selector("button:text-is('Copied')")
    assert page.evaluate("() => navigator.clipboard.readText()") == "10.2.7.66"
    page.locator("summary:text-is('Mute')").click()
    page.get_by_label("Why").fill("known")
    page.get_by_role("button", name="Mute this host").click()
    page.wait_for_selector(".acts .chip:has-text('muted until')")
    (muted,) = shown.view.list_alerts()["muted"]
    assert (muted["host"], muted["why"]) == ("10.2.7.66/32", "known")
    page.get_by_role("button", name="Unmute 10.2.7.66/32").click()
    page.wait_for_selector(".acts:not(:has(.chip))")


def test_alerts_are_filtered_and_muted_together(visit: Visit, shown: Shown) -> None:
    page = visit.open("alerts")
    opened = [each for each in shown.view.list_alerts()["alerts"] if not each["closed"]]
    page.wait_for_selector(f"caption:text-is('Open: {len(opened)} alerts')")
    page.get_by_label("Host, prefix or text").fill("10.1.0.0/16")
    page.wait_for_selector("caption:text-is('Open: 2 alerts')")
    page.get_by_label("Host, prefix or text").fill("scan")
    assert page.locator("main table tbody tr").count() == 1
    page.get_by_label("State").select_option("Closed")
    page.wait_for_selector("text=No alert matches the filter.")
    page.get_by_label("State").select_option("All")
    page.get_by_label("Host, prefix or text").fill("10.1.")
    page.get_by_label("Choose all").check()
    page.wait_for_selector(".many strong:text-is('2 alerts')")
    page.get_by_role("button", name="Mute those chosen").click()
    page.wait_for_selector("caption:text('Muted')")
    assert {each["host"] for each in shown.view.list_alerts()["muted"]} == {"10.1.4.20/32", "10.1.9.140/32"}
    page.get_by_label("Host, prefix or text").fill("")
    page.get_by_role("link", name=re.compile("13:10")).first.click()  # since then
    page.wait_for_selector("text=13:10 – 13:15 UTC")


def test_alerts_are_acknowledged(visit: Visit, shown: Shown) -> None:
    page = visit.open("alerts")
    page.get_by_label("Site").select_option("nyc")
    page.wait_for_selector("caption:text-is('Open: 1 alert')")
    page.get_by_label("Choose 10.2.7.66, many-peers").check()
    page.get_by_label("By").fill("Ada")
    page.get_by_label("Note").fill(MARKUP)
    page.get_by_role("button", name="Acknowledge").click()
    page.wait_for_selector(".chip:text-is('acknowledged')")
    assert f"Ada: {MARKUP}" in page.inner_text("main table")
    (alert,) = [each for each in shown.view.list_alerts()["alerts"] if each["state"] == "acknowledged"]
    assert (alert["host"], alert["acknowledged_by"]) == ("10.2.7.66", "Ada")
    page = visit.open("host/10.2.7.66")
    page.wait_for_selector(".history >> text=acknowledged by Ada")
    told = page.locator(".history li").all_inner_texts()
    assert [each.split("\n")[1] for each in told] == ["opened", "grown", f"acknowledged by Ada: {MARKUP}"]
    page.locator("summary:text-is('Acknowledged')").click()
    assert page.get_by_label("By").input_value() == "Ada"
    page.get_by_role("button", name="Take back").click()
    page.wait_for_selector("summary:text-is('Acknowledge')")


def test_a_viewer_changes_nothing(visit: Visit, shown: Shown) -> None:
    summary = shown.view.summary
    shown.view.summary = lambda **_: summary(may_change=False)
    shown.view.mute("10.1.4.20", "", 3600.0, "")
    page = visit.open("alerts")
    page.wait_for_selector("caption:text('Muted')")
    assert page.locator("main button, main input[type=checkbox]").count() == 0
    page = visit.open("host/10.1.4.20")
    page.wait_for_selector("text=Looks like: mail server")
    assert page.locator("summary, button:text('mute')").count() == 0


def test_a_page_that_loads_shows_what_will_come(visit: Visit, shown: Shown) -> None:
    empty = "() => [...document.querySelectorAll('main button, main select, main .card')].filter((each) => \
        each.checkVisibility() && !each.innerText.trim() && !each.querySelector('.bone, svg, input')).length"
    for section, name in (
        ("host/10.2.7.66", "host"),
        ("alerts", "list_alerts"),
        ("", "windows"),
        ("sites", "list_sites"),
    ):
        answer = getattr(shown.view, name)
        slow = Slow(answer)
        setattr(shown.view, name, slow)
        visit.page.goto("about:blank")
        page = visit.page
        page.goto(f"{visit.url}#/{section}")
        assert slow.asked.wait(60)
        page.wait_for_selector(".bone")
        assert page.evaluate(empty) == 0
        slow.let_go(page)
        page.wait_for_selector("body[data-ready]")
        page.wait_for_function("() => ![...document.querySelectorAll('.bone')].some((each) => each.checkVisibility())")
        setattr(shown.view, name, answer)


HOSTS = (
    "10.1.2.3 10.0.0.0/9 10.1.2.4/30 172.16.0.0/12 2001:db8::/32 2001:db8:0:1::7 ::1 2001:DB8::/48 fe80::a00:1 "
    "::ffff:10.1.2.3 1.2.3.4.5 host/1 10.200.0.1 a:b 102:304::1"
)
WORDS = (
    "10.0.0.0/8, 10.0.0.0/9, 10.128.0.0/9, 10.1.2.3/32, 10.1.2.7/30, 0.0.0.0/0, 10.1.2.3/33, 10.0.0.0/, 10/8, "
    "010.0.0.0/8, 2001:db8::/32, 2001:0db8::1/33, ::/0, ::/129, ::ffff:0.0.0.0/96, host/, /, 1.2.3.4::/8, "
    "10.0.0.0/255.0.0.0, 10.0.0.0/0.255.255.255, 10.0.0.0/255.128.0.0, 10.1.2.3/255.255.255.255, 0.0.0.0/0.0.0.0, "
    "10.0.0.0/255.0.255.0, 10.0.0.0/255.0.0, 10.0.0.0/0.0.0.1, 2001:db8::/255.0.0.0, 10.1.2.3/0.0.0.3, "
    "10.0.0.0/8 10.1.2, 10.1 db8, db8 :1:, fe80::/10, 10.0.0.0/8/8, 1::2::3/64, 3, DB8,  ,"
)


def test_the_filter_is_that_of_the_terminal(visit: Visit) -> None:
    words = WORDS.split(", ")
    rows = [row(host, 2000, 1, label="", sites=[]) for host in HOSTS.split()]
    ask = """async ([hosts, words]) => {
        const {testOf} = await import("./static/filter.js");
        return words.map((each) => hosts.filter((host) => testOf(each)(host, host)));
    }"""
    page = visit.open()
    here = page.evaluate(ask, [[each["host"] for each in rows], words])
    there = [[each.host for each in filtered(host_rows(rows), each_words)] for each_words in words]
    assert dict(zip(words, here, strict=True)) == dict(zip(words, there, strict=True))
    assert len({tuple(each) for each in here}) > 10


def _rows(shown: Shown) -> list[dict]:
    newest = shown.board.newest
    return list(newest.rows)


def test_keys(visit: Visit, shown: Shown) -> None:
    page, found = visit.open(), names(shown)
    page.wait_for_selector(".hosts tbody a")
    page.keyboard.press("/")
    page.keyboard.type("10.")
    assert page.input_value("#filter") == "10."
    page.keyboard.press("ArrowDown")
    assert page.locator(":focus").inner_text() == found[0]
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator(":focus").inner_text() == found[1]
    page.keyboard.press("Escape")
    assert page.input_value("#filter") == ""
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open] >> text=1 … 5")  # as many as there are sections
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.keyboard.press("[")
    page.wait_for_selector("text=13:50 – 13:55 UTC")
    page.keyboard.press("l")
    page.wait_for_selector("text=13:55 – 14:00 UTC")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/host/10.0.0.1")
    page.wait_for_selector("text=Peers in each window")
    page.keyboard.press("Escape")
    page.wait_for_selector("text=Super hosts in each window")
    page.keyboard.press("4")
    page.wait_for_selector("h1:text('Alerts')")


def test_one_host(visit: Visit, shown: Shown) -> None:
    page = visit.open()
    page.click("text=10.2.7.66")
    page.wait_for_selector("text=All windows")
    assert page.inner_text("h1") == "10.2.7.66"
    assert "14,150" in page.inner_text(".facts")
    assert "13,726 – 14,574" in page.inner_text(".facts")
    text = page.inner_text("main")
    assert "Looks like: horizontal scan" in text
    assert KNOWN["10.2.7.66"][2] in text
    ports = page.locator("section:has(h2:text-is('Ports')) li").all_inner_texts()
    assert ports[0].split() == ["tcp/445", "95", "%"]
    networks = page.locator("section:has(h2:text-is('Networks of peers')) li")
    assert networks.count() == 6
    assert page.locator(".heat rect").count() == 256
    assert "Sampled peers in 204 /8s of the 256 in 0.0.0.0/0." in text
    assert page.locator(".peers li").count() == 6
    assert "opened" in page.inner_text(".history")
    assert "Alerts of this host" in text
    assert page.locator("canvas").count() == 1
    assert page.locator("section:has(caption:text('All windows')) tbody tr").count() == 10
    shown.add([row("10.2.7.66", 33_333, 24)])
    page.wait_for_selector(".facts >> text=33,333")


def test_a_host_that_is_not_reported_is_asked_for(visit: Visit) -> None:
    page = visit.open("host/10.1.0.3")
    page.wait_for_selector("text=All windows")
    rows = page.locator("section:has(caption:text('All windows')) tbody tr")
    assert rows.count() == 4
    assert "below the threshold" in rows.first.inner_text()
    page = visit.open("host/10.9.9.9")
    page.wait_for_selector("text=All windows")
    assert rows.first.inner_text().split("\t")[1:3] == ["0", "–"]  # not seen, and not counted exactly


def test_a_host_of_several_directions(visit: Visit, shown: Shown) -> None:
    """What a page tells of a host is of the side and direction that it shows."""
    for number, (out, back) in enumerate(((9000, 3000), (8000, 2000), (None, 2500))):
        rows = [row("10.7.7.7", back, number, direction="in")]
        rows += [] if out is None else [row("10.7.7.7", out, number, direction="out", pattern="scan")]
        shown.add(rows)
    page = visit.open("host/10.7.7.7")
    facts = page.locator(".facts").first
    page.wait_for_selector(".facts >> text=2,500")
    assert _fact(page, "Most, in this time") == "3,000"
    assert _fact(page, "Super host in") == "3 windows of 3 known"
    assert page.get_by_role("heading", name="Looks like").count() == 0
    page.get_by_label("Side and direction").select_option("inner, out")
    assert _fact(page, "Peers, last known").startswith("8,000")
    assert _fact(page, "Most, in this time") == "9,000"
    assert _fact(page, "Super host in") == "2 windows of 2 known"
    assert "Seen at" not in facts.inner_text()


def _fact(page: Page, name: str) -> str:
    return " ".join(page.locator(f".facts div:has(dt:text-is('{name}')) dd").inner_text().split())


def test_windows_whose_rows_are_not_kept(visit: Visit, shown: Shown) -> None:
    found = shown.view.host("10.2.7.66")
    for point, is_reported in zip(found["points"][-3:], (True, False, None), strict=True):
        point["reported"] = is_reported
    found["notes"] = [f"2 windows cannot be read: {MARKUP}."]
    shown.view.host = lambda *_: found
    page = visit.open("host/10.2.7.66")
    page.wait_for_selector("text=All windows")
    rows = page.locator("section:has(caption:text('All windows')) tbody tr").all_inner_texts()
    assert [each.split("\t")[-1] for each in rows[:3]] == ["not kept", "not reported", "super host"]
    assert page.inner_text(".readout").endswith(", not kept")
    assert page.inner_text(".notice") == found["notes"][0]
    assert _fact(page, "Super host in") == "8 windows of 10 known; 1 not kept"


class Slow:
    """An answer of a view that waits until `free`."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.asked, self.free, self.answered = threading.Event(), threading.Event(), threading.Event()
        self._answer = answer

    def __call__(self, *given: Any) -> Any:
        self.asked.set()
        self.free.wait(600)
        try:
            return self._answer(*given)
        finally:
            self.answered.set()

    def let_go(self, page: Page) -> None:
        """Let the answer go, and wait until the page has had the time to take it."""
        self.free.set()
        assert self.answered.wait(60)
        page.evaluate("async () => { for (let at = 0; at < 3; at += 1) await fetch('api/summary'); }")


def test_a_page_does_not_wait_for_the_one_before(visit: Visit, shown: Shown) -> None:
    slow = Slow(shown.view.host)
    shown.view.host = slow
    page = opened(visit)
    page.click("text=10.2.7.66")
    assert slow.asked.wait(60)
    page.get_by_role("link", name="Now").click()
    page.wait_for_selector(".hosts tbody a")  # while the question about the host still runs
    slow.let_go(page)
    assert hosts(page) == names(shown)


def test_a_late_answer_does_not_show_another_window(visit: Visit, shown: Shown) -> None:
    window = shown.view.window
    slow = Slow(window)
    shown.view.window = lambda *span: window() if span == (None, None) else slow(*span)
    page = visit.open()
    page.wait_for_selector("text=13:55 – 14:00 UTC")
    page.keyboard.press("[")
    assert slow.asked.wait(60)
    page.keyboard.press("l")
    page.wait_for_selector("button[aria-pressed=true]:text('Latest')")
    slow.let_go(page)
    assert "13:55 – 14:00 UTC" in page.inner_text(".time")


def test_a_late_answer_does_not_show_another_time(visit: Visit, shown: Shown) -> None:
    host = shown.view.host
    slow = Slow(host)
    page = visit.open("host/10.2.7.66")
    page.wait_for_selector("text=All windows")
    answers = [slow, lambda *given: {**host(*given), "name": "of the second question"}]
    shown.view.host = lambda *given: answers.pop(0)(*given)
    page.get_by_role("button", name="7 d").click()
    assert slow.asked.wait(60)
    page.get_by_role("button", name="All", exact=True).click()
    page.wait_for_selector("text=of the second question")
    slow.let_go(page)
    assert "of the second question" in page.inner_text(".time")


def test_sketches_are_asked_with_another_threshold(visit: Visit) -> None:
    page = visit.open("ask")
    page.wait_for_selector("text=with at least 1,024 peers. 14 Nov 2026")  # what the form has at first is asked at once
    page.get_by_label("Peers, at least").fill("150")
    page.locator("form select").select_option("All that is kept")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_selector("text=3 hosts with at least 150 peers")
    assert sorted(hosts(page)) == ["10.0.0.1", "10.1.0.3", "10.1.0.5"]
    assert "from 5 sketches of ams, frank, in " in page.inner_text("p[role=status]")
    page.get_by_label("Peers, at least").fill("1000")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_selector("text=/1 host with at least 1,?000 peers/")
    assert hosts(page) == ["10.0.0.1"]
    page.locator("form select").select_option("From – to")
    page.get_by_label("From (UTC)").fill("2001-01-01T00:00:00")
    page.get_by_label("To (UTC)").fill("2001-01-01T01:00:00")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_selector(".problem >> text=no sketch of this time is here")
    visit.expect_refusal()


def test_what_is_left_out_of_an_answer_is_told(visit: Visit, shown: Shown) -> None:
    answer = shown.view.ask
    more = {"notes": ["Some sketches are older."], "hosts": 12_000}
    shown.view.ask = lambda question: answer(question) | more
    page = visit.open("ask")
    page.get_by_label("Peers, at least").fill("1000")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_selector(".notice")
    told = page.locator(".notice").all_inner_texts()
    assert told == [*more["notes"], "The largest 1 of 12,000 hosts are shown."]


def test_sites_of_unions_alone_are_not_offered(browser: BrowserContext, tmp_path: Path) -> None:
    one, other = (save(tmp_path / f"{name}.cube", name, NOON) for name in ("ams", "frank"))
    archive = tmp_path / "archive"
    archive.mkdir()
    union = sh.load(one)
    union.merge(sh.load(other))
    union.save(archive / "union.cube")
    view = View("sketches", Board(), lambda: Selection(1024.0), folder=SketchFolder(archive))
    view.board.write(report(0))
    with showing(browser, view) as visit:
        page = visit.open("ask")
        page.get_by_label("Peers, at least").fill("150")
        page.get_by_role("button", name="Ask").click()
        page.wait_for_selector("text=from 1 sketch of ams, frank")
        assert page.locator("fieldset").is_hidden()
        save(archive / "ams.cube", "ams", NOON + LENGTH)
        save(archive / "frank.cube", "frank", NOON + LENGTH)
        view.board.touch()
        page.get_by_role("checkbox", name="frank").wait_for()


def test_times_are_those_of_the_reader_if_wanted(visit: Visit, browser: BrowserContext) -> None:
    browser.new_cdp_session(visit.page).send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    page = visit.open()
    page.wait_for_selector("text=13:55 – 14:00 UTC")
    page.get_by_role("button", name="Times: UTC").click()
    page.wait_for_selector("text=19:25 – 19:30 local time")
    page.get_by_role("link", name="Ask again").click()
    page.locator("form select").select_option("From – to")
    page.get_by_label("From (local time)").fill("2026-11-14T19:10:00")
    page.get_by_label("To (local time)").fill("2026-11-14T19:15:00")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("text=19:10 – 19:15 local time, from 2 sketches of ams, frank")
    page.get_by_role("button", name="Times: local").click()
    page.wait_for_selector("button:text-is('UTC')")


def test_what_of_a_folder_is_not_shown_is_told(browser: BrowserContext, tmp_path: Path) -> None:
    save(tmp_path / "one.cube", "ams", NOON)
    view = View("sketches", Board(), lambda: Selection(1024.0), folder=SketchFolder(tmp_path))
    with showing(browser, view) as visit:
        page = visit.open()
        page.wait_for_selector("text=No window yet")
        (tmp_path / "torn.cube").write_bytes(b"torn")
        view.start_filling(lambda _: None, follow=False)
        page.wait_for_selector(f".notice >> text=1 file is not a sketch: {tmp_path}/torn.cube")


def test_alerts_are_muted_and_unmuted(visit: Visit, shown: Shown) -> None:
    page = visit.open("alerts")
    page.wait_for_selector("caption:text('Open')")
    assert "10.2.7.66" in page.locator("section:has(caption:text('Open'))").inner_text()
    page.get_by_label("Host or prefix").fill("10.2.7.66")
    page.get_by_label("Why").fill(MARKUP)
    assert page.get_by_label("Why").get_attribute("maxlength") == str(LONGEST_WHY)
    page.get_by_role("button", name="Mute", exact=True).click()
    page.wait_for_selector("caption:text('Muted')")
    assert MARKUP in page.locator("section:has(caption:text('Muted'))").inner_text()
    (muted,) = shown.view.list_alerts()["muted"]
    assert (muted["host"], muted["why"]) == ("10.2.7.66/32", MARKUP)
    page.get_by_role("button", name="Unmute 10.2.7.66/32").click()
    page.wait_for_selector("text=Nothing is muted.")
    page.get_by_label("Host or prefix").fill("no address")
    page.get_by_role("button", name="Mute", exact=True).click()
    page.wait_for_selector(".problem >> text=no address")
    assert shown.view.list_alerts()["muted"] == []
    visit.expect_refusal()


def test_buttons_stay_while_nothing_changes(visit: Visit, shown: Shown) -> None:
    shown.view.mute("10.2.7.66", "", 3600.0, "")
    page = visit.open("alerts")
    page.wait_for_selector(".link.up")
    button = page.wait_for_selector("button:text('Unmute')")
    with page.expect_response("**/api/alerts"):
        shown.board.touch()
    with page.expect_response("**/api/alerts"):  # by then the page has taken the answer before
        shown.board.touch()
    assert button.evaluate("button => button.isConnected")


def test_when_sites_were_heard_is_told_by_the_clock_of_the_server(visit: Visit, shown: Shown) -> None:
    shown.sites["ams"]["seen"] = shown.view.clock() - 3.5 * 3600
    visit.page.clock.set_fixed_time("2001-01-01T00:00:00Z")
    page = visit.open("sites")
    page.wait_for_selector("tr:has-text('ams') >> text=3 h ago")


def test_a_site_that_is_gone_is_not_there(visit: Visit, shown: Shown) -> None:
    shown.sites["ams"]["seen"] = shown.view.clock() - 3600
    shown.sites["fra"]["seen"] = shown.view.clock() - 20
    page = visit.open("sites")
    page.wait_for_selector("text=2 of 3 sites in the newest window; missing: nyc; not heard for long: ams.")
    states = [each.split("\t")[:2] for each in page.locator("main tbody tr").all_inner_texts()]
    assert states == [["ams", "gone"], ["fra", "there"], ["nyc", "missing"]]


def test_a_wrong_clock_is_marked_as_the_hub_judges_it(visit: Visit, shown: Shown) -> None:
    shown.sites["ams"]["clock"] = WRONG + 0.1
    shown.sites["nyc"]["clock"] = WRONG - 0.1
    page = visit.open("sites")
    page.wait_for_selector("text=2 of 3 sites")
    marked = page.locator(".chip.warn").all_inner_texts()
    assert [each for each in marked if each.endswith(" s")] == ["+5.1 s", "−7.4 s"]


def test_a_page_that_stays_open_keeps_as_many_windows_as_the_server(browser: BrowserContext) -> None:
    view = View("watch local", Board(), lambda: Selection(1024.0))
    for number in range(MOST_WINDOWS):
        view.board.write(report(number, [row("10.0.0.1", 2000, number)]))
    with showing(browser, view) as visit:
        page = visit.open()
        page.wait_for_selector('.plot[aria-label^="Super hosts in 288 windows: between 1 and 1"]')  # a day
        page.get_by_role("button", name="All", exact=True).click()
        page.wait_for_selector('.plot[aria-label^="Super hosts in 2,016 windows: between 1 and 1"]')
        page.wait_for_selector(".link.up")
        view.board.write(report(MOST_WINDOWS, [row("10.0.0.1", 2000, 1), row("10.0.0.2", 2000, 1)]))
        page.wait_for_selector('.plot[aria-label*="between 1 and 2"]')
        label = page.locator(".plot").first.get_attribute("aria-label")
        assert label.startswith("Super hosts in 2,016 windows")


def test_sites_and_accuracy(visit: Visit) -> None:
    page = visit.open("sites")
    page.wait_for_selector("text=2 of 3 sites in the newest window; missing: nyc.")
    assert "12 sketches, 31 MiB" in page.inner_text("table")
    page = visit.open("accuracy")
    page.wait_for_selector("h1:text-is('Accuracy')")
    page.wait_for_selector("text=Estimated from bits, of which 31 % are set")
    assert "Counted exactly: 48,000 distinct pairs" in page.inner_text("main")
    assert "is known to within ± 3.0 %" in page.inner_text("main")


def test_sections_that_are_missing_are_not_shown(browser: BrowserContext) -> None:
    view = View("watch local", Board(), lambda: Selection(1024.0))
    with showing(browser, view) as visit:
        page = visit.open("alerts")
        assert page.inner_text("nav") == "Now"
        assert page.inner_text("h1") == "No window yet"
        view.board.write(report(1, rows_of(1)))
        page.wait_for_selector(".hosts tbody a")


def test_markup_shows_as_text(browser: BrowserContext) -> None:
    """Names, labels, titles and notes come from outside: from DNS, from files and from other people."""
    view = View(MARKUP, Board(), lambda: Selection(1024.0), parts=lambda: {Part(4): PartState()})
    made = row(MARKUP, 5000, 1, label=MARKUP, pattern=MARKUP, reason=MARKUP, side=MARKUP)
    made["sites"] = seen_at([MARKUP, "ams"], 5000)
    other = row("10.0.0.9", 2000, 1, name=MARKUP)
    view.board.write(report(1, [made, other], title=MARKUP, notes=[MARKUP], missing=[MARKUP]))
    with showing(browser, view) as visit:
        page = visit.open()
        page.wait_for_selector(".hosts tbody a")
        assert hosts(page) == [MARKUP, "10.0.0.9"]
        text = page.inner_text("body")
        assert text.count(MARKUP) >= 7
        page.locator(".hosts tbody a").first.click()
        page.wait_for_selector("text=Looks like")
        assert page.inner_text("h1") == MARKUP
        assert page.locator("main img, main script, header img[src=x]").count() == 0
        assert page.title() != "broken"


def test_a_lost_link_is_told_and_found_again(browser: BrowserContext, tmp_path: Path) -> None:
    view = View("watch local", Board(), lambda: Selection(1024.0))
    view.board.write(report(1, rows_of(1)))
    with serving(view) as web:
        visit, place = Visit(browser, web.url), web.place
        page = visit.open()
        page.wait_for_selector(".link.up")
    page.wait_for_selector("text=Link lost, retrying")
    assert hosts(page)  # what is known stays
    view.board.write(report(2, [row("10.77.0.1", 4000, 2)]))
    again = WebServer(view, Access(place), print)
    try:
        page.wait_for_selector(".link.up")
        page.wait_for_selector("text=10.77.0.1")
    finally:
        again.close()
        visit.page.close()


def test_another_token_is_asked_for_after_a_restart(browser: BrowserContext) -> None:
    view = View("watch local", Board(), lambda: Selection(1024.0))
    with serving(view, token="0123456789abcdef") as web:
        visit, place = Visit(browser, web.url), web.place
        page = visit.page
        page.goto(f"{web.url}?token=0123456789abcdef#/")
        page.wait_for_selector(".link.up")
    again = WebServer(view, Access(place, "fedcba9876543210"), print)
    try:
        page.get_by_label("Token of this dashboard").fill("fedcba9876543210")
        page.get_by_role("button", name="Open").click()
        page.wait_for_selector(".link.up")
    finally:
        again.close()
        page.close()


def test_the_token_is_asked_for_and_leaves_the_address(browser: BrowserContext) -> None:
    view = View("watch local", Board(), lambda: Selection(1024.0))
    view.board.write(report(1, rows_of(1)))
    with serving(view, token="0123456789abcdef") as web:
        visit = Visit(browser, web.url)
        page = visit.page
        page.goto(web.url)
        assert page.locator(".problem").is_hidden()
        page.get_by_label("Token of this dashboard").fill("wrong")
        page.get_by_role("button", name="Open").click()
        page.wait_for_selector(".problem >> text=This token is wrong.")
        page.get_by_label("Token of this dashboard").fill("0123456789abcdef")
        page.get_by_role("button", name="Open").click()
        page.wait_for_selector(".hosts tbody a")
        browser.clear_cookies()
        page.goto(f"{web.url}?token=0123456789abcdef#/")
        page.wait_for_selector(".hosts tbody a")
        assert page.url == f"{web.url}#/"
        assert page.evaluate("() => document.cookie") == ""  # no script reads it
        page.reload()
        page.wait_for_selector(".hosts tbody a")
        page.close()


def test_many_rows_are_shown_in_pages(browser: BrowserContext) -> None:
    view = View("watch local", Board(), lambda: Selection(1024.0))
    view.board.write(report(1, [row(f"10.{at >> 8}.{at & 255}.1", 20_000 - at, 1) for at in range(10_000)]))
    with showing(browser, view) as visit:
        page = visit.open()
        page.wait_for_selector(".hosts tbody a")
        assert page.locator(".hosts tbody tr").count() == 100
        page.get_by_role("button", name="Show 200 more of 9,900").click()
        assert page.locator(".hosts tbody tr").count() == 300
        assert page.locator(":focus").inner_text() == "10.0.100.1"
        page.fill("#filter", "10.39.15.1")
        assert hosts(page) == ["10.39.15.1"]


def test_the_theme_is_chosen_and_kept(visit: Visit) -> None:
    page = visit.open()
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    page.click("#theme")
    assert page.inner_text("#theme") == "Dark"
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate(ground) == dark
    page.click("#theme")
    assert page.evaluate(ground) == light
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == dark


@pytest.mark.parametrize("section", SECTIONS)
def test_nothing_is_wider_than_a_phone(visit: Visit, section: str) -> None:
    visit.page.set_viewport_size(PHONE)
    page = visit.open(section)
    page.wait_for_selector("main h1")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_pages_are_accessible(visit: Visit, section: str, theme: str, size: dict[str, int]) -> None:
    source = axe_source()
    visit.page.set_viewport_size(size)
    visit.page.emulate_media(color_scheme=theme)
    page = visit.open(section)
    page.wait_for_selector("main table, main .card")
    assert violations(page, source) == []


def test_the_help_and_the_token_are_accessible(visit: Visit, browser: BrowserContext) -> None:
    source = axe_source()
    page = visit.open()
    page.click("#help-open")
    page.wait_for_selector("dialog[open]")
    assert violations(page, source) == []
    with serving(View("", Board(), lambda: Selection(1.0)), token="0123456789abcdef") as locked:
        page.goto(locked.url)
        assert violations(page, source) == []
        page.goto(f"{locked.url}?token=wrong")
        assert violations(page, source) == []
    visit.problems, visit.requested = [], []  # 401 is logged by the browser, and it is another server
