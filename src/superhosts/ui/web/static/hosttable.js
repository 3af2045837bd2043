// The table of hosts: sorted, filtered, with the interval of each number drawn as an error bar.

import { axis, bar, scaleOf } from "./bars.js";
import { h, say, show } from "./dom.js";
import { testOf } from "./filter.js";
import { count, interval, peersText, whole } from "./format.js";
import { known, nameOf, siteNames } from "./rows.js";

const PAGE = 200; // rows that are shown at first, and with each "more"
const FEW = 4; // sites that are named

const siteText = (row) => siteNames(row).join(", ");
const keyOf = (row) => `${row.host} ${row.side} ${row.direction} ${row.counts || ""} ${row.filter || ""}`;
const natural = new Intl.Collator("en", { numeric: true });

const COLUMNS = [
  { key: "host", title: "Host", of: (row) => String(row.host) },
  { key: "name", title: "Name", of: nameOf, optional: true },
  { key: "peers", title: "Peers", of: known, kind: "number" },
  { key: "interval", title: "95 % interval", kind: "number wide" },
  { key: "bar", title: "", kind: "wide" },
  { key: "pattern", title: "Pattern", of: (row) => row.pattern || "", optional: true },
  { key: "sites", title: "Sites", of: siteText, optional: true, kind: "wide", compare: (a, b) => siteNames(a).length - siteNames(b).length },
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
    this.late = false;
    const focused = document.activeElement?.dataset?.key;
    const held = focused !== undefined && this.body.contains(document.activeElement);
    const columns = COLUMNS.filter((column) => this.isShown(column));
    const found = this.found();
    const visible = found.slice(0, this.shown);
    const scale = scaleOf(this.rows);
    this.drawHead(columns, scale);
    show(this.body, visible.map((row) => h("tr", {}, columns.map((column) => cell(column, row, scale)))));
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
    const shown = COLUMNS.filter((each) => each.of && each.key !== "peers" && this.isShown(each));
    const test = testOf(this.words);
    const rows = this.rows.filter((row) => test(String(row.host), shown.map((each) => each.of(row)).join("\n")));
    const way = this.sort.down ? -1 : 1;
    const byText = (a, b) => natural.compare(column.of(a), column.of(b));
    const compare = column.kind === "number" ? (a, b) => column.of(a) - column.of(b) : (a, b) => column.compare?.(a, b) || byText(a, b);
    return rows.sort((a, b) => way * compare(a, b) || known(b) - known(a) || natural.compare(a.host, b.host));
  }
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
      const names = siteNames(row);
      return h("td", { class: "wide seen", title: siteText(row) }, names.length > FEW ? count(names.length, "site") : siteText(row));
    }
    default:
      return h("td", { class: column.kind }, column.of(row));
  }
}
