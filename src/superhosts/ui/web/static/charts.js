// Graphs over time, drawn by uPlot. Each window is one bar, or one stroke in its own interval: nothing between two windows
// is made up. A hollow interval is of a window in which the host was not reported.

import { h } from "./dom.js";
import { clock, dayOfYear, short, span } from "./format.js";
import { isLocal } from "./zone.js";

const HEIGHT = 150;
const FONT = "12px system-ui, sans-serif";

// A canvas does not know variables, nor colours that depend on the theme: an element that is not seen resolves them.
const probe = document.body.appendChild(h("span", { hidden: true }));

function color(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// `kind`: "bars" (values alone) or "points" (with low and high). `points`: {start, end, value, low, high, hollow}.
export class TimeChart {
  constructor({ title, kind, onPick = null, height = HEIGHT, describe, line = null }) {
    this.kind = kind;
    this.height = height;
    this.onPick = onPick;
    this.describe = describe;
    this.points = [];
    this.selected = null;
    this.line = line;
    this.plot = null;
    this.readout = h("span", { class: "readout muted" });
    this.canvas = h("div", { class: `plot${onPick ? " picks" : ""}`, role: "img" });
    this.element = h("figure", { class: "card chart" }, h("figcaption", {}, h("span", {}, title), this.readout), this.canvas);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
  }

  put(points, selected = null, label = "") {
    this.points = points.filter((point) => point.start !== null);
    this.selected = selected;
    this.canvas.setAttribute("aria-label", label);
    if (this.plot) {
      this.plot.setData(this.data());
      this.rest();
    } else this.make();
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

  data() {
    const values = this.points.map((point) => point.value);
    const highs = this.points.map((point) => Math.max(point.high ?? 0, point.value ?? 0, point.low ?? 0));
    return [this.points.map((point) => (point.start + point.end) / 2), values, highs];
  }

  resize() {
    const width = this.canvas.clientWidth;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
    else if (!this.plot) this.make();
  }

  make() {
    const width = this.canvas.clientWidth;
    if (width <= 0 || this.points.length === 0) return;
    const grid = { stroke: color("--line"), width: 1 };
    const axis = { stroke: color("--muted"), font: FONT, grid, ticks: { show: false } };
    const options = {
      width,
      height: this.height,
      padding: [8, 22, 0, 0],
      tzDate: (seconds) => (isLocal ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC")),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: {
        x: { time: true, range: (_, from, to) => this.span(from, to) },
        y: { range: (_, __, most) => [0, Math.max(most || 0, this.line || 0, 1) * 1.08] },
      },
      axes: [
        { ...axis, grid: { show: false }, space: 70, size: 28, values: (_, ticks, __, ___, step) => labels(ticks, step) },
        { ...axis, size: 46, space: 30, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? short(tick) : "")) },
      ],
      series: [{}, { show: true, stroke: "transparent", points: { show: false }, paths: () => null }, { show: true, stroke: "transparent", points: { show: false }, paths: () => null }],
      hooks: { draw: [(plot) => this.draw(plot)], setCursor: [(plot) => this.tell(plot.cursor.idx)] },
    };
    this.plot = new uPlot(options, this.data(), this.canvas);
    if (this.onPick) {
      this.plot.over.addEventListener("click", () => {
        const point = this.points[this.plot.cursor.idx];
        if (point) this.onPick(point);
      });
    }
    this.plot.over.addEventListener("mouseleave", () => this.rest());
    this.rest();
  }

  // Half a window of room at both ends, and never less than some windows: a single one is not a block.
  span(from, to) {
    const first = this.points[0];
    const length = first ? first.end - first.start : 300;
    const missing = Math.max(0, 12 * length - (to - from)) / 2;
    return [from - missing - length / 2, to + missing + length / 2];
  }

  tell(index) {
    const point = this.points[index];
    if (point && index !== null && index !== undefined) this.readout.textContent = this.describe(point);
  }

  rest() {
    const at = this.points.findIndex((point) => this.isSelected(point));
    this.tell(at < 0 ? this.points.length - 1 : at);
  }

  isSelected(point) {
    return this.selected !== null && point.start === this.selected.start && point.end === this.selected.end;
  }

  draw(plot) {
    const { ctx } = plot;
    const ratio = devicePixelRatio || 1;
    const accent = color("--accent");
    const soft = color("--accent-soft");
    const muted = color("--muted");
    const x = (seconds) => plot.valToPos(seconds, "x", true);
    const y = (value) => plot.valToPos(value, "y", true);
    const bottom = y(0);
    ctx.save();
    ctx.beginPath();
    ctx.rect(plot.bbox.left, plot.bbox.top - 4 * ratio, plot.bbox.width, plot.bbox.height + 4 * ratio);
    ctx.clip();
    if (this.line) {
      ctx.strokeStyle = muted;
      ctx.lineWidth = ratio;
      ctx.setLineDash([4 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(plot.bbox.left, y(this.line));
      ctx.lineTo(plot.bbox.left + plot.bbox.width, y(this.line));
      ctx.stroke();
      ctx.setLineDash([]);
    }
    for (const point of this.points) {
      const middle = x((point.start + point.end) / 2);
      const room = x(point.end) - x(point.start);
      const chosen = this.isSelected(point);
      if (this.kind === "bars") {
        const width = Math.max(ratio, Math.min(room * 0.72, 18 * ratio));
        const height = Math.max(bottom - y(point.value), point.value ? 1.5 * ratio : 0);
        ctx.fillStyle = chosen ? accent : soft;
        ctx.fillRect(middle - width / 2, bottom - height, width, height);
        if (chosen) ctx.fillRect(middle - width / 2, bottom + 1.5 * ratio, width, 2 * ratio);
        continue;
      }
      if (point.low === null || point.low === undefined) continue;
      const width = Math.max(ratio, Math.min(room * 0.6, 9 * ratio));
      const top = point.high === null ? plot.bbox.top : y(point.high);
      const height = Math.max(y(point.low) - top, ratio);
      ctx.fillStyle = soft;
      ctx.strokeStyle = soft;
      ctx.lineWidth = ratio;
      if (point.hollow) ctx.strokeRect(middle - width / 2, top, width, height);
      else ctx.fillRect(middle - width / 2, top, width, height);
      ctx.fillStyle = point.hollow ? muted : accent; // a narrow interval does not show that it is hollow
      const reach = width + (chosen ? 6 : 2) * ratio;
      if (point.value !== null) ctx.fillRect(middle - reach / 2, y(point.value) - ratio, reach, 2 * ratio);
      if (chosen) ctx.fillRect(middle - reach / 2, bottom + 1.5 * ratio, reach, 2 * ratio);
    }
    ctx.restore();
  }
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

export const when = (point) => span(point.start, point.end);
