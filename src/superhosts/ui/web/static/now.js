// The newest window, or one that was chosen: its hosts, and the windows before it.

import { get } from "./api.js";
import { Chart } from "./charts.js";
import { h, notices, say, show } from "./dom.js";
import { ago, count, interval, moment, peersText, span, whole } from "./format.js";
import { HostTable } from "./hosttable.js";
import { colorOf, inOrder } from "./patterns.js";
import { RangePicker } from "./range.js";
import { zone } from "./zone.js";

const MOST = 2016; // windows that are kept, as many as the server keeps
const AGAIN = 20000; // milliseconds after which the age of the newest window is told again
const LINES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5"]; // colours

// How many super hosts a window has; if no threshold was asked for, how many hosts, which are the largest.
const valueOf = (window) => window.super_hosts ?? window.hosts;
const headline = (window) => (window.super_hosts === null ? count(window.hosts, "largest host") : count(window.super_hosts, "super host"));

const same = (one, other) => one !== null && other !== null && one.start === other.start && one.end === other.end;

export class NowPage {
  title = "Now";
  readsWindows = true; // and needs no other answer to know the newest

  constructor(context, parameters) {
    this.context = context;
    this.windows = [];
    this.trends = []; // the largest hosts in all windows of the time that is shown
    this.version = null; // of the windows that are known
    this.shown = null;
    // The window that the address names; null: the newest, whichever that is.
    const end = parameters.get("end");
    this.wanted = parameters.has("start") ? { start: Number(parameters.get("start")), end: end === null ? null : Number(end) } : null;
    this.heading = h("h1", {}, "Super hosts");
    this.time = h("p", { class: "time" }, "Reading the newest window …");
    this.notes = h("div", { class: "notes" });
    this.earlier = h("button", { type: "button", onclick: () => this.step(-1), "aria-label": "Earlier window" }, "‹");
    this.later = h("button", { type: "button", onclick: () => this.step(1), "aria-label": "Later window" }, "›");
    this.latest = h("button", { type: "button", onclick: () => this.choose(null) }, "Latest");
    this.range = new RangePicker(() => this.drawGraphs(true));
    const graph = { onPick: (window) => this.choose(window), onBrush: (from, to) => this.range.brush(from, to) };
    this.hosts = new Chart({
      ...graph,
      title: `${context.summary.threshold ? "Super hosts" : "Hosts reported"} in each window`,
      kind: "stack",
      describe: (at) => `${moment(this.cut[at].start)}: ${headline(this.cut[at])}`,
    });
    this.largest = new Chart({
      ...graph,
      title: "Peers of the largest hosts",
      kind: "lines",
      threshold: context.summary.threshold,
      describe: (at) => moment(this.cut[at].start),
    });
    this.table = new HostTable("Hosts");
    this.timer = setInterval(() => this.drawTime(), AGAIN);
    const choice = h("div", { class: "buttons", role: "group", "aria-label": "Window" }, this.earlier, this.later, this.latest);
    this.element = h(
      "div",
      { class: "page" },
      h("div", { class: "heading" }, h("div", {}, this.heading, this.time), h("div", { class: "buttons" }, this.range.element, choice)),
      this.notes,
      h("div", { class: "charts" }, this.hosts.element, this.largest.element),
      this.table.element,
    );
  }

  async refresh(signal) {
    const newest = this.wanted === null;
    const { changed } = this.context;
    const next = newest && this.version !== null && changed === this.version + 1;
    const [listed, shown] = await Promise.all([next ? null : get("windows", {}, signal), this.fetch(signal)]);
    const before = this.shown;
    const added = next && shown !== null && shown.end > (this.windows.at(-1)?.end ?? 0);
    this.windows = added ? [...this.windows, headingOf(shown)].slice(-MOST) : listed || (await get("windows", {}, signal));
    const isNew = this.version !== changed;
    this.version = changed;
    this.context.summary.newest = this.windows.at(-1) || null;
    this.shown = shown;
    this.draw(isNew);
    if (newest && before !== null && shown !== null && !same(before, shown)) {
      say(`new window, ${span(shown.start, shown.end)}: ${headline(shown)}`);
    }
  }

  async fetch(signal) {
    if (this.wanted === null && this.context.changed === 0) return null;
    try {
      return await get("window", this.wanted || {}, signal);
    } catch (error) {
      if (error.status !== 400) throw error;
      return null; // a window that is forgotten
    }
  }

  choose(window) {
    const newest = this.windows.at(-1) || null;
    this.wanted = window === null || same(window, newest) ? null : { start: window.start, end: window.end };
    history.replaceState(null, "", this.wanted ? `#/?start=${this.wanted.start}&end=${this.wanted.end}` : "#/");
    this.context.restart();
  }

  step(by) {
    const at = this.windows.findIndex((each) => same(each, this.shown));
    const next = this.windows[(at < 0 ? this.windows.length : at) + by];
    if (next) this.choose(next);
  }

  draw(isNew) {
    const { shown, windows } = this;
    const at = windows.findIndex((each) => same(each, shown));
    this.earlier.disabled = at <= 0;
    this.later.disabled = at < 0 || at === windows.length - 1;
    this.latest.disabled = this.wanted === null;
    this.latest.setAttribute("aria-pressed", String(this.wanted === null));
    if (shown === null) {
      this.heading.textContent = windows.length ? "This window is not known any more" : "No window yet";
    } else this.heading.textContent = headline(shown);
    this.drawTime();
    show(this.notes, notices([...this.context.summary.reading, ...notesOf(shown)]));
    this.hosts.element.parentNode.hidden = windows.length === 0;
    this.range.know(windows);
    this.drawGraphs(isNew);
    const kind = shown !== null && shown.super_hosts === shown.hosts ? "Super hosts" : "Largest hosts";
    this.table.put(shown === null ? [] : shown.rows, shown === null ? "Hosts" : `${kind}, ${span(shown.start, shown.end)}`, { ...shown, threshold: this.context.summary.threshold });
    this.context.order = () => this.table.found().map((row) => String(row.host));
  }

  drawGraphs(again) {
    this.cut = this.range.cut(this.windows);
    const { cut, shown } = this;
    if (again) this.readTrends();
    const title = this.context.summary.threshold ? "Super hosts" : "Hosts reported";
    const [low, high] = [Math.min(...cut.map(valueOf)), Math.max(...cut.map(valueOf))];
    const label = cut.length ? `${title} in ${count(cut.length, "window")}: between ${whole(low)} and ${whole(high)}, ${whole(valueOf(cut.at(-1)))} in the newest.` : "No windows yet.";
    this.hosts.put({ windows: cut, series: stackOf(cut, title), selected: shown, label });
    this.drawTrends();
  }

  drawTrends() {
    const { cut } = this;
    const newest = cut.at(-1)?.largest;
    const told = newest ? `Peers of the largest hosts in ${count(cut.length, "window")}. In the newest, ${newest.host} has ${peersText(newest.peers, newest.low)} peers, interval ${interval(newest.peers, newest.low, newest.high)}.` : "No hosts yet.";
    const parts = new Set(this.trends.map((each) => `${each.side}, ${each.direction}`)).size > 1;
    const series = this.trends.map((each, number) => {
      const at = new Map(each.points.map((point) => [point.start, point]));
      const points = cut.map((window) => at.get(window.start) || null).map((point) => point && { value: point.peers, low: point.low, high: point.high });
      const label = parts ? `${each.host} ${each.direction}` : each.host;
      return { key: each.host, label, title: each.name, href: `#/host/${encodeURIComponent(each.host)}`, color: LINES[number], points };
    });
    this.largest.put({ windows: cut, series, selected: this.shown, label: told });
  }

  async readTrends() {
    const [first, last] = [this.cut[0], this.cut.at(-1)];
    if (!first) return;
    this.reading?.abort();
    this.reading = new AbortController();
    try {
      this.trends = await get("trends", { start: first.start, end: last.end }, this.reading.signal);
      this.drawTrends();
    } catch (error) {
      if (error.name !== "AbortError") this.largest.canvas.setAttribute("aria-label", `The largest hosts could not be read: ${error.message}.`);
    }
  }

  // Which window it is. Of the newest one, its age is told unless it is live.
  drawTime() {
    const { shown, windows, context } = this;
    if (shown === null) this.time.textContent = windows.length ? "" : "The first one appears here when it closes.";
    else if (shown.start === null) this.time.textContent = shown.title;
    else {
      const age = this.wanted === null && !context.isLive() ? `, ended ${ago(context.now() - shown.end)}` : "";
      this.time.textContent = `${span(shown.start, shown.end)} ${zone}${age} · ${shown.title}`;
    }
  }

  keys(key) {
    if (key === "[") this.step(-1);
    else if (key === "]") this.step(1);
    else if (key === "l") this.choose(null);
    else return false;
    return true;
  }

  restyle() {
    this.hosts.restyle();
    this.largest.restyle();
  }

  close() {
    this.reading?.abort();
    clearInterval(this.timer);
    this.hosts.close();
    this.largest.close();
  }
}

// A part for each pattern; without patterns, one for all.
function stackOf(windows, title) {
  const patterns = inOrder(new Set(windows.flatMap((window) => Object.keys(window.patterns || {}))));
  if (patterns.every((pattern) => pattern === "")) return [{ key: "", label: title, color: "--accent-soft", points: windows.map(valueOf) }];
  return patterns.map((pattern) => ({ key: pattern, label: pattern || "no pattern", color: colorOf(pattern), points: windows.map((window) => window.patterns?.[pattern] || 0) }));
}

function headingOf({ rows: _, whole: __, recent: ___, alerts: ____, ...heading }) {
  return heading;
}

function notesOf(shown) {
  if (shown === null) return [];
  const found = [...shown.notes];
  if (shown.missing.length) found.unshift(`Missing in this window: ${shown.missing.join(", ")}`);
  if (shown.revision > 1) found.push(`Revision ${shown.revision}: this window was reported before, with less.`);
  if (!shown.whole && shown.rows.length < shown.hosts) found.push(`Of this older window the largest ${whole(shown.rows.length)} of ${count(shown.hosts, "host")} are kept.`);
  return found;
}
