// The newest window, or one that was chosen: its hosts, and the windows before it.

import { get } from "./api.js";
import { TimeChart } from "./charts.js";
import { h, notices, say, show } from "./dom.js";
import { ago, count, interval, moment, peersText, span, whole } from "./format.js";
import { HostTable } from "./hosttable.js";
import { zone } from "./zone.js";

const MOST = 2016; // windows that are kept, as many as the server keeps
const AGAIN = 20000; // milliseconds after which the age of the newest window is told again

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
    this.version = null; // of the windows that are known
    this.shown = null;
    // The window that the address names; null: the newest, whichever that is.
    this.wanted = parameters.has("start") ? { start: Number(parameters.get("start")), end: Number(parameters.get("end")) } : null;
    this.heading = h("h1", {}, "Super hosts");
    this.time = h("p", { class: "time" });
    this.notes = h("div", { class: "notes" });
    this.earlier = h("button", { type: "button", onclick: () => this.step(-1), "aria-label": "Earlier window" }, "‹");
    this.later = h("button", { type: "button", onclick: () => this.step(1), "aria-label": "Later window" }, "›");
    this.latest = h("button", { type: "button", onclick: () => this.choose(null) }, "Latest");
    this.hosts = new TimeChart({
      title: `${context.summary.threshold ? "Super hosts" : "Hosts reported"} in each window`,
      kind: "bars",
      onPick: (point) => this.choose(point),
      describe: (point) => `${moment(point.start)}: ${headline(point)}`,
    });
    this.largest = new TimeChart({
      title: "Peers of the largest host",
      kind: "points",
      onPick: (point) => this.choose(point),
      describe: (point) => `${moment(point.start)}: ${point.host === undefined ? "none" : `${point.host}, ${peersText(point.value, point.low)}`}`,
    });
    this.table = new HostTable("Hosts");
    this.timer = setInterval(() => this.drawTime(), AGAIN);
    this.element = h(
      "div",
      { class: "page" },
      h("div", { class: "heading" }, h("div", {}, this.heading, this.time), h("div", { class: "buttons", role: "group", "aria-label": "Window" }, this.earlier, this.later, this.latest)),
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
    this.version = changed;
    this.context.summary.newest = this.windows.at(-1) || null;
    this.shown = shown;
    this.draw();
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

  draw() {
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
    const [low, high] = [Math.min(...windows.map(valueOf)), Math.max(...windows.map(valueOf))];
    this.hosts.put(
      windows.map((each) => ({ ...each, value: valueOf(each) })),
      shown,
      windows.length ? `${this.context.summary.threshold ? "Super hosts" : "Hosts reported"} in ${count(windows.length, "window")}: between ${whole(low)} and ${whole(high)}, ${whole(valueOf(windows.at(-1)))} in the newest.` : "No windows yet.",
    );
    const newest = windows.at(-1)?.largest;
    this.largest.put(
      windows.map(({ start, end, largest }) => ({ start, end, host: largest?.host, value: largest?.peers ?? null, low: largest?.low ?? null, high: largest ? largest.high : 0 })),
      shown,
      newest ? `Peers of the largest host in ${count(windows.length, "window")}. In the newest it is ${newest.host} with ${peersText(newest.peers, newest.low)} peers, interval ${interval(newest.peers, newest.low, newest.high)}.` : "No hosts yet.",
    );
    const kind = shown !== null && shown.super_hosts === shown.hosts ? "Super hosts" : "Largest hosts";
    this.table.put(shown === null ? [] : shown.rows, shown === null ? "Hosts" : `${kind}, ${span(shown.start, shown.end)}`);
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
    clearInterval(this.timer);
    this.hosts.close();
    this.largest.close();
  }
}

function headingOf({ rows: _, whole: __, ...heading }) {
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
