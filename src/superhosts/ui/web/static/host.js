// One host: its past, its evidence, its alerts.

import { get } from "./api.js";
import { alertTable, muteForm } from "./alerts.js";
import { axis, bar, scaleOf } from "./bars.js";
import { TimeChart, when } from "./charts.js";
import { h, notices, plainTable, show } from "./dom.js";
import { count, interval, peersText, percent, span, whole } from "./format.js";
import { partOf, siteNames, sitesOf } from "./rows.js";
import { zone } from "./zone.js";

const QUICK = 2000; // milliseconds of a question that may be asked again with each window
const SPANS = [
  ["Last day", 86400],
  ["Last week", 7 * 86400],
  ["All", null],
];
const ROWS = 100;

// Whether a host was a super host; of older windows only the largest hosts are kept, so that it may be unknown.
function stateOf(point, threshold) {
  if (point.reported) return threshold ? "super host" : "reported";
  if (point.reported === null) return "not kept";
  return point.peers !== null && point.peers < threshold ? "below the threshold" : "not reported";
}

export class HostPage {
  constructor(context, _, host) {
    this.context = context;
    this.host = host;
    this.title = host;
    this.length = 86400;
    this.took = 0;
    this.part = null;
    this.name = h("p", { class: "time" });
    this.facts = h("dl", { class: "facts card" });
    this.notes = h("div", { class: "notes" });
    this.spans = h("div", { class: "buttons", role: "group", "aria-label": "Time" });
    this.choice = h("select", { "aria-label": "Side and direction", onchange: () => this.pick() });
    this.chart = new TimeChart({
      title: "Peers in each window",
      kind: "points",
      height: 240,
      line: context.summary.threshold,
      describe: (point) => `${when(point)}: ${peersText(point.value, point.low)} (${interval(point.value, point.low, point.high)})${point.hollow ? `, ${point.state}` : ""}`,
    });
    this.sites = h("section", { class: "card" });
    this.evidence = h("section", { class: "card" });
    this.alerts = h("section", { class: "card" });
    this.past = h("section", { class: "card" });
    this.mute = context.summary.can.alerts ? h("section", { class: "card" }, h("h2", {}, "Mute"), muteForm(host, context.restart)) : null;
    this.element = h(
      "div",
      { class: "page" },
      h("div", { class: "heading" }, h("div", {}, h("h1", { class: "address" }, host), this.name), h("div", { class: "buttons" }, this.choice, this.spans)),
      this.notes,
      this.facts,
      this.chart.element,
      this.sites,
      this.evidence,
      this.alerts,
      this.mute,
      this.past,
    );
    this.drawSpans();
    this.sites.hidden = this.evidence.hidden = this.alerts.hidden = this.choice.hidden = true;
  }

  // A long question is not asked again by itself.
  async changed(signal) {
    if (this.took < QUICK) await this.refresh(signal);
    else show(this.notes, h("p", { class: "notice" }, "A new window is there. ", h("button", { type: "button", onclick: this.context.restart }, "Ask again")));
  }

  async refresh(signal) {
    if (this.found === undefined) show(this.notes, notices(["Asking …"]));
    const newest = this.context.summary.newest;
    const start = this.length !== null && newest && newest.end !== null ? newest.end - this.length : null;
    const begun = performance.now();
    this.found = await get("host", { host: this.host, start }, signal);
    this.took = performance.now() - begun;
    if (start !== null) this.found.points = this.found.points.filter((point) => point.end > start);
    this.draw();
  }

  drawSpans() {
    show(
      this.spans,
      SPANS.map(([text, seconds]) =>
        h("button", { type: "button", "aria-pressed": String(this.length === seconds), onclick: () => this.choose(seconds) }, text),
      ),
    );
  }

  choose(seconds) {
    this.length = seconds;
    this.drawSpans();
    this.context.restart();
  }

  pick() {
    this.part = this.choice.value;
    this.drawPart();
  }

  draw() {
    const { rows, points, alerts, name, notes } = this.found;
    this.name.textContent = [name, placeOf(rows[0])].filter(Boolean).join(" · ");
    show(this.notes, notices([...notes, ...(points.length ? [] : ["Nothing is known of this host in this time."])]));
    const parts = [...new Set([...rows, ...points].map(partOf))];
    if (!parts.includes(this.part)) this.part = parts[0];
    this.choice.hidden = parts.length < 2;
    show(this.choice, parts.map((part) => h("option", { value: part }, part)));
    this.choice.value = this.part;
    this.alerts.hidden = alerts.length === 0;
    if (alerts.length) show(this.alerts, alertTable("Alerts of this host", alerts, false));
    this.drawPart();
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
    const shown = points.map((point) => ({ start: point.start, end: point.end, value: point.peers, low: point.low, high: point.high, hollow: !point.reported, state: stateOf(point, threshold) }));
    const last = points.at(-1);
    this.chart.put(shown, null, last ? `Peers of ${this.host} in ${count(points.length, "window")}; in the last ${peersText(last.peers, last.low)}, interval ${interval(last.peers, last.low, last.high)}. The table below has all of them.` : "No windows.");
    this.chart.element.hidden = points.length === 0;
    this.past.hidden = points.length === 0;
    const newest = [...points].reverse().slice(0, ROWS);
    const columns = [[`Window (${zone})`, ""], ["Peers", "number"], ["95 % interval", "number"], ["State", ""]];
    const rows = newest.map((point) => [span(point.start, point.end), peersText(point.peers, point.low), interval(point.peers, point.low, point.high), point.reported ? stateOf(point, threshold) : h("span", { class: "muted" }, stateOf(point, threshold))]);
    show(this.past, plainTable(points.length > ROWS ? `The last ${ROWS} of ${whole(points.length)} windows` : "All windows", columns, rows));
  }

  restyle() {
    this.chart.restyle();
  }

  close() {
    this.chart.close();
  }
}

function placeOf(row) {
  if (!row) return "";
  const system = row.asn ? `AS${row.asn}${row.as_name ? ` ${row.as_name}` : ""}` : "";
  return [row.label && row.name ? row.name : "", system, row.country || ""].filter(Boolean).join(" · ");
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

// What the sampled pairs of a host look like.
function evidenceOf(row) {
  const evidence = row.evidence || {};
  const share = (value) => (value === null || value === undefined ? null : percent(value));
  const items = [
    ["Sampled pairs", evidence.pairs === undefined ? null : `${whole(evidence.pairs)}${evidence.complete ? ", all of them" : ""}`],
    ["It asked the peer", share(evidence.opened)],
    ["Answered", share(evidence.answered)],
    ["Attempts that failed", evidence.attempts ? `${share(evidence.failed)} of ${whole(evidence.attempts)}` : null],
    ["Main ports", (evidence.ports || []).map((each) => `${each.port}${each.at === "host" ? " at the host" : ""} ${share(each.share)}`).join(", ")],
    ["Ports for each peer", evidence.ports_per_peer],
    ["Packets for each peer", evidence.packets_per_peer],
    ["Networks of peers", Object.entries(evidence.nets || {}).map(([length, number]) => `${whole(number)} of ${length}`).join(", ")],
    ["Some peers", (evidence.peers || []).join(", ")],
  ].filter(([, text]) => text !== null && text !== undefined && text !== "");
  return [
    h("h2", {}, row.pattern ? `Looks like: ${row.pattern}` : "No known pattern"),
    row.reason ? h("p", {}, row.reason) : null,
    h("dl", { class: "facts small" }, items.map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text)))),
  ];
}
