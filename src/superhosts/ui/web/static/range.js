// Which time graphs show: the last hours or days, all, or what was brushed in a graph.

import { h, show } from "./dom.js";
import { clock, dayOfYear } from "./format.js";

const DAY = 86400;
const LENGTHS = [
  ["1 h", 3600],
  ["6 h", 6 * 3600],
  ["24 h", DAY],
  ["7 d", 7 * DAY],
  ["All", null],
];

export class RangePicker {
  constructor(onChange) {
    this.onChange = onChange;
    this.length = DAY; // seconds before the newest window; null: all
    this.brushed = null; // [from, to]
    this.known = null; // seconds of all windows; null: nobody knows
    this.element = h("div", { class: "ranges", role: "group", "aria-label": "Time shown" });
    this.draw();
  }

  // The time from and to which windows are wanted; null: without an end.
  span(newest) {
    if (this.brushed) return this.brushed;
    return [this.length === null || !newest || newest.end === null ? null : newest.end - this.length, null];
  }

  cut(windows) {
    const [from, to] = this.span(windows.at(-1));
    return windows.filter((each) => each.start !== null && (from === null || each.end > from) && (to === null || each.start < to));
  }

  choose(length) {
    Object.assign(this, { length, brushed: null });
    this.draw();
    this.onChange();
  }

  brush(from, to) {
    this.brushed = [from, to];
    this.draw();
    this.onChange();
  }

  // Lengths that would show all windows are not offered.
  know(windows) {
    const timed = windows.filter((each) => each.start !== null);
    this.known = timed.length ? timed.at(-1).end - timed[0].start : 0;
    this.draw();
  }

  draw() {
    const useful = LENGTHS.filter(([, length]) => length === null || this.known === null || length < this.known);
    const isAll = !useful.some(([, length]) => length === this.length);
    const buttons = useful.map(([text, length]) => {
      const pressed = !this.brushed && (length === this.length || (length === null && isAll));
      return h("button", { type: "button", "aria-pressed": String(pressed), onclick: () => this.choose(length) }, text);
    });
    if (this.brushed) {
      const [from, to] = this.brushed;
      const text = to - from < DAY ? `${clock(from)} – ${clock(to)}` : `${dayOfYear(from)} – ${dayOfYear(to)}`;
      buttons.push(h("button", { type: "button", "aria-pressed": "true", "aria-label": `${text}: show the time before`, onclick: () => this.choose(this.length) }, `${text} ×`));
    }
    this.element.hidden = buttons.length < 2;
    show(this.element, buttons);
  }
}
