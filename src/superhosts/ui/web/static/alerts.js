// Alerts that are open and closed, and what is muted: filtered, acknowledged and muted, one or many.

import { get, post } from "./api.js";
import { bones, h, plainTable, say, show, stored } from "./dom.js";
import { testOf } from "./filter.js";
import { count, minute, moment, whole } from "./format.js";
import { patternChip } from "./patterns.js";
import { zone } from "./zone.js";

const HOUR = 3600;
const TIMES = [
  ["1 hour", HOUR],
  ["8 hours", 8 * HOUR],
  ["1 day", 24 * HOUR],
  ["7 days", 7 * 24 * HOUR],
  ["30 days", 30 * 24 * HOUR],
];
const ROWS = 200; // that are shown at first, and with each "more"
const ALL_RULES = "All rules";
const AT_ONCE = 300; // alerts that the server takes
const NAME = "superhosts-by"; // who acknowledges
const ASKED = 5; // alerts of a host whose history is asked for
const STATES = { open: "warn", acknowledged: "usual", muted: "", closed: "" }; // and their colours

const hostLink = (host) => h("a", { href: `#/host/${encodeURIComponent(host)}`, class: "address" }, host);
const sitesOf = (alert) => alert.sites || [alert.site].filter(Boolean);
const nameOf = (alert) => alert.label || alert.name || "";
const peopleOf = (alert) => [alert.owner || alert.acknowledged_by, alert.note].filter(Boolean).join(": ");

export const mayChange = ({ summary }) => summary.can.alerts && summary.may_change !== false;

// `first`: a first column, its heading and a function that returns the cell of an alert.
export function alertTable(caption, alerts, { withHost = true, first = null } = {}) {
  const withSite = alerts.some((alert) => sitesOf(alert).length);
  const withPattern = alerts.some((alert) => alert.pattern);
  const withPeople = alerts.some(peopleOf);
  const columns = [
    ...(first ? [[first.heading, ""]] : []),
    ...(withHost ? [["Host", ""]] : []),
    ["State", ""],
    ["Rule", ""],
    ["Peers", "number"],
    ["Peak", "number"],
    ...(withPattern ? [["Pattern", ""]] : []),
    ...(withSite ? [["Sites", ""]] : []),
    [`Since (${zone})`, ""],
    ["Last seen", ""],
    ...(withPeople ? [["Who, note", ""]] : []),
  ];
  const rows = alerts.map((alert) => [
    ...(first ? [first.cell(alert)] : []),
    ...(withHost ? [h("span", {}, hostLink(alert.host), nameOf(alert) ? h("span", { class: "muted beside" }, nameOf(alert)) : null)] : []),
    stateChip(alert),
    alert.rule,
    whole(alert.peers),
    whole(alert.peak),
    ...(withPattern ? [alert.pattern ? patternChip(alert.pattern, alert.pattern_reason) : ""] : []),
    ...(withSite ? [sitesOf(alert).join(", ")] : []),
    h("a", { href: `#/?start=${alert.opened}`, title: "The window in which it was opened" }, moment(alert.opened)),
    moment(alert.last),
    ...(withPeople ? [peopleOf(alert)] : []),
  ]);
  return plainTable(caption, columns, rows);
}

function stateChip({ state, reason }) {
  const text = state === "closed" && reason && reason !== "quiet" ? `closed: ${reason}` : state;
  return h("span", { class: `chip ${STATES[state] ?? ""}` }, text);
}

export const timeChoice = () => {
  const time = h("select", {}, TIMES.map(([text, seconds]) => h("option", { value: seconds }, text)));
  time.selectedIndex = 2;
  return time;
};

const field = (name, label, input) => h("label", {}, h("span", {}, label), Object.assign(input, { name }));

// A form that mutes; with a host, of that host alone.
export function muteForm(host, onDone) {
  const problem = h("p", { class: "problem", role: "alert" });
  const who = h("input", { type: "text", required: true, value: host || "", placeholder: "10.0.0.1 or 10.0.0.0/24", spellcheck: "false" });
  const rule = h("input", { type: "text", placeholder: "all rules", spellcheck: "false" });
  const time = timeChoice();
  // The server takes no more.
  const why = h("input", { type: "text", maxlength: "500", placeholder: "a note for others" });

  async function submit(event) {
    event.preventDefault();
    problem.textContent = "";
    try {
      await post("mute", { host: who.value.trim(), rule: rule.value.trim(), seconds: Number(time.value), why: why.value, by: stored(NAME) || "" });
      say(`${who.value} is muted`);
      why.value = "";
      if (!host) who.value = "";
      event.target.closest("details")?.removeAttribute("open");
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

// A form that acknowledges some alerts, or takes that back.
export function acknowledgeForm(idsOf, onDone) {
  const problem = h("p", { class: "problem", role: "alert" });
  const by = h("input", { type: "text", maxlength: "100", value: stored(NAME) || "", placeholder: "who looks after it", autocomplete: "name" });
  const note = h("input", { type: "text", maxlength: "500", placeholder: "a note for others" });
  async function send(off) {
    problem.textContent = "";
    stored(NAME, by.value);
    try {
      const ids = idsOf();
      while (ids.length) await post("acknowledge", { alerts: ids.splice(0, AT_ONCE), by: by.value, note: note.value, off });
      say(off ? "not acknowledged any more" : "acknowledged");
      note.value = "";
      form.closest("details")?.removeAttribute("open");
      onDone();
    } catch (error) {
      problem.textContent = error.message;
    }
  }
  const submit = (event) => {
    event.preventDefault();
    send(false);
  };
  const form = h(
    "form",
    { class: "fields", onsubmit: submit, "aria-label": "Acknowledge" },
    field("by", "By", by),
    field("note", "Note", note),
    h("button", { type: "submit" }, "Acknowledge"),
    h("button", { type: "button", onclick: () => send(true) }, "Take back"),
    problem,
  );
  return form;
}

export function unmuteButton(mute, onDone, onFailed) {
  const unmute = async () => {
    try {
      await post("unmute", { host: mute.host, rule: mute.rule });
      say(`${mute.host} is not muted any more`);
      onDone();
    } catch (error) {
      onFailed(error);
    }
  };
  return h("button", { type: "button", class: "small", "aria-label": `Unmute ${mute.host}`, onclick: unmute }, "Unmute");
}

function mutedTable(muted, context) {
  const may = mayChange(context);
  const columns = [["Muted", ""], ["Rule", ""], [`Until (${zone})`, ""], ["Why", ""], ...(may ? [["Action", ""]] : [])];
  const rows = muted.map((each) => [
    h("span", { class: "address" }, each.host),
    each.rule || "all",
    moment(minute(each.until)),
    each.why,
    ...(may ? [unmuteButton(each, context.restart, context.fail)] : []),
  ]);
  return plainTable("Muted", columns, rows);
}

// What has happened to alerts, the newest last: the last ones as the server tells of each, older ones as they say it themselves.
export async function historyOf(alerts, signal) {
  const answers = await Promise.all(alerts.slice(0, ASKED).map((alert) => get("alert", { id: alert.id }, signal).catch(() => null)));
  const found = alerts.flatMap((alert, at) => {
    const known = answers[at]?.history;
    const events = known?.length ? known : [{ at: alert.opened, event: "opened" }, ...(alert.closed ? [{ at: alert.closed, event: "closed" }] : [])];
    return events.map((each) => ({ ...each, rule: alert.rule }));
  });
  return found.sort((one, other) => one.at - other.at);
}

// What people did has their words; of the rest, the sentence is as long as a line of the log.
const eventText = ({ event, text, by }) => (by ? `${event} by ${by}${text ? `: ${text}` : ""}` : event);

export function historyList(events) {
  return h("ol", { class: "history" }, events.map((each) => h("li", { title: each.text || null }, h("time", { class: "muted" }, moment(minute(each.at))), h("span", { class: `dot ${each.event}` }), h("span", {}, eventText(each)), h("span", { class: "muted" }, each.rule))));
}

export class AlertsPage {
  title = "Alerts";

  constructor(context) {
    this.context = context;
    this.drawn = ""; // the answer that is shown
    this.chosen = new Set(); // ids
    this.most = ROWS;
    this.found = { alerts: [], muted: [] };
    this.may = mayChange(context);
    const change = () => this.drawTable();
    this.state = h("select", { onchange: change }, [["open", "Open"], ["acknowledged", "Acknowledged"], ["muted", "Muted"], ["closed", "Closed"], ["", "All"]].map(([value, text]) => h("option", { value }, text)));
    this.rule = h("select", { onchange: change }, h("option", { value: "" }, ALL_RULES));
    this.site = h("select", { onchange: change });
    this.siteField = h("label", { hidden: true }, h("span", {}, "Site"), this.site);
    this.words = h("input", { type: "search", id: "filter", placeholder: "Words, or 10.0.0.0/8", autocomplete: "off", spellcheck: "false", oninput: change });
    this.tally = h("p", { class: "time", role: "status" }, "Reading the alerts …");
    this.list = h("div", {}, bones(6));
    this.many = h("div", { class: "many", hidden: true });
    this.muted = h("section", { class: "card" }, bones(2));
    const filters = h(
      "div",
      { class: "fields", role: "group", "aria-label": "Filter" },
      h("label", {}, h("span", {}, "State"), this.state),
      h("label", {}, h("span", {}, "Rule"), this.rule),
      this.siteField,
      h("label", {}, h("span", {}, "Host, prefix or text"), this.words),
    );
    const form = this.may ? h("section", { class: "card" }, h("h2", {}, "Mute a host"), muteForm("", context.restart)) : null;
    this.element = h("div", { class: "page" }, h("div", {}, h("h1", {}, "Alerts"), this.tally), h("section", { class: "card" }, filters, this.many, this.list), this.muted, form);
  }

  async refresh(signal) {
    const answer = await get("alerts", {}, signal);
    const text = JSON.stringify(answer);
    if (text === this.drawn) return; // A button that is replaced while somebody presses it would not be pressed.
    this.drawn = text;
    this.found = answer;
    const { alerts, muted } = answer;
    choices(this.rule, ALL_RULES, alerts.map((each) => each.rule));
    choices(this.site, "All sites", alerts.flatMap(sitesOf));
    this.siteField.hidden = this.site.options.length < 2;
    this.drawTable();
    show(this.muted, muted.length ? mutedTable(muted, this.context) : h("p", { class: "muted" }, "Nothing is muted."));
  }

  wanted() {
    const { alerts } = this.found;
    const test = testOf(this.words.value);
    const state = this.state.value;
    const found = alerts.filter((alert) => {
      if (state === "open" ? alert.closed : state && alert.state !== state) return false;
      if ((this.rule.value && alert.rule !== this.rule.value) || (this.site.value && !sitesOf(alert).includes(this.site.value))) return false;
      return test(String(alert.host), [alert.host, alert.rule, nameOf(alert), alert.pattern, ...sitesOf(alert), alert.reason, peopleOf(alert)].join("\n"));
    });
    const openFirst = (one, other) => Number(Boolean(one.closed)) - Number(Boolean(other.closed)) || other.peers - one.peers;
    return state === "closed" ? found : found.sort(openFirst);
  }

  drawTable() {
    const { alerts, muted } = this.found;
    const found = this.wanted();
    const open = alerts.filter((each) => !each.closed);
    const ids = new Set(found.map((each) => each.id));
    this.chosen = new Set([...this.chosen].filter((id) => ids.has(id)));
    this.tally.textContent = `${whole(open.length)} open, ${whole(alerts.length - open.length)} closed, ${count(muted.length, "mute")}`;
    if (found.length === 0) show(this.list, h("p", { class: "empty" }, alerts.length === 0 ? "No alert was opened yet." : "No alert matches the filter."));
    else {
      const first = this.may ? { heading: this.allBox(found), cell: (alert) => this.box(alert) } : null;
      const left = found.length - this.most;
      const more = left > 0 ? h("button", { type: "button", class: "more", onclick: () => this.showMore() }, `Show ${whole(Math.min(left, ROWS))} more of ${whole(left)}`) : null;
      show(this.list, alertTable(captionOf(this.state, found.length), found.slice(0, this.most), { first }), more);
    }
    this.drawMany();
  }

  showMore() {
    this.most += ROWS;
    this.drawTable();
  }

  box(alert) {
    const change = (event) => {
      if (event.target.checked) this.chosen.add(alert.id);
      else this.chosen.delete(alert.id);
      this.drawMany();
    };
    return h("input", { type: "checkbox", "aria-label": `Choose ${alert.host}, ${alert.rule}`, checked: this.chosen.has(alert.id), onchange: change });
  }

  allBox(found) {
    const all = h("input", { type: "checkbox", "aria-label": "Choose all", checked: found.every((each) => this.chosen.has(each.id)) });
    all.addEventListener("change", () => {
      this.chosen = new Set(all.checked ? found.map((each) => each.id) : []);
      this.drawTable();
    });
    return all;
  }

  // What can be done to all alerts that are chosen.
  drawMany() {
    this.many.hidden = this.chosen.size === 0;
    if (this.chosen.size === 0) show(this.many);
    else if (this.many.childElementCount === 0) {
      const done = () => {
        this.chosen.clear();
        this.drawTable();
        this.context.restart();
      };
      show(this.many, h("strong", {}), acknowledgeForm(() => [...this.chosen], done), this.muteMany(done));
    }
    if (this.chosen.size) this.many.firstChild.textContent = count(this.chosen.size, "alert");
  }

  muteMany(onDone) {
    const problem = h("p", { class: "problem", role: "alert" });
    const time = timeChoice();
    const why = h("input", { type: "text", maxlength: "500", placeholder: "a note for others" });
    const submit = async (event) => {
      event.preventDefault();
      problem.textContent = "";
      const alerts = this.found.alerts.filter((each) => this.chosen.has(each.id));
      try {
        for (const { host, rule } of alerts) await post("mute", { host: String(host), rule, seconds: Number(time.value), why: why.value, by: stored(NAME) || "" });
        say(`${count(alerts.length, "alert")} muted`);
        onDone();
      } catch (error) {
        problem.textContent = error.message;
      }
    };
    return h("form", { class: "fields", onsubmit: submit, "aria-label": "Mute those chosen" }, field("seconds", "For", time), field("why", "Why", why), h("button", { type: "submit" }, "Mute those chosen"), problem);
  }
}

const captionOf = (state, number) => `${state.selectedOptions[0].textContent}: ${count(number, "alert")}`;

// Puts values into a choice, and keeps what was chosen.
function choices(select, all, values) {
  const before = select.value;
  show(select, h("option", { value: "" }, all), [...new Set(values)].filter(Boolean).sort().map((value) => h("option", { value }, value)));
  select.value = [...select.options].some((option) => option.value === before) ? before : "";
}
