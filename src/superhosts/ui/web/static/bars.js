// Numbers drawn as bars with their intervals. All bars of a table share one logarithmic scale, which the head of the column shows.
// A bar is solid up to the lower end of the interval and shaded to its upper end, as in `superhosts top`; the stroke is the number
// itself; an arrow means that there is no upper end.

import { h, svg } from "./dom.js";
import { short } from "./format.js";
import { known } from "./rows.js";

const WIDTH = 150; // pixels, if a table has no more room
const MIDDLE = 9;

// A logarithmic scale from a round number below all intervals to one above.
export function scaleOf(rows, width = WIDTH) {
  let low = Infinity;
  let high = 1;
  for (const row of rows) {
    low = Math.min(low, Math.max(row.peers_low, 1));
    high = Math.max(high, row.peers_high ?? row.peers_low, known(row));
  }
  low = roundDown(Math.min(low, high));
  high = roundUp(Math.max(high, low * 2));
  const [from, to] = [Math.log10(low), Math.log10(high)];
  const at = (peers) => 6 + ((Math.log10(Math.max(peers, low)) - from) / (to - from)) * (width - 12);
  const ticks = [];
  const room = width / (to - from); // pixels of a factor of ten
  const steps = room < 110 ? [1] : room < 180 ? [1, 5] : [1, 2, 5];
  for (let power = Math.floor(from); power <= to; power += 1) {
    for (const step of steps) {
      const tick = step * 10 ** power;
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  return { at, ticks, width };
}

function roundDown(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [5, 2, 1].find((step) => step * power <= number) * power;
}

function roundUp(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].find((step) => step * power >= number) * power;
}

export function axis(scale) {
  const ticks = scale.ticks.map((tick, at) => {
    const anchor = at === 0 ? "start" : at === scale.ticks.length - 1 ? "end" : "middle";
    const x = scale.at(tick) + (anchor === "start" ? -4 : anchor === "end" ? 4 : 0);
    return svg("text", { x, y: 13, "text-anchor": anchor }, short(tick));
  });
  return [
    h("span", { class: "unseen" }, "Interval as a bar"),
    svg("svg", { class: "axis", width: scale.width, height: 18, viewBox: `0 0 ${scale.width} 18`, "aria-hidden": "true" }, ticks),
  ];
}

export function bar(row, scale) {
  const low = scale.at(Math.max(row.peers_low, 1));
  const open = row.peers_high === null || row.peers === null;
  const high = open ? scale.width - 2 : scale.at(Math.max(row.peers_high, 1));
  const exact = !open && row.peers_low === row.peers_high;
  return svg(
    "svg",
    { class: "error", width: scale.width, height: 2 * MIDDLE, viewBox: `0 0 ${scale.width} ${2 * MIDDLE}`, "aria-hidden": "true" },
    svg("path", { class: "grid", d: scale.ticks.map((tick) => `M${scale.at(tick).toFixed(1)} 0V${2 * MIDDLE}`).join("") }),
    svg("rect", { class: "solid", x: 0, width: low, y: MIDDLE - 4, height: 8 }),
    exact ? null : svg("rect", { class: "range", x: low, width: high - low, y: MIDDLE - 4, height: 8 }),
    open ? svg("path", { class: "open", d: `M${high - 6} ${MIDDLE - 4}L${high} ${MIDDLE}L${high - 6} ${MIDDLE + 4}` }) : null,
    open ? null : svg("line", { class: "value", x1: scale.at(row.peers), x2: scale.at(row.peers), y1: MIDDLE - 7, y2: MIDDLE + 7 }),
  );
}
