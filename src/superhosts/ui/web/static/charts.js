// Graphs over time, drawn by uPlot. "stack": bars of each window, of parts that add up. "lines": a line for each series through the
// windows that follow each other, in the band of its intervals; where a window is missing, the line ends.

import { h, show } from "./dom.js";
import { clock, dayOfYear, short, whole } from "./format.js";
import { isLocal } from "./zone.js";

const HEIGHT = 190;
const FONT = "12px system-ui, sans-serif";
const WIDEST = 140; // pixels of a bar
const STEPS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat(); // of an axis of counts
const BRUSHED = 6; // pixels from which on a movement of the mouse chooses a time

// A canvas does not know variables, nor colours that depend on the theme: an element that is not seen resolves them.
const probe = document.body.appendChild(h("span", { hidden: true }));

function color(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// `windows`: {start, end}, in order. `series`: {key, label, color, points}, one point for each window or null: a number if it is a
// stack, else {value, low, high, faint}. `events`: {at, kind, text}.
export class Chart {
  constructor({ title, kind, height = HEIGHT, threshold = null, onPick = null, onBrush = null, describe, legend = true, tools = null }) {
    Object.assign(this, { kind, height, threshold, onPick, onBrush, describe });
    this.windows = [];
    this.series = [];
    this.events = [];
    this.selected = null;
    this.plot = null;
    this.brushed = false;
    this.readout = h("span", { class: "readout muted" });
    this.canvas = h("div", { class: `plot${onPick ? " picks" : ""}`, role: "img", "aria-label": `${title}: loading` }, h("div", { class: "bone tall" }));
    this.legend = legend ? h("ul", { class: "legend" }) : null;
    this.element = h("figure", { class: "card chart" }, h("figcaption", {}, h("span", {}, title), tools, this.readout), this.canvas, this.legend);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
  }

  put({ windows, series, events = [], selected = null, label }) {
    const kept = windows.map((window, at) => [window, at]).filter(([window]) => window.start !== null);
    this.windows = kept.map(([window]) => window);
    this.series = series.map((each) => ({ ...each, points: kept.map(([, at]) => each.points[at] ?? null) }));
    Object.assign(this, { events, selected });
    this.canvas.setAttribute("aria-label", label);
    if (this.plot && this.windows.length) this.plot.setData(this.data());
    else this.restyle();
    this.rest();
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  // Colours are read when the graph is made.
  restyle() {
    this.plot?.destroy();
    this.plot = null;
    this.make();
  }

  top(at) {
    const points = this.series.map((each) => each.points[at]).filter((point) => point !== null);
    if (this.kind === "stack") return points.reduce((sum, point) => sum + point, 0);
    return Math.max(0, ...points.map((point) => Math.max(point.high ?? 0, point.value ?? 0, point.low)));
  }

  data() {
    return [this.windows.map((window) => (window.start + window.end) / 2), this.windows.map((_, at) => this.top(at))];
  }

  resize() {
    const width = this.canvas.clientWidth;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
    else if (!this.plot) this.make();
  }

  make() {
    const width = this.canvas.clientWidth;
    if (width <= 0 || this.windows.length === 0) return;
    const axis = { stroke: color("--muted"), font: FONT, grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const hidden = { show: true, stroke: "transparent", points: { show: false }, paths: () => null };
    const options = {
      width,
      height: this.height,
      padding: [12, 20, 0, 0],
      tzDate: (seconds) => (isLocal ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC")),
      legend: { show: false },
      cursor: { y: false, drag: { x: this.onBrush !== null, y: false, setScale: false }, points: { show: false } },
      scales: {
        x: { time: true, range: () => [this.windows[0].start, this.windows.at(-1).end] },
        y: { range: (_, __, most) => [0, Math.max(most || 0, this.threshold || 0, 1) * 1.06] },
      },
      axes: [
        { ...axis, grid: { show: false }, space: 64, size: 26, values: (_, ticks, __, ___, step) => labels(ticks, step) },
        { ...axis, size: 48, space: 32, incrs: STEPS, values: (_, ticks) => ticks.map(short) },
      ],
      series: [{}, hidden],
      hooks: { draw: [(plot) => this.draw(plot)], setCursor: [(plot) => this.tell(plot.cursor.idx)], setSelect: [(plot) => this.brush(plot)] },
    };
    show(this.canvas);
    this.plot = new uPlot(options, this.data(), this.canvas);
    this.plot.over.addEventListener("mousedown", () => {
      this.brushed = false;
    });
    this.plot.over.addEventListener("click", () => {
      const window = this.windows[this.plot.cursor.idx];
      if (window && this.onPick && !this.brushed) this.onPick(window);
    });
    this.plot.over.addEventListener("mouseleave", () => this.rest());
  }

  brush(plot) {
    const { left, width } = plot.select;
    if (width < BRUSHED || !this.onBrush) return;
    this.brushed = true;
    const [from, to] = [left, left + width].map((place) => plot.posToVal(place, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onBrush(from, to);
  }

  // Tells the numbers of one window, above the graph and in its legend.
  tell(at) {
    if (at === null || at === undefined || !this.windows[at]) return;
    this.readout.textContent = this.describe(at);
    this.legend?.querySelectorAll(".value").forEach((value, number) => {
      value.textContent = valueText(this.series[number].points[at]);
    });
  }

  rest() {
    if (this.legend) show(this.legend, this.series.map((each) => legendItem(each)));
    const at = this.windows.findIndex((window) => this.isSelected(window));
    if (this.windows.length === 0) this.readout.textContent = "";
    this.tell(at < 0 ? this.windows.length - 1 : at);
  }

  isSelected(window) {
    return this.selected !== null && window.start === this.selected.start && window.end === this.selected.end;
  }

  draw(plot) {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const pixel = devicePixelRatio || 1;
    const place = { pixel, top, x: (seconds) => plot.valToPos(seconds, "x", true), y: (value) => plot.valToPos(value, "y", true) };
    ctx.save();
    ctx.beginPath();
    ctx.rect(left - 5 * pixel, top - 12 * pixel, width + 10 * pixel, height + 13 * pixel);
    ctx.clip();
    const selected = this.windows.find((window) => this.isSelected(window));
    if (selected && this.onPick) {
      ctx.fillStyle = color("--accent-faint");
      ctx.fillRect(place.x(selected.start), top, Math.max(place.x(selected.end) - place.x(selected.start), 2 * pixel), height);
    }
    if (this.kind === "stack") this.drawStack(ctx, place, selected);
    else for (const each of this.series) this.drawLine(ctx, place, each);
    if (this.threshold) this.drawThreshold(ctx, place, left, width);
    for (const event of this.events) drawEvent(ctx, place, event, top, height);
    ctx.restore();
  }

  drawStack(ctx, { pixel, x, y }, selected) {
    const colors = this.series.map((each) => color(each.color));
    this.windows.forEach((window, at) => {
      const room = x(window.end) - x(window.start);
      const width = Math.max(Math.min(room > 5 * pixel ? 0.86 * room : room, WIDEST * pixel), pixel);
      const left = (x(window.start) + x(window.end) - width) / 2;
      let below = 0;
      ctx.globalAlpha = !selected || window === selected ? 1 : 0.78;
      this.series.forEach((each, number) => {
        const value = each.points[at] || 0;
        if (value === 0) return;
        ctx.fillStyle = colors[number];
        ctx.fillRect(left, y(below + value), width, y(below) - y(below + value));
        below += value;
      });
    });
    ctx.globalAlpha = 1;
  }

  drawLine(ctx, { pixel, top, x, y }, { points, color: name }) {
    const [solid, faint] = [color(name), color("--muted")];
    const middle = (at) => (x(this.windows[at].start) + x(this.windows[at].end)) / 2;
    const reach = (at) => Math.min((x(this.windows[at].end) - x(this.windows[at].start)) / 2, 5 * pixel);
    const height = (point) => y(point.value ?? point.low);
    const upper = (point) => (point.high === null ? top : y(point.high));
    ctx.lineJoin = "round";
    for (const run of this.runs(points)) {
      const alone = run.length === 1;
      const [before, after] = alone ? [reach(run[0]), reach(run[0])] : [0, 0];
      ctx.fillStyle = solid;
      ctx.globalAlpha = 0.2;
      ctx.beginPath();
      for (const at of run) ctx.lineTo(middle(at) - before, upper(points[at]));
      if (alone) ctx.lineTo(middle(run[0]) + after, upper(points[run[0]]));
      for (const at of [...run].reverse()) ctx.lineTo(middle(at) + after, y(points[at].low));
      if (alone) ctx.lineTo(middle(run[0]) - before, y(points[run[0]].low));
      ctx.fill();
      ctx.globalAlpha = 1;
      ctx.lineWidth = 1.8 * pixel;
      run.slice(1).forEach((at, number) => {
        const from = points[run[number]];
        ctx.strokeStyle = from.faint && points[at].faint ? faint : solid;
        ctx.beginPath();
        ctx.moveTo(middle(run[number]), height(from));
        ctx.lineTo(middle(at), height(points[at]));
        ctx.stroke();
      });
      const dots = alone || x(this.windows[run[0]].end) - x(this.windows[run[0]].start) > 14 * pixel;
      for (const at of run) {
        const point = points[at];
        if (!dots && point.value !== null) continue;
        ctx.fillStyle = point.faint ? faint : solid;
        ctx.beginPath();
        if (point.value === null) for (const [dx, dy] of [[-4, 0], [0, -7], [4, 0]]) ctx.lineTo(middle(at) + dx * pixel, height(point) + dy * pixel);
        else ctx.arc(middle(at), height(point), 2.6 * pixel, 0, 7);
        ctx.fill();
      }
    }
  }

  // Places of windows that follow each other, in which a series has points.
  runs(points) {
    const found = [];
    points.forEach((point, at) => {
      if (point === null) return;
      const follows = at > 0 && points[at - 1] !== null && this.windows[at].start <= this.windows[at - 1].end;
      if (follows) found.at(-1).push(at);
      else found.push([at]);
    });
    return found;
  }

  drawThreshold(ctx, { pixel, y }, left, width) {
    const line = y(this.threshold);
    ctx.strokeStyle = ctx.fillStyle = color("--threshold");
    ctx.lineWidth = pixel;
    ctx.setLineDash([5 * pixel, 4 * pixel]);
    ctx.beginPath();
    ctx.moveTo(left, line);
    ctx.lineTo(left + width, line);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `${11 * pixel}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "bottom";
    ctx.fillText(`threshold ${whole(this.threshold)}`, left + 5 * pixel, line - 2 * pixel);
  }
}

function drawEvent(ctx, { pixel, x }, { at, kind }, top, height) {
  const left = x(at);
  ctx.strokeStyle = ctx.fillStyle = color(`--event-${kind}`);
  ctx.lineWidth = 1.2 * pixel;
  ctx.beginPath();
  ctx.moveTo(left, top - 2 * pixel);
  ctx.lineTo(left, top + height);
  ctx.stroke();
  ctx.beginPath();
  ctx.arc(left, top - 5 * pixel, 4 * pixel, 0, 7);
  ctx.fill();
}

function valueText(point) {
  if (point === null || point === undefined) return "–";
  if (typeof point === "number") return whole(point);
  return point.value === null ? `≥ ${whole(point.low)}` : whole(point.value);
}

export function swatch(name) {
  const made = h("span", { class: "swatch", "aria-hidden": "true" });
  made.style.background = `var(${name})`;
  return made;
}

function legendItem({ label, href, title, color: name }) {
  const text = href ? h("a", { href }, label) : label;
  return h("li", { title: title || null }, swatch(name), h("span", { class: "label" }, text), h("span", { class: "value" }));
}

// Hours and minutes, and the day where it changes or is first seen.
function labels(ticks, step) {
  let before = "";
  return ticks.map((tick) => {
    const today = dayOfYear(tick);
    if (step >= 86400) return today;
    const text = today !== before && before !== "" ? today : clock(tick);
    before = today;
    return text;
  });
}
