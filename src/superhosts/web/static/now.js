// The newest window, or one that was chosen: its hosts, and the windows before it.

import { get } from "./api.js";
import { TimeChart } from "./charts.js";
import { h, notices, say, show } from "./dom.js";
import { count, interval, moment, peersText, span, whole } from "./format.js";
import { HostTable } from "./hosttable.js";
import { zone } from "./zone.js";

const MOST = 2016; // windows that are kept, as many as the server keeps
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
      title: "Super hosts in each window",
      kind: "bars",
      onPick: (point) => this.choose(point),
      describe: (point) => `${moment(point.start)}: ${count(point.value, "host")}`,
    });
    this.largest = new TimeChart({
      title: "Peers of the largest host",
      kind: "points",
      onPick: (point) => this.choose(point),
      describe: (point) => `${moment(point.start)}: ${point.host === undefined ? "none" : `${point.host}, ${peersText(point.value, point.low)}`}`,
    });
    this.table = new HostTable("Super hosts");
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
      say(`new window, ${span(shown.start, shown.end)}: ${count(shown.hosts, "host")}`);
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
      this.time.textContent = windows.length ? "" : "The first one appears here when it closes.";
    } else {
      this.heading.textContent = count(shown.hosts, "super host");
      this.time.textContent = shown.start === null ? shown.title : `${span(shown.start, shown.end)} ${zone} · ${shown.title}`;
    }
    show(this.notes, notices([...this.context.summary.reading, ...notesOf(shown)]));
    const [low, high] = [Math.min(...windows.map((each) => each.hosts)), Math.max(...windows.map((each) => each.hosts))];
    this.hosts.put(
      windows.map((each) => ({ start: each.start, end: each.end, value: each.hosts })),
      shown,
      windows.length ? `Super hosts in ${count(windows.length, "window")}: between ${whole(low)} and ${whole(high)}, ${whole(windows.at(-1).hosts)} in the newest.` : "No windows yet.",
    );
    const newest = windows.at(-1)?.largest;
    this.largest.put(
      windows.map(({ start, end, largest }) => ({ start, end, host: largest?.host, value: largest?.peers ?? null, low: largest?.low ?? null, high: largest ? largest.high : 0 })),
      shown,
      newest ? `Peers of the largest host in ${count(windows.length, "window")}. In the newest it is ${newest.host} with ${peersText(newest.peers, newest.low)} peers, interval ${interval(newest.peers, newest.low, newest.high)}.` : "No hosts yet.",
    );
    const caption = shown === null ? "Super hosts" : `Super hosts, ${span(shown.start, shown.end)}`;
    this.table.put(shown === null ? [] : shown.rows, caption);
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
  if (shown.revision > 1) found.push(`Revision ${shown.revision}: a late sketch has changed this window.`);
  if (!shown.whole && shown.rows.length < shown.hosts) found.push(`Of this older window the largest ${whole(shown.rows.length)} of ${count(shown.hosts, "host")} are kept.`);
  return found;
}
