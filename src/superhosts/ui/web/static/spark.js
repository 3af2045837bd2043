// Small pictures in tables and cards: the last windows of a host, shares as bars, and where in a network its peers are.

import { h, svg } from "./dom.js";
import { count, percent, whole } from "./format.js";

const [STEP, TALL] = [4, 20];

// A bar for each window, the last one marked; null: the host was not among those that are kept.
export function sparkline(values) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  const bar = (value, at) => (value === null ? "" : `M${at * STEP} ${TALL}v${-Math.max(1.5, (value / most) * (TALL - 1)).toFixed(1)}h${STEP - 1}V${TALL}z`);
  const last = values.length - 1;
  const width = values.length * STEP - 1;
  return svg(
    "svg",
    { class: "spark", width, height: TALL, viewBox: `0 0 ${width} ${TALL}`, "aria-hidden": "true" },
    svg("path", { class: "past", d: values.slice(0, last).map(bar).join("") }),
    svg("path", { class: "last", d: bar(values[last], last) }),
  );
}

// `items`: [text, share, title].
export function shareBars(items) {
  const most = Math.max(...items.map(([, share]) => share), 0.001);
  return h(
    "ul",
    { class: "shares" },
    items.map(([text, share, title]) => {
      const bar = h("span", { class: "share", "aria-hidden": "true" });
      bar.style.width = `${Math.max(1, (100 * share) / most)}%`;
      return h("li", { title: title || null }, h("span", { class: "term" }, text), h("span", { class: "room" }, bar), h("span", { class: "number" }, percent(share)));
    }),
  );
}

// The map of evidence as networks: [network, peers], in the order of addresses.
export function networksOf({ within, cells }) {
  const [address, text] = within.split("/");
  const length = Number(text);
  return [...cells].map((digit, part) => [partOf(address, length, part), Number.parseInt(digit, 36)]);
}

// The network of one of the 256 parts of a prefix of whole bytes.
function partOf(address, length, part) {
  if (!address.includes(":")) {
    const bytes = address.split(".").map(Number);
    bytes[length / 8] = part;
    return `${bytes.join(".")}/${length + 8}`;
  }
  const [front, back = ""] = address.split("::");
  const [first, last] = [front, back].map((half) => half.split(":").filter(Boolean));
  const groups = [...first, ...Array(8 - first.length - last.length).fill("0"), ...last].map((group) => Number.parseInt(group, 16));
  groups[Math.floor(length / 16)] |= length % 16 ? part : part << 8;
  const shown = groups.slice(0, Math.ceil((length + 8) / 16));
  return `${shown.map((group) => group.toString(16)).join(":")}::/${length + 8}`;
}

export function heatStrip(map) {
  const parts = networksOf(map);
  const hit = parts.filter(([, peers]) => peers > 0);
  const most = Math.max(...parts.map(([, peers]) => peers));
  const length = hit.length ? hit[0][0].split("/")[1] : "";
  const told = `Sampled peers in ${count(hit.length, `/${length}`, `/${length}s`)} of the 256 in ${map.within}.`;
  const cells = parts.map(([network, peers], at) => {
    const heat = peers === 0 ? 0 : Math.min(5, 1 + Math.floor((4 * Math.log(peers)) / Math.max(Math.log(most), 1)));
    const number = peers >= 35 ? "35 or more sampled peers" : peers ? count(peers, "sampled peer") : "none";
    return svg("rect", { class: `heat-${heat}`, x: at, y: 0, width: 1, height: 1 }, svg("title", {}, `${network}: ${number}`));
  });
  const marks = [0, 64, 128, 192, 255].map((at) => h("span", {}, parts[at][0]));
  return h(
    "div",
    { class: "heat" },
    svg("svg", { role: "img", "aria-label": told, viewBox: "0 0 256 1", preserveAspectRatio: "none" }, cells),
    h("div", { class: "marks", "aria-hidden": "true" }, marks),
    h("p", { class: "muted" }, told),
  );
}

export const peerShare = (number, all) => [number / all, `${whole(number)} of ${count(all, "sampled peer")}`];
