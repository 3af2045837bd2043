// The sites of a hub, and how they are.

import { get } from "./api.js";
import { bones, h, plainTable, show } from "./dom.js";
import { ago, clock, count, moment, size, whole } from "./format.js";

const SILENT = 3; // windows after which a site that was not heard is gone,
const LEAST = 300; // but not before so many seconds

const known = (value, text) => (value === null || value === undefined ? h("span", { class: "muted" }, "–") : text(value));

export class SitesPage {
  title = "Sites";

  constructor(context) {
    this.context = context;
    this.line = h("p", { class: "time" }, "Reading the sites …");
    this.box = h("section", { class: "card" }, bones(4));
    this.element = h("div", { class: "page" }, h("div", {}, h("h1", {}, "Sites"), this.line), this.box);
    this.timer = setInterval(context.refresh, 15000);
  }

  async refresh(signal) {
    const sites = await get("sites", {}, signal);
    const now = this.context.now();
    const missing = sites.filter((site) => site.in_window === false);
    const there = sites.filter((site) => site.in_window === true);
    const { newest } = this.context.summary;
    const patience = Math.max(LEAST, newest && newest.end !== null ? SILENT * (newest.end - newest.start) : 0);
    const gone = sites.filter((site) => isGone(site, now, patience));
    this.line.textContent = sites.length
      ? newest === null ? `${count(sites.length, "site")}, and no window yet.` : `${whole(there.length)} of ${count(sites.length, "site")} in the newest window${missing.length ? `; missing: ${missing.map((site) => site.site).join(", ")}` : ""}${gone.length ? `; not heard for long: ${gone.map((site) => site.site).join(", ")}` : ""}.`
      : "No site was heard yet.";
    this.box.hidden = sites.length === 0;
    const columns = [["Site", ""], ["State", ""], ["Heard", "number"], ["Its window until", "number"], ["Waiting there", "number"], ["Clock", "number"], ["Taken", "number"], ["Refused", "number"], ["Release", ""]];
    show(this.box, plainTable("Sites of this hub", columns, sites.map((site) => rowOf(site, now, patience)), "unseen"));
  }

  close() {
    clearInterval(this.timer);
  }
}

// Whether a site has not been heard for long, whatever the newest window says, which may be old itself.
const isGone = (site, now, patience) => typeof site.seen === "number" && now - site.seen > patience;

function rowOf(site, now, patience) {
  const state = isGone(site, now, patience) ? h("span", { class: "chip severe" }, "gone") : site.in_window === true ? h("span", { class: "chip good" }, "there") : site.in_window === false ? h("span", { class: "chip warn" }, "missing") : h("span", { class: "muted" }, "–");
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
