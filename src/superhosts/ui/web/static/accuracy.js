// How exact the numbers of the last window are, and how full its sketch was, in words.

import { get } from "./api.js";
import { bones, h, show } from "./dom.js";
import { count, percent, whole } from "./format.js";

const CROWDED = 0.75; // share of set bits from which small hosts may be false at usual thresholds
const FILLING = 0.5;

export class AccuracyPage {
  title = "Accuracy";

  constructor(context) {
    this.context = context;
    this.accuracy = h("section", { class: "card" }, h("h2", {}, "How exact the numbers are"), bones(2));
    this.parts = h("div", { class: "parts" }, h("section", { class: "card" }, bones(3)));
    this.element = h("div", { class: "page" }, h("h1", {}, "Accuracy"), this.accuracy, this.parts);
  }

  async refresh(signal) {
    const { parts, accuracy } = await get("sketch", {}, signal);
    show(this.accuracy, h("h2", {}, "How exact the numbers are"), accuracyText(accuracy).map((text) => h("p", {}, text)));
    show(this.parts, parts.map(partCard));
    if (parts.length === 0) show(this.parts, h("p", { class: "muted" }, "How full the sketch is appears here when a window has closed."));
  }
}

function accuracyText(accuracy) {
  if (accuracy === null) return ["No host of the newest window shows how exact its numbers are."];
  if (accuracy.share === 0) return ["All peers of the newest window were counted exactly."];
  const about = Math.round(accuracy.peers * accuracy.share);
  return [
    `A host with ${whole(accuracy.peers)} peers, which is typical of the newest window, is known to within ± ${percent(accuracy.share)}: ± ${count(about, "peer")}.`,
    "The interval holds the true number 95 times in 100. Larger hosts are known about as exactly in percent.",
  ];
}

function partCard(part) {
  const family = part.family ? `IPv${part.family}` : "Keys";
  const [share, words] = fillText(part);
  const meter = h("div", { class: "meter", "aria-hidden": "true" }, h("div", {}));
  meter.firstChild.style.width = `${100 * Math.min(share ?? 0, 1)}%`;
  meter.firstChild.className = share >= CROWDED && !part.exact ? "crowded" : "";
  return h("section", { class: "card" }, h("h2", {}, `${family}, ${part.side} hosts${part.direction === "any" ? "" : `, ${part.direction}`}`), share === null ? null : meter, words.map((text) => h("p", {}, text)));
}

function fillText(part) {
  const pairs = part.pairs === null ? "" : count(part.pairs, "distinct pair");
  if (part.exact) {
    const room = part.capacity === null ? "" : ` That is ${percent(part.capacity)} of what it holds before it begins to estimate.`;
    return [part.capacity, [`Counted exactly: ${pairs || "every pair is kept"}.${room}`]];
  }
  if (part.fill === null) return [null, ["This detector does not tell how full it is."]];
  const state = part.fill >= CROWDED ? "Crowded: hosts near the threshold may be false or missing. More --memory, or a higher --threshold, helps." : part.fill >= FILLING ? "Filling up: there is still room, but not for twice the traffic." : "Roomy: there is space for more traffic.";
  const full = part.saturated ? ` ${count(part.saturated, "column")} without a zero bit: hosts there have no upper bound.` : "";
  return [part.fill, [`Estimated from bits, of which ${percent(part.fill)} are set, by about ${pairs}.${full}`, state]];
}
