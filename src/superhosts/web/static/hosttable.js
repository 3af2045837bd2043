// The table of hosts: sorted, filtered, with the interval of each number drawn as an error bar.
//
// All bars share one logarithmic scale, which the head of the column shows. A bar reaches from the lower to the upper end
// of the interval, the stroke in it is the number itself; an arrow means that there is no upper end.

import { h, say, show, svg } from "./dom.js";
import { count, interval, peersText, short, whole } from "./format.js";

const PAGE = 200; // rows that are shown at first, and with each "more"
const WIDTH = 240;
const MIDDLE = 9;

const known = (row) => (row.peers === null ? row.peers_low : row.peers);
const nameOf = (row) => row.label || row.name || "";
const sitesOf = (row) => (Array.isArray(row.sites) ? row.sites.join(", ") : row.sites || row.site || "");
const keyOf = (row) => `${row.host} ${row.side} ${row.direction} ${row.counts || ""} ${row.filter || ""}`;
const natural = new Intl.Collator("en", { numeric: true });

const COLUMNS = [
  { key: "host", title: "Host", of: (row) => String(row.host) },
  { key: "name", title: "Name", of: nameOf, optional: true },
  { key: "peers", title: "Peers", of: known, kind: "number" },
  { key: "interval", title: "95 % interval", kind: "number wide" },
  { key: "bar", title: "", kind: "wide" },
  { key: "pattern", title: "Pattern", of: (row) => row.pattern || "", optional: true },
  { key: "sites", title: "Sites", of: sitesOf, optional: true, kind: "wide" },
  { key: "side", title: "Side", of: (row) => row.side, varying: true, kind: "wide" },
  { key: "direction", title: "Direction", of: (row) => row.direction, varying: true, kind: "wide" },
];

export class HostTable {
  constructor(caption) {
    this.rows = [];
    this.shown = PAGE;
    this.sort = { key: "peers", down: true };
    this.words = "";
    this.caption = h("caption", { class: "unseen" }, caption);
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.tally = h("span", { class: "muted tally", role: "status" });
    this.search = h("input", {
      type: "search",
      id: "filter",
      placeholder: "Filter hosts, names, patterns",
      "aria-label": "Filter the table",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.filter(this.search.value),
    });
    this.more = h("button", { type: "button", class: "more", onclick: () => this.showMore() });
    this.element = h(
      "section",
      { class: "card hosts" },
      h("div", { class: "bar" }, this.search, this.tally),
      h("div", { class: "scroll" }, h("table", {}, this.caption, h("thead", {}, this.head), this.body)),
      this.more,
    );
  }

  // Shows other rows in the same order, with the same filter; focus and place stay.
  put(rows, caption) {
    this.rows = rows;
    if (caption) this.caption.textContent = caption;
    this.draw();
  }

  filter(words) {
    this.words = words.trim().toLowerCase();
    this.shown = PAGE;
    this.draw();
  }

  clear() {
    const had = this.search.value !== "";
    this.search.value = "";
    this.filter("");
    return had;
  }

  showMore() {
    const first = this.shown;
    this.shown += PAGE;
    this.draw();
    this.links()[first]?.focus();
  }

  order(column) {
    const down = this.sort.key === column.key ? !this.sort.down : column.key === "peers";
    this.sort = { key: column.key, down };
    this.draw();
    say(`sorted by ${column.title}, ${down ? "descending" : "ascending"}`);
  }

  links() {
    return [...this.body.querySelectorAll("a[data-key]")];
  }

  // Moves the focus by rows; the first time to the first one.
  step(by) {
    const links = this.links();
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)];
    next?.focus();
    next?.closest("tr").scrollIntoView({ block: "nearest" });
  }

  draw() {
    const focused = document.activeElement?.dataset?.key;
    const held = focused !== undefined && this.body.contains(document.activeElement);
    const columns = COLUMNS.filter((column) => this.isShown(column));
    const found = this.found();
    const visible = found.slice(0, this.shown);
    const scale = scaleOf(this.rows);
    this.drawHead(columns, scale);
    show(this.body, visible.map((row) => h("tr", {}, columns.map((column) => cell(column, row, scale)))));
    if (visible.length === 0) {
      const text = this.rows.length ? "No host matches the filter." : "No host has as many peers as asked for.";
      show(this.body, h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, text)));
    }
    this.tally.textContent =
      found.length === this.rows.length ? count(found.length, "host") : `${whole(found.length)} of ${whole(this.rows.length)} hosts`;
    const left = found.length - visible.length;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show ${whole(Math.min(left, PAGE))} more of ${whole(left)}`;
    if (held) this.links().find((link) => link.dataset.key === focused)?.focus({ preventScroll: true });
  }

  drawHead(columns, scale) {
    const held = this.head.contains(document.activeElement) ? document.activeElement.dataset.column : undefined;
    show(
      this.head,
      columns.map((column) => {
        if (!column.of) {
          const content = column.key === "bar" ? axis(scale) : column.title;
          return h("th", { scope: "col", class: column.kind || "" }, content);
        }
        const active = this.sort.key === column.key;
        const way = active ? (this.sort.down ? "descending" : "ascending") : "none";
        const button = h("button", { type: "button", "data-column": column.key, onclick: () => this.order(column) }, column.title);
        button.append(h("span", { class: "arrow", "aria-hidden": "true" }, active ? (this.sort.down ? "↓" : "↑") : ""));
        return h("th", { scope: "col", class: column.kind || "", "aria-sort": way }, button);
      }),
    );
    if (held) this.head.querySelector(`[data-column="${held}"]`)?.focus({ preventScroll: true });
  }

  isShown(column) {
    if (column.optional) return this.rows.some((row) => column.of(row));
    if (column.varying) return new Set(this.rows.map(column.of)).size > 1;
    return true;
  }

  found() {
    const column = COLUMNS.find((each) => each.key === this.sort.key);
    const rows = this.words ? this.rows.filter((row) => textOf(row).includes(this.words)) : [...this.rows];
    const way = this.sort.down ? -1 : 1;
    const compare = column.kind === "number" ? (a, b) => column.of(a) - column.of(b) : (a, b) => natural.compare(column.of(a), column.of(b));
    return rows.sort((a, b) => way * compare(a, b) || known(b) - known(a) || natural.compare(a.host, b.host));
  }
}

function textOf(row) {
  return `${row.host} ${nameOf(row)} ${row.pattern || ""} ${sitesOf(row)} ${row.side} ${row.direction}`.toLowerCase();
}

function cell(column, row, scale) {
  switch (column.key) {
    case "host":
      return h(
        "th",
        { scope: "row", class: "host" },
        h("a", { href: `#/host/${encodeURIComponent(row.host)}`, "data-key": keyOf(row) }, row.host),
        h("span", { class: "under" }, [nameOf(row), row.pattern].filter(Boolean).join(" · ")),
      );
    case "name":
      return h("td", { class: "name", title: nameOf(row) }, nameOf(row));
    case "peers":
      return h("td", { class: "number" }, peersText(row.peers, row.peers_low), h("span", { class: "under" }, interval(row.peers, row.peers_low, row.peers_high)));
    case "interval":
      return h("td", { class: "number wide muted" }, interval(row.peers, row.peers_low, row.peers_high));
    case "bar":
      return h("td", { class: "wide" }, bar(row, scale));
    case "pattern":
      return h("td", { class: "pattern" }, row.pattern ? h("span", { class: "chip", title: row.reason || "" }, row.pattern) : "");
    case "sites": {
      const sites = sitesOf(row);
      const names = sites.split(", ");
      return h("td", { class: "wide sites", title: sites }, names.length > 4 ? `${names.length} sites` : sites);
    }
    default:
      return h("td", { class: column.kind }, column.of(row));
  }
}

// A logarithmic scale from a round number below all intervals to one above.
export function scaleOf(rows) {
  let low = Infinity;
  let high = 1;
  for (const row of rows) {
    low = Math.min(low, Math.max(row.peers_low, 1));
    high = Math.max(high, row.peers_high ?? row.peers_low, known(row));
  }
  low = roundDown(Math.min(low, high));
  high = roundUp(Math.max(high, low * 2));
  const [from, to] = [Math.log10(low), Math.log10(high)];
  const at = (peers) => 6 + ((Math.log10(Math.max(peers, low)) - from) / (to - from)) * (WIDTH - 12);
  const ticks = [];
  const steps = to - from > 2.2 ? [1] : [1, 2, 5];
  for (let power = Math.floor(from); power <= to; power += 1) {
    for (const step of steps) {
      const tick = step * 10 ** power;
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  }
  return { at, ticks };
}

function roundDown(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [5, 2, 1].find((step) => step * power <= number) * power;
}

function roundUp(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].find((step) => step * power >= number) * power;
}

function axis(scale) {
  const ticks = scale.ticks.map((tick, at) => {
    const anchor = at === 0 ? "start" : at === scale.ticks.length - 1 ? "end" : "middle";
    const x = scale.at(tick) + (anchor === "start" ? -4 : anchor === "end" ? 4 : 0);
    return svg("text", { x, y: 13, "text-anchor": anchor }, short(tick));
  });
  return [
    h("span", { class: "unseen" }, "Interval as a bar"),
    svg("svg", { class: "axis", width: WIDTH, height: 18, viewBox: `0 0 ${WIDTH} 18`, "aria-hidden": "true" }, ticks),
  ];
}

function bar(row, scale) {
  const low = scale.at(Math.max(row.peers_low, 1));
  const open = row.peers_high === null || row.peers === null;
  const high = open ? WIDTH - 2 : scale.at(Math.max(row.peers_high, 1));
  const exact = !open && row.peers_low === row.peers_high;
  return svg(
    "svg",
    { class: "error", width: WIDTH, height: 2 * MIDDLE, viewBox: `0 0 ${WIDTH} ${2 * MIDDLE}`, "aria-hidden": "true" },
    scale.ticks.map((tick) => svg("line", { class: "grid", x1: scale.at(tick), x2: scale.at(tick), y1: 0, y2: 2 * MIDDLE })),
    exact ? null : svg("rect", { class: "range", x: low, width: high - low, y: MIDDLE - 4, height: 8 }),
    open ? svg("path", { class: "open", d: `M${high - 6} ${MIDDLE - 4}L${high} ${MIDDLE}L${high - 6} ${MIDDLE + 4}` }) : null,
    open ? null : svg("line", { class: "value", x1: scale.at(row.peers), x2: scale.at(row.peers), y1: MIDDLE - 7, y2: MIDDLE + 7 }),
  );
}
