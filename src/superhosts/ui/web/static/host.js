// One host: its past, its evidence, its alerts.

import { get } from "./api.js";
import { acknowledgeForm, alertTable, historyList, historyOf, mayChange, muteForm, unmuteButton } from "./alerts.js";
import { axis, bar, scaleOf } from "./bars.js";
import { Chart } from "./charts.js";
import { bones, h, notices, plainTable, say, show } from "./dom.js";
import { testOf } from "./filter.js";
import { count, interval, minute, moment, peersText, percent, span, whole } from "./format.js";
import { patternChip } from "./patterns.js";
import { RangePicker } from "./range.js";
import { partOf, placeOf, siteNames, sitesOf } from "./rows.js";
import { heatStrip, networksOf, peerShare, shareBars } from "./spark.js";
import { zone } from "./zone.js";

const QUICK = 2000; // milliseconds of a question that may be asked again with each window
const ROWS = 100;
const NETWORKS = 6;
const COPIED = 1500; // milliseconds for which the button says so
const EVENTS = ["opened", "grown", "closed", "muted"]; // with colours of their own

// Whether a host was a super host; of older windows only the largest hosts are kept, so that it may be unknown.
function stateIn(point, threshold) {
  if (point.reported) return threshold ? "super host" : "reported";
  if (point.reported === null) return "not kept";
  return point.peers !== null && point.peers < threshold ? "below the threshold" : "not reported";
}

export class HostPage {
  constructor(context, _, host) {
    this.context = context;
    this.host = host;
    this.title = host;
    this.took = 0;
    this.part = null;
    this.events = [];
    this.name = h("p", { class: "time" }, "Reading its past …");
    this.facts = h("dl", { class: "facts card" }, Array.from({ length: 4 }, () => h("div", { "aria-hidden": "true" }, bones(2))));
    this.notes = h("div", { class: "notes" });
    this.range = new RangePicker(context.restart);
    this.choice = h("select", { "aria-label": "Side and direction", onchange: () => this.pick(), hidden: true });
    this.chart = new Chart({
      title: "Peers in each window",
      kind: "lines",
      height: 240,
      threshold: context.summary.threshold,
      legend: false,
      onBrush: (from, to) => this.range.brush(from, to),
      describe: (at) => describe(this.points[at], context.summary.threshold),
    });
    this.history = h("div", {});
    this.chart.element.append(this.history);
    this.copy = h("button", { type: "button", onclick: () => this.copyHost() }, "Copy");
    this.acts = h("div", { class: "buttons acts" });
    this.around = h("div", { class: "buttons", role: "group", "aria-label": "Other hosts" });
    this.sites = h("section", { class: "card", hidden: true });
    this.evidence = h("div", { class: "parts", hidden: true });
    this.alerts = h("section", { class: "card", hidden: true });
    this.past = h("section", { class: "card" }, bones(5));
    this.element = h(
      "div",
      { class: "page" },
      h("div", { class: "heading" }, h("div", {}, h("div", { class: "titles" }, h("h1", { class: "address" }, host), this.copy, this.acts), this.name), h("div", { class: "buttons" }, this.choice, this.range.element, this.around)),
      this.notes,
      this.facts,
      this.chart.element,
      this.evidence,
      this.sites,
      this.alerts,
      this.past,
    );
    this.drawAround();
  }

  // A long question is not asked again by itself.
  async changed(signal) {
    if (this.took < QUICK) await this.refresh(signal);
    else show(this.notes, h("p", { class: "notice" }, "New data has come in. ", h("button", { type: "button", onclick: this.context.restart }, "Ask again")));
  }

  async refresh(signal) {
    const [start, end] = this.range.span(this.context.summary.newest);
    const begun = performance.now();
    const { can } = this.context.summary;
    const [found, { muted }] = await Promise.all([get("host", { host: this.host, start, end }, signal), can.alerts ? get("alerts", {}, signal) : { muted: [] }]);
    this.took = performance.now() - begun;
    this.found = found;
    this.muted = muted.filter((mute) => testOf(mute.host)(this.host, ""));
    found.points = found.points.filter((point) => (start === null || point.end > start) && (end === null || point.start < end));
    this.events = await historyOf(found.alerts, signal);
    this.draw();
  }

  async copyHost() {
    try {
      await navigator.clipboard.writeText(this.host);
      this.copy.textContent = "Copied";
      say(`${this.host} is copied`);
      setTimeout(() => (this.copy.textContent = "Copy"), COPIED);
    } catch {
      getSelection().selectAllChildren(this.element.querySelector("h1")); // the reader may copy it
    }
  }

  // The hosts before and after this one, in the order of the table that was left.
  async drawAround() {
    const { context } = this;
    if (!context.order) {
      const { rows } = await get("window").catch(() => ({ rows: [] }));
      context.order ??= () => rows.map((row) => String(row.host));
    }
    const hosts = [...new Set(context.order())];
    const at = hosts.indexOf(this.host);
    const link = (host, text) => (at >= 0 && host !== undefined ? h("a", { class: "button", href: `#/host/${encodeURIComponent(host)}`, title: host }, text) : null);
    const place = at >= 0 ? h("span", { class: "muted place" }, `${whole(at + 1)} of ${whole(hosts.length)}`) : null;
    show(this.around, link(hosts[at - 1], "‹ Previous host"), place, link(hosts[at + 1], "Next host ›"));
  }

  keys(key) {
    const link = this.around.querySelector(`a:${key === "[" ? "first" : "last"}-child`);
    if (!"[]".includes(key) || !link) return false;
    link.click();
    return true;
  }

  pick() {
    this.part = this.choice.value;
    this.drawPart();
  }

  draw() {
    const { rows, points, alerts, name, notes } = this.found;
    const [row] = rows;
    this.name.textContent = [name, row && row.label && row.name ? row.name : "", row ? placeOf(row) : ""].filter(Boolean).join(" · ");
    show(this.notes, notices([...notes, ...(points.length ? [] : ["Nothing is known of this host in this time."])]));
    const parts = [...new Set([...rows, ...points].map(partOf))];
    if (!parts.includes(this.part)) this.part = parts[0];
    this.choice.hidden = parts.length < 2;
    show(this.choice, parts.map((part) => h("option", { value: part }, part)));
    this.choice.value = this.part;
    this.alerts.hidden = alerts.length === 0;
    if (alerts.length) show(this.alerts, alertTable("Alerts of this host", alerts, { withHost: false }));
    this.drawActs();
    this.drawPart();
  }

  // What can be done: not drawn anew while a form is open.
  drawActs() {
    const { context, host } = this;
    if (!mayChange(context) || this.acts.querySelector("details[open]")) return;
    const open = this.found.alerts.filter((alert) => !alert.closed);
    const popup = (title, form) => h("details", { class: "popup" }, h("summary", {}, title), h("div", {}, form));
    const isSeen = open.every((alert) => alert.acknowledged);
    show(
      this.acts,
      this.muted.map((mute) => h("span", { class: "chip" }, `muted until ${moment(minute(mute.until))} `, unmuteButton(mute, context.restart, context.fail))),
      popup("Mute", muteForm(host, context.restart)),
      open.length ? popup(isSeen ? "Acknowledged" : "Acknowledge", acknowledgeForm(() => open.map((alert) => alert.id), context.restart)) : null,
    );
  }

  // All that is of one side and direction.
  drawPart() {
    const row = this.found.rows.find((each) => partOf(each) === this.part);
    const points = this.found.points.filter((each) => partOf(each) === this.part);
    const facts = factsOf(row, points, this.context.summary);
    show(this.facts, facts.map(([term, text, more]) => h("div", {}, h("dt", {}, term), h("dd", {}, text, more ? h("span", { class: "more-text" }, more) : null))));
    const sites = measuredSites(row);
    this.sites.hidden = sites.length === 0;
    if (sites.length) show(this.sites, siteTable(sites), h("p", { class: "muted" }, "A peer that several sites have seen counts at each of them, and once in the whole."));
    this.evidence.hidden = !row?.evidence && !row?.pattern;
    if (!this.evidence.hidden) show(this.evidence, evidenceOf(row));
    this.drawPast(points);
  }

  drawPast(points) {
    const { threshold } = this.context.summary;
    this.points = points;
    const last = points.at(-1);
    const line = points.map((point) => ({ value: point.peers, low: point.low, high: point.high, faint: !point.reported }));
    const label = last ? `Peers of ${this.host} in ${count(points.length, "window")}; in the last ${peersText(last.peers, last.low)}, interval ${interval(last.peers, last.low, last.high)}. The table below has all of them.` : "No windows.";
    const [from, to] = points.length ? [points[0].start, last.end] : [0, 0];
    const events = this.events.filter(({ at }) => at >= from);
    const marks = events.filter(({ at }) => at <= to).map(({ at, event }) => ({ at, kind: EVENTS.includes(event) ? event : "other" }));
    this.chart.put({ windows: points, series: [{ key: this.host, label: this.host, color: "--line-1", points: line }], events: marks, label });
    this.history.hidden = events.length === 0;
    show(this.history, historyList(events));
    this.chart.element.hidden = this.past.hidden = points.length === 0;
    const newest = [...points].reverse().slice(0, ROWS);
    const columns = [[`Window (${zone})`, ""], ["Peers", "number"], ["95 % interval", "number"], ["State", ""]];
    const rows = newest.map((point) => [
      h("a", { href: `#/?start=${point.start}&end=${point.end}` }, span(point.start, point.end)),
      peersText(point.peers, point.low),
      interval(point.peers, point.low, point.high),
      h("span", { class: point.reported ? "" : "muted" }, stateIn(point, threshold)),
    ]);
    show(this.past, plainTable(points.length > ROWS ? `The last ${ROWS} of ${whole(points.length)} windows` : "All windows", columns, rows));
  }

  restyle() {
    this.chart.restyle();
  }

  close() {
    this.chart.close();
  }
}

function describe(point, threshold) {
  const state = point.reported ? "" : `, ${stateIn(point, threshold)}`;
  return `${span(point.start, point.end)}: ${peersText(point.peers, point.low)} (${interval(point.peers, point.low, point.high)})${state}`;
}

function factsOf(row, points, summary) {
  const last = row ? { peers: row.peers, low: row.peers_low, high: row.peers_high } : points.at(-1);
  if (!last) return [];
  const found = [
    [row ? "Peers, newest window" : "Peers, last known", peersText(last.peers, last.low), interval(last.peers, last.low, last.high)],
    ["Most, in this time", peersText(...mostOf(points))],
    reportedOf(points, summary.threshold),
  ];
  if (summary.threshold) found.push(["Threshold", whole(summary.threshold)]);
  if (row?.pattern) found.push(["Looks like", patternChip(row.pattern, row.reason)]);
  const names = row ? siteNames(row) : [];
  if (names.length) found.push(["Seen at", count(names.length, "site"), measuredSites(row).length ? "" : names.join(", ")]);
  return found;
}

// The peers of the window with the most, and the least that they are.
function mostOf(points) {
  const known = (point) => point.peers ?? point.low;
  const most = points.reduce((one, other) => (known(other) > known(one) ? other : one), { peers: 0, low: 0 });
  return [most.peers, most.low];
}

function reportedOf(points, threshold) {
  const unknown = points.filter((point) => point.reported === null).length;
  const more = [`of ${whole(points.length)} known`, unknown ? `${whole(unknown)} not kept` : ""].filter(Boolean).join("; ");
  return [threshold ? "Super host in" : "Reported in", count(points.filter((point) => point.reported).length, "window"), more];
}

// Sites with numbers of their own.
const measuredSites = (row) => (row ? sitesOf(row).filter((each) => each.peers_low !== undefined) : []);

function siteTable(sites) {
  const scale = scaleOf(sites);
  const columns = [["Site", ""], ["Peers", "number"], ["95 % interval", "number"], [axis(scale), "wide"]];
  const rows = sites.map((each) => [each.site, peersText(each.peers, each.peers_low), interval(each.peers, each.peers_low, each.peers_high), bar(each, scale)]);
  return plainTable("Sites, newest window", columns, rows);
}

// What the sampled pairs of a host look like, as cards.
function evidenceOf(row) {
  const evidence = row.evidence || {};
  const { ports = [], map, peers = [], nets = {} } = evidence;
  const share = (value) => (value === null || value === undefined ? null : percent(value));
  const items = [
    ["Sampled pairs", evidence.pairs === undefined ? null : `${whole(evidence.pairs)}${evidence.complete ? ", all of them" : ""}`],
    ["It asked the peer", share(evidence.opened)],
    ["Answered", share(evidence.answered)],
    ["Attempts that failed", evidence.attempts ? `${share(evidence.failed)} of ${whole(evidence.attempts)}` : null],
    ["Ports for each peer", evidence.ports_per_peer],
    ["Packets for each peer", evidence.packets_per_peer],
  ].filter(([, text]) => text !== null && text !== undefined);
  const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), content);
  const spread = Object.entries(nets).map(([length, number]) => count(number, `${length} network`)).join(", ");
  return [
    card(
      row.pattern ? `Looks like: ${row.pattern}` : "No known pattern",
      row.reason ? h("p", {}, row.reason) : null,
      h("dl", { class: "facts small" }, items.map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text)))),
    ),
    ports.length ? card("Ports", shareBars(ports.map((each) => [`${each.port}${each.at === "host" ? " at the host" : ""}`, each.share]))) : null,
    spread ? card("Networks of peers", h("p", { class: "muted" }, spread), map ? networkBars(map) : null) : null,
    peers.length ? card("Some peers", h("ul", { class: "peers" }, peers.map((peer) => h("li", { class: "address" }, peer)))) : null,
    map ? h("section", { class: "card whole" }, h("h2", {}, "Where its peers are"), heatStrip(map)) : null,
  ];
}

function networkBars(map) {
  const networks = networksOf(map).filter(([, peers]) => peers > 0);
  const all = networks.reduce((sum, [, peers]) => sum + peers, 0);
  const largest = networks.sort((one, other) => other[1] - one[1]).slice(0, NETWORKS);
  return shareBars(largest.map(([network, peers]) => [network, ...peerShare(peers, all)]));
}
