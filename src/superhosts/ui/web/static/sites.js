// The sites of a hub, and how they are.

import { get } from "./api.js";
import { h, plainTable, show } from "./dom.js";
import { ago, clock, count, moment, size, whole } from "./format.js";

const known = (value, text) => (value === null || value === undefined ? h("span", { class: "muted" }, "–") : text(value));

export class SitesPage {
  title = "Sites";

  constructor(context) {
    this.context = context;
    this.line = h("p", { class: "time" });
    this.box = h("section", { class: "card" });
    this.element = h("div", { class: "page" }, h("div", {}, h("h1", {}, "Sites"), this.line), this.box);
    this.timer = setInterval(context.refresh, 15000);
  }

  async refresh(signal) {
    const sites = await get("sites", {}, signal);
    const now = this.context.now();
    const missing = sites.filter((site) => site.in_window === false);
    const there = sites.filter((site) => site.in_window === true);
    const { newest } = this.context.summary;
    this.line.textContent = sites.length
      ? newest === null ? `${count(sites.length, "site")}, and no window yet.` : `${whole(there.length)} of ${count(sites.length, "site")} in the newest window${missing.length ? `; missing: ${missing.map((site) => site.site).join(", ")}` : ""}.`
      : "No site was heard yet.";
    this.box.hidden = sites.length === 0;
    const columns = [["Site", ""], ["Newest window", ""], ["Heard", "number"], ["Its window until", "number"], ["Waiting there", "number"], ["Clock", "number"], ["Taken", "number"], ["Refused", "number"], ["Release", ""]];
    show(this.box, plainTable("Sites of this hub", columns, sites.map((site) => rowOf(site, now)), "unseen"));
  }

  close() {
    clearInterval(this.timer);
  }
}

function rowOf(site, now) {
  const state = site.in_window === true ? h("span", { class: "chip good" }, "there") : site.in_window === false ? h("span", { class: "chip warn" }, "missing") : h("span", { class: "muted" }, "–");
  const waits = site.spool_sketches ? `${count(site.spool_sketches, "sketch", "sketches")}, ${size(site.spool_bytes || 0)}` : "0";
  return [
    site.site,
    state,
    known(site.seen, (time) => ago(now - time)),
    known(site.window_end, (time) => (now - time < 86400 ? clock(time) : moment(time))),
    known(site.spool_sketches, () => waits),
    known(site.clock, (clockOff) => h("span", { class: site.clock_wrong ? "chip warn" : "" }, `${clockOff > -0.05 ? "+" : "−"}${Math.abs(clockOff).toFixed(1)} s`)),
    known(site.accepted, whole),
    known(site.refused, (number) => (number ? h("span", { class: "chip warn" }, whole(number)) : "0")),
    known(site.version, (version) => h("span", { title: site.mismatch || "" }, version, site.mismatch ? " (differs)" : "")),
  ];
}
