// Alerts that are open and closed, and what is muted.

import { get, post } from "./api.js";
import { h, plainTable, say, show } from "./dom.js";
import { moment, whole } from "./format.js";
import { zone } from "./zone.js";

const HOUR = 3600;
const TIMES = [
  ["1 hour", HOUR],
  ["8 hours", 8 * HOUR],
  ["1 day", 24 * HOUR],
  ["7 days", 7 * 24 * HOUR],
  ["30 days", 30 * 24 * HOUR],
];

const hostLink = (host) => h("a", { href: `#/host/${encodeURIComponent(host)}`, class: "address" }, host);

export function alertTable(caption, alerts, withHost = true) {
  const columns = [
    ...(withHost ? [["Host", ""]] : []),
    ["Rule", ""],
    ["Peers", "number"],
    ["Peak", "number"],
    [`Since (${zone})`, "number"],
    ["Last seen", "number"],
    ["State", ""],
  ];
  const rows = alerts.map((alert) => [
    ...(withHost ? [hostLink(alert.host)] : []),
    alert.rule,
    whole(alert.peers),
    whole(alert.peak),
    moment(alert.opened),
    moment(alert.last),
    alert.closed ? (!alert.reason || alert.reason === "quiet" ? "closed" : `closed: ${alert.reason}`) : h("span", { class: "chip warn" }, "open"),
  ]);
  return plainTable(caption, columns, rows);
}

// A form that mutes; with a host, of that host alone.
export function muteForm(host, onDone) {
  const problem = h("p", { class: "problem", role: "alert" });
  const field = (name, label, input) => h("label", {}, h("span", {}, label), Object.assign(input, { name }));
  const who = h("input", { type: "text", required: true, value: host || "", placeholder: "10.0.0.1 or 10.0.0.0/24", spellcheck: "false" });
  const rule = h("input", { type: "text", placeholder: "all rules", spellcheck: "false" });
  const time = h("select", {}, TIMES.map(([text, seconds]) => h("option", { value: seconds }, text)));
  time.selectedIndex = 2;
  // The server takes no more.
  const why = h("input", { type: "text", maxlength: "500", placeholder: "a note for others" });

  async function submit(event) {
    event.preventDefault();
    problem.textContent = "";
    try {
      await post("mute", { host: who.value.trim(), rule: rule.value.trim(), seconds: Number(time.value), why: why.value });
      say(`${who.value} is muted`);
      why.value = "";
      if (!host) who.value = "";
      onDone();
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  return h(
    "form",
    { class: "fields", onsubmit: submit, "aria-label": "Mute" },
    host ? null : field("host", "Host or prefix", who),
    field("rule", "Rule", rule),
    field("seconds", "For", time),
    field("why", "Why", why),
    h("button", { type: "submit" }, host ? "Mute this host" : "Mute"),
    problem,
  );
}

export function mutedTable(muted, onDone, onFailed) {
  const columns = [["Muted", ""], ["Rule", ""], [`Until (${zone})`, "number"], ["Why", ""], ["Action", ""]];
  const rows = muted.map((each) => [
    h("span", { class: "address" }, each.host),
    each.rule || "all",
    moment(each.until),
    each.why,
    h(
      "button",
      {
        type: "button",
        class: "small",
        "aria-label": `Unmute ${each.host}`,
        onclick: async () => {
          try {
            await post("unmute", { host: each.host, rule: each.rule });
            say(`${each.host} is not muted any more`);
            onDone();
          } catch (error) {
            onFailed(error);
          }
        },
      },
      "Unmute",
    ),
  ]);
  return plainTable("Muted", columns, rows);
}

export class AlertsPage {
  title = "Alerts";

  constructor(context) {
    this.context = context;
    this.drawn = ""; // the answer that is shown
    this.open = h("section", { class: "card" });
    this.muted = h("section", { class: "card" });
    this.closed = h("section", { class: "card" });
    const form = h("section", { class: "card" }, h("h2", {}, "Mute a host"), muteForm("", context.restart));
    this.heading = h("h1", {}, "Alerts");
    this.element = h("div", { class: "page" }, this.heading, this.open, form, this.muted, this.closed);
  }

  async refresh(signal) {
    const answer = await get("alerts", {}, signal);
    const text = JSON.stringify(answer);
    if (text === this.drawn) return; // A button that is replaced while somebody presses it would not be pressed.
    this.drawn = text;
    const { alerts, muted } = answer;
    const open = alerts.filter((each) => !each.closed).sort((one, other) => other.peers - one.peers);
    const closed = alerts.filter((each) => each.closed);
    show(this.open, open.length ? alertTable("Open", open) : h("p", { class: "muted" }, "No alert is open."));
    show(this.muted, muted.length ? mutedTable(muted, this.context.restart, this.context.fail) : h("p", { class: "muted" }, "Nothing is muted."));
    show(this.closed, closed.length ? alertTable("Closed", closed) : h("p", { class: "muted" }, "No alert was closed yet."));
  }
}
