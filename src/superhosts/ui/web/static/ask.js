// Saved sketches asked again: another threshold, a longer time, other sites.

import { get } from "./api.js";
import { h, notices, say, show } from "./dom.js";
import { count, span, whole } from "./format.js";
import { HostTable } from "./hosttable.js";
import { secondsOf, zone } from "./zone.js";

const SPANS = [
  ["The newest hour", 3600],
  ["The newest day", 86400],
  ["The newest week", 7 * 86400],
  ["All that is kept", null],
  ["From – to", "custom"],
];

export class AskPage {
  title = "Ask again";

  constructor(context) {
    this.context = context;
    const { threshold } = context.summary;
    this.threshold = h("input", { type: "number", min: "1", step: "any", value: threshold ?? 1024, inputmode: "numeric" });
    this.top = h("input", { type: "number", min: "1", step: "1", placeholder: "all", inputmode: "numeric" });
    this.time = h("select", { onchange: () => this.drawTimes() }, SPANS.map(([text], at) => h("option", { value: at }, text)));
    this.from = h("input", { type: "datetime-local", step: "1" });
    this.to = h("input", { type: "datetime-local", step: "1" });
    this.fromField = h("label", {}, h("span", {}, `From (${zone})`), this.from);
    this.toField = h("label", {}, h("span", {}, `To (${zone})`), this.to);
    this.asked = false; // the question that the form has at first is asked when the page opens
    this.names = []; // of sites that can be asked alone
    this.sites = h("fieldset", { class: "site-boxes" });
    this.leaving = new AbortController();
    this.button = h("button", { type: "submit" }, "Ask");
    this.answer = h("p", { class: "time", role: "status" });
    this.problem = h("p", { class: "problem", role: "alert" });
    this.notes = h("div", { class: "notes" });
    this.table = new HostTable("Hosts of the answer");
    this.table.element.hidden = true;
    this.element = h(
      "div",
      { class: "page" },
      h("div", {}, h("h1", {}, "Ask again"), h("p", { class: "time" }, "Merges the saved sketches of a time: a peer that is seen in many windows counts once.")),
      h(
        "form",
        { class: "card fields", onsubmit: (event) => this.submit(event), "aria-label": "Question" },
        h("label", {}, h("span", {}, "Peers, at least"), this.threshold),
        h("label", {}, h("span", {}, "Only the largest"), this.top),
        h("label", {}, h("span", {}, "Time"), this.time),
        this.fromField,
        this.toField,
        this.sites,
        this.button,
      ),
      this.problem,
      this.answer,
      this.notes,
      this.table.element,
    );
    this.drawTimes();
    this.changed();
  }

  async refresh(signal) {
    await this.context.readSummary(signal); // other sketches may be there since the last page
    this.changed();
    if (!this.asked) this.submit();
  }

  // Sites of which there are only unions with others cannot be asked alone.
  changed() {
    const names = this.context.summary.askable ?? [];
    const isSame = names.join(",") === this.names.join(",");
    this.names = names;
    this.sites.hidden = names.length < 2;
    if (isSame) return;
    const left = new Set(this.boxes().filter((box) => !box.checked).map((box) => box.value));
    show(this.sites, h("legend", {}, "Sites"), names.map((name) => h("label", { class: "check" }, h("input", { type: "checkbox", value: name, checked: !left.has(name) }), name)));
  }

  boxes() {
    return [...this.sites.querySelectorAll("input")];
  }

  close() {
    this.leaving.abort();
  }

  drawTimes() {
    const custom = SPANS[this.time.value][1] === "custom";
    this.fromField.hidden = this.toField.hidden = !custom;
  }

  question() {
    const length = SPANS[this.time.value][1];
    const newest = this.context.summary.newest;
    const asked = { threshold: this.threshold.value, top: this.top.value };
    if (length === "custom") {
      asked.start = secondsOf(this.from.value);
      asked.end = secondsOf(this.to.value);
    } else if (length !== null && newest && newest.end !== null) asked.start = newest.end - length;
    const boxes = this.names.length < 2 ? [] : this.boxes();
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    if (boxes.length && chosen.length === 0) throw new Error("choose at least one site");
    if (chosen.length < boxes.length) asked.sites = chosen.join(",");
    return asked;
  }

  async submit(event) {
    event?.preventDefault();
    this.asked = true;
    this.problem.textContent = "";
    show(this.notes);
    this.answer.textContent = "Asking …";
    this.table.element.hidden = false;
    this.button.disabled = true;
    const begun = performance.now();
    try {
      const found = await get("ask", this.question(), this.leaving.signal);
      const took = (performance.now() - begun) / 1000;
      const sites = found.sites.length ? ` of ${found.sites.join(", ")}` : "";
      this.answer.textContent = `${found.title}. ${span(found.start, found.end)} ${zone}, from ${count(found.sketches, "sketch", "sketches")}${sites}, in ${took.toFixed(2)} s.`;
      const cut = found.rows.length < found.hosts ? [`The largest ${whole(found.rows.length)} of ${count(found.hosts, "host")} are shown.`] : [];
      show(this.notes, notices([...found.notes, ...cut]));
      this.table.element.hidden = false;
      this.table.put(found.rows, `Hosts of the answer, ${span(found.start, found.end)}`);
      say(`${count(found.hosts, "host")} found`);
    } catch (error) {
      this.answer.textContent = "";
      this.table.element.hidden = true;
      if (error.name !== "AbortError") this.problem.textContent = error.message;
    } finally {
      this.button.disabled = false;
    }
  }
}
