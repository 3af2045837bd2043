// The table of hosts: sorted, filtered, with the last windows of each host, and with the columns that the reader has chosen.

import { axis, bar, scaleOf } from "./bars.js";
import { bones, h, say, show, stored } from "./dom.js";
import { testOf } from "./filter.js";
import { changeText, count, interval, peersText, percent, whole } from "./format.js";
import { patternChip, rankOf } from "./patterns.js";
import { keyOf, known, nameOf, placeOf, portOf, siteNames } from "./rows.js";
import { sparkline } from "./spark.js";

const [FIRST, PAGE] = [100, 200]; // rows that are shown at first, and with each "more"
const FEW = 4; // sites that are named
// Pixels that columns take, so that the bars get the rest.
const WIDTHS = { host: 190, name: 150, trend: 112, peers: 90, change: 80, interval: 140, pattern: 190, port: 120, place: 190, sites: 130, side: 80, direction: 90 };
const [LEAST_BAR, WIDEST_BAR] = [90, 520];
const FEWEST = 3; // windows before, from which on they are drawn
const KEPT = "superhosts-columns"; // names of columns, and whether they are wanted

const siteText = (row) => siteNames(row).join(", ");
const natural = new Intl.Collator("en", { numeric: true });

const COLUMNS = [
  { key: "host", title: "Host", of: (row) => String(row.host) },
  { key: "name", title: "Name", of: nameOf, optional: true },
  { key: "trend", title: "Last windows", name: "Last windows", kind: "wide trend", needs: (table) => table.before >= FEWEST },
  { key: "peers", title: "Peers", of: known, kind: "number" },
  { key: "change", title: "Change", kind: "number", of: (row) => row.change ?? -Infinity, needs: (table) => table.before > 0 },
  { key: "interval", title: "95 % interval", name: "95 % interval", kind: "number wide", needs: (table) => !table.isExact },
  { key: "bar", title: "", name: "Bar", kind: "wide bars" },
  { key: "pattern", title: "Pattern", of: (row) => row.pattern || "", optional: true, compare: (a, b) => rankOf(a.pattern) - rankOf(b.pattern) },
  { key: "port", title: "Main port", of: (row) => portOf(row)?.port || "", optional: true, kind: "wide" },
  { key: "place", title: "AS, country", of: placeOf, optional: true, kind: "wide name" },
  { key: "sites", title: "Sites", of: siteText, optional: true, kind: "wide", compare: (a, b) => siteNames(a).length - siteNames(b).length },
  { key: "side", title: "Side", of: (row) => row.side, varying: true, kind: "wide" },
  { key: "direction", title: "Direction", of: (row) => row.direction, varying: true, kind: "wide" },
];

export class HostTable {
  constructor(caption) {
    this.rows = [];
    this.before = 0; // windows before, whose peers are known
    this.possible = []; // columns that say something about these rows
    this.alerts = new Set(); // hosts
    this.chosen = stored(KEPT) || {};
    this.shown = FIRST;
    this.sort = { key: "peers", down: true };
    this.words = "";
    this.caption = h("caption", { class: "unseen" }, caption);
    this.head = h("tr", {});
    this.body = h("tbody", { onpointerdown: (event) => event.button === 0 && this.press() });
    this.pressed = this.late = false;
    this.tally = h("span", { class: "muted tally", role: "status" });
    this.search = h("input", {
      type: "search",
      id: "filter",
      placeholder: "Filter: words, or 10.0.0.0/8",
      "aria-label": "Filter the table",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.filter(this.search.value),
    });
    this.more = h("button", { type: "button", class: "more", hidden: true, onclick: () => this.showMore() });
    this.columns = h("div", { class: "choices" });
    this.chooser = h("details", { class: "popup right" }, h("summary", {}, "Columns"), this.columns);
    this.waiting = bones(8);
    this.element = h(
      "section",
      { class: "card hosts" },
      h("div", { class: "bar" }, this.search, this.tally, this.chooser),
      this.waiting,
      h("div", { class: "scroll" }, h("table", {}, this.caption, h("thead", {}, this.head), this.body)),
      this.more,
    );
  }

  // Shows other rows in the same order, with the same filter; focus and place stay.
  put(rows, caption, { recent = null, alerts = [], threshold = null } = {}) {
    this.alerts = new Set(alerts);
    const whole = recent?.whole || [];
    this.before = whole.length;
    this.rows = rows;
    rows.forEach((row, at) => compare(row, recent?.peers[at] || null, whole, threshold));
    this.isExact = rows.length > 0 && rows.every((row) => row.peers !== null && row.peers_low === row.peers_high);
    this.possible = COLUMNS.filter((column) => this.isShown(column));
    this.waiting.hidden = true;
    if (caption) this.caption.textContent = caption;
    if (this.pressed) this.late = true;
    else this.draw();
  }

  // A link that is replaced while it is pressed is not clicked, so other rows wait until it is released.
  press() {
    this.pressed = true;
    const listening = new AbortController();
    const release = () => {
      listening.abort();
      this.pressed = false;
      setTimeout(() => this.late && this.draw()); // after the click
    };
    for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, release, { signal: listening.signal });
  }

  filter(words) {
    this.words = words;
    this.shown = FIRST;
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
    const down = this.sort.key === column.key ? !this.sort.down : column.kind === "number" || column.key === "pattern";
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
    this.late = false;
    const focused = document.activeElement?.dataset?.key;
    const held = focused !== undefined && this.body.contains(document.activeElement);
    const columns = this.wanted();
    const found = this.found();
    const visible = found.slice(0, this.shown);
    const taken = columns.reduce((sum, { key }) => sum + (WIDTHS[key] || 0), 0);
    const scale = scaleOf(this.rows, Math.min(Math.max(this.body.parentNode.parentNode.clientWidth - taken, LEAST_BAR), WIDEST_BAR));
    this.drawHead(columns, scale);
    show(this.body, visible.map((row) => h("tr", {}, columns.map((column) => cell(column, row, scale, this)))));
    if (visible.length === 0) {
      const text = this.rows.length ? "No host matches the filter." : "No host to report.";
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
        const title = column.key === "peers" && this.isExact ? "Peers (exact)" : column.title;
        const button = h("button", { type: "button", "data-column": column.key, onclick: () => this.order(column) }, title);
        button.append(h("span", { class: "arrow", "aria-hidden": "true" }, active ? (this.sort.down ? "↓" : "↑") : ""));
        return h("th", { scope: "col", class: column.kind || "", "aria-sort": way }, button);
      }),
    );
    if (held) this.head.querySelector(`[data-column="${held}"]`)?.focus({ preventScroll: true });
  }

  wanted() {
    const drawn = this.possible.filter(({ key }) => key !== "host" && key !== "peers");
    const boxes = drawn.map((column) => {
      const box = h("input", { type: "checkbox", checked: this.chosen[column.key] !== false, onchange: () => this.choose(column.key, box.checked) });
      return h("label", { class: "check" }, box, column.name || column.title);
    });
    if (!this.chooser.open || !this.columns.contains(document.activeElement)) show(this.columns, boxes);
    return this.possible.filter(({ key }) => this.chosen[key] !== false);
  }

  choose(key, wanted) {
    this.chosen = { ...this.chosen, [key]: wanted };
    stored(KEPT, this.chosen);
    this.draw();
  }

  isShown(column) {
    if (column.needs && !column.needs(this)) return false;
    if (column.optional) return this.rows.some((row) => column.of(row));
    if (column.varying) return new Set(this.rows.map(column.of)).size > 1;
    return true;
  }

  found() {
    const column = COLUMNS.find((each) => each.key === this.sort.key);
    const shown = this.possible.filter((each) => each.of && each.kind !== "number");
    const test = testOf(this.words);
    const rows = this.words.trim() ? this.rows.filter((row) => test(String(row.host), shown.map((each) => each.of(row)).join("\n"))) : [...this.rows];
    const way = this.sort.down ? -1 : 1;
    const byText = (a, b) => natural.compare(column.of(a), column.of(b));
    const compare = column.kind === "number" ? (a, b) => column.of(a) - column.of(b) : (a, b) => column.compare?.(a, b) || byText(a, b);
    return rows.sort((a, b) => way * compare(a, b) || known(b) - known(a) || natural.compare(a.host, b.host));
  }
}

// Adds to a row its `past`, how many peers it has more than in the window before (`change`), and whether it is a super host that was
// none in the windows before (`isNew`): nobody knows it of windows of which not all super hosts are kept.
function compare(row, past, whole, threshold) {
  const before = past ? past.at(-1) : null;
  const isSuper = threshold !== null && known(row) >= threshold;
  const isNew = isSuper && whole.length > 0 && whole.every(Boolean) && (past || []).every((peers) => peers === null || peers < threshold);
  Object.assign(row, { past, change: before === null ? null : known(row) - before, isNew });
}

function marksOf(row, table) {
  return [
    " ", // between the words that are read out
    table.alerts.has(String(row.host)) ? h("span", { class: "mark alert", title: "An alert of this host was open in this window" }, "alert") : null,
    " ",
    row.isNew ? h("span", { class: "mark", title: `No super host in the ${count(table.before, "window")} before` }, "new") : null,
  ];
}

function cell(column, row, scale, table) {
  switch (column.key) {
    case "host":
      return h(
        "th",
        { scope: "row", class: "host" },
        h("a", { href: `#/host/${encodeURIComponent(row.host)}`, "data-key": keyOf(row) }, row.host),
        marksOf(row, table),
        h("span", { class: "under" }, [nameOf(row), row.pattern].filter(Boolean).join(" · ")),
      );
    case "name":
      return h("td", { class: "name", title: nameOf(row) }, nameOf(row));
    case "peers":
      return h("td", { class: "number" }, peersText(row.peers, row.peers_low), h("span", { class: "under" }, interval(row.peers, row.peers_low, row.peers_high)));
    case "trend":
      return h("td", { class: "wide trend" }, sparkline([...(row.past || Array(table.before).fill(null)), known(row)]));
    case "change": {
      const within = row.change !== null && row.peers_high !== null && Math.abs(row.change) <= (row.peers_high - row.peers_low) / 2;
      return h("td", { class: `number${within ? " muted" : ""}`, title: within ? "Not more than the interval" : null }, row.change === null ? h("span", { class: "muted" }, "–") : changeText(row.change));
    }
    case "port": {
      const port = portOf(row);
      return h("td", { class: "wide" }, port?.share ? [port.port, " ", h("span", { class: "muted" }, percent(port.share))] : h("span", { class: "muted" }, port?.port || ""));
    }
    case "interval":
      return h("td", { class: "number wide muted" }, interval(row.peers, row.peers_low, row.peers_high));
    case "bar":
      return h("td", { class: "wide" }, bar(row, scale));
    case "pattern":
      return h("td", { class: "pattern" }, row.pattern ? patternChip(row.pattern, row.reason) : "");
    case "sites": {
      const names = siteNames(row);
      return h("td", { class: "wide seen", title: siteText(row) }, names.length > FEW ? count(names.length, "site") : siteText(row));
    }
    default:
      return h("td", { class: column.kind }, column.of(row));
  }
}
