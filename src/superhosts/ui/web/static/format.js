// Numbers and times as people read them.

import { dateOf } from "./zone.js";

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export const whole = (number) => WHOLE.format(number);
export const short = (number) => SHORT.format(number);
export const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;

const two = (number) => String(number).padStart(2, "0");

export function clock(seconds) {
  const date = dateOf(seconds);
  const rest = date.getUTCSeconds();
  return `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${rest ? `:${two(rest)}` : ""}`;
}

export function dayOfYear(seconds) {
  const date = dateOf(seconds);
  return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
}

export const day = (seconds) => `${dayOfYear(seconds)} ${dateOf(seconds).getUTCFullYear()}`;

export const moment = (seconds) => `${day(seconds)}, ${clock(seconds)}`;

// The next whole minute: what ends in the middle of one is still there until then.
export const minute = (seconds) => 60 * Math.ceil(seconds / 60);

export function span(start, end) {
  if (start === null || end === null) return "without times";
  if (end - start >= 86400) return `${moment(start)} – ${moment(end)}`;
  return `${day(start)}, ${clock(start)} – ${clock(end)}`;
}

export function ago(seconds) {
  if (seconds < 0) return "in the future";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit} ago`;
  }
  return `${Math.floor(seconds)} s ago`;
}

export function size(bytes) {
  let number = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024) return `${number < 10 && unit !== "B" ? number.toFixed(1) : Math.round(number)} ${unit}`;
    number /= 1024;
  }
  return `${number.toFixed(1)} TiB`;
}

export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

export function interval(peers, low, high) {
  if (peers === null || high === null) return `at least ${whole(low)}`;
  if (high === 0) return "–"; // It was not seen: nothing was counted, and nothing estimated.
  return low === high ? "exact" : `${whole(low)} – ${whole(high)}`;
}

export const changeText = (change) => (change === 0 ? "0" : `${change > 0 ? "+" : "−"}${whole(Math.abs(change))}`);

export const peersText = (peers, low) => (peers === null ? `≥ ${whole(low)}` : whole(peers));
