// Patterns of hosts: how much they matter, and their colours, which are variables of the style sheet.

import { h } from "./dom.js";

export const SEVERE = "severe"; // somebody should look at once
const NOTABLE = "notable"; // usual at some hosts, trouble at others
const USUAL = "usual";

// The order is that in graphs, from the bottom up: what is usual at the bottom.
const KNOWN = new Map([
  ["", { level: "", color: "--pattern-none" }],
  ["client, proxy or NAT", { level: USUAL, color: "--pattern-client" }],
  ["server", { level: USUAL, color: "--pattern-server" }],
  ["web server", { level: USUAL, color: "--pattern-web" }],
  ["mail server", { level: USUAL, color: "--pattern-mail" }],
  ["peer-to-peer", { level: NOTABLE, color: "--pattern-p2p" }],
  ["reflector or resolver", { level: NOTABLE, color: "--pattern-resolver" }],
  ["scanned by many", { level: SEVERE, color: "--pattern-scanned" }],
  ["DDoS or flash crowd", { level: SEVERE, color: "--pattern-flood" }],
  ["vertical scan", { level: SEVERE, color: "--pattern-vertical" }],
  ["prefix sweep", { level: SEVERE, color: "--pattern-sweep" }],
  ["horizontal scan", { level: SEVERE, color: "--pattern-scan" }],
]);
const ORDER = [...KNOWN.keys()];
const OTHER = { level: "", color: "--pattern-none" };

export const levelOf = (pattern) => (KNOWN.get(pattern) || OTHER).level;
export const colorOf = (pattern) => (KNOWN.get(pattern) || OTHER).color;
export const inOrder = (patterns) => [...patterns].sort((one, other) => ORDER.indexOf(one) - ORDER.indexOf(other));
export const rankOf = (pattern) => (pattern ? [USUAL, "", NOTABLE, SEVERE].indexOf(levelOf(pattern)) + 1 : 0);

export const patternChip = (pattern, reason) => h("span", { class: `chip ${levelOf(pattern) || USUAL}`, title: reason || "" }, pattern);
