// The frame of the page: sections, keys, the theme, and the link to the server.

import { AccuracyPage } from "./accuracy.js";
import { AlertsPage } from "./alerts.js";
import { get, listen } from "./api.js";
import { AskPage } from "./ask.js";
import { h, show } from "./dom.js";
import { openHelp } from "./help.js";
import { HostPage } from "./host.js";
import { NowPage } from "./now.js";
import { SitesPage } from "./sites.js";
import { Turns } from "./turns.js";
import { changeZone, isLocal } from "./zone.js";

const SECTIONS = [
  { path: "", title: "Now", page: NowPage },
  { path: "ask", title: "Ask again", page: AskPage, needs: "ask" },
  { path: "sites", title: "Sites", page: SitesPage, needs: "sites" },
  { path: "alerts", title: "Alerts", page: AlertsPage, needs: "alerts" },
  { path: "accuracy", title: "Accuracy", page: AccuracyPage, needs: "parts" },
];
const AGAIN = 20000; // milliseconds after which it is looked at again whether the newest window is live
const THEMES = ["auto", "light", "dark"];

const main = document.getElementById("main");
// What all pages know: `now` is the time of the server, `refresh` and `restart` are those of `Turns`.
const context = {
  summary: null,
  changed: 0,
  ahead: 0, // seconds of the server's clock before that of the browser
  now: () => Date.now() / 1000 + context.ahead,
  isLive: () => context.now() < context.summary.live_until, // windows are added, and the newest is of now
  refresh: () => turns?.refresh(),
  restart: () => turns?.restart(),
  readSummary,
  fail,
};
let isUp = null; // whether the link works; null: it was not tried yet
let page = null;
let turns = null;

const sections = () => SECTIONS.filter((each) => !each.needs || context.summary.can[each.needs]);

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, rest] = [path.split("/")[0], path.slice(path.indexOf("/") + 1)];
  turns?.close();
  page?.close?.();
  page = null;
  let section = sections().find((each) => each.path === name);
  const isHost = name === "host" && path.includes("/");
  if (!section && !isHost) section = SECTIONS[0];
  const kind = isHost ? HostPage : section.page;
  page = new kind(context, new URLSearchParams(query || ""), isHost ? decoded(rest) : "");
  document.title = `${page.title} · ${context.summary.title} · superhosts`;
  drawSections(isHost ? SECTIONS[0] : section);
  show(main, page.element);
  scrollTo(0, 0);
  turns = new Turns(page, shown, fail);
  turns.refresh();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function drawSections(current) {
  show(
    document.getElementById("sections"),
    sections().map((each) => h("a", { href: `#/${each.path}`, "aria-current": each === current ? "page" : null }, each.title)),
  );
}

function shown() {
  main.querySelector(".failure")?.remove();
  ready();
}

function fail(error) {
  if (error.status === 401) location.reload();
  main.querySelector(".failure")?.remove();
  page.element.prepend(h("p", { class: "notice failure", role: "alert" }, `This could not be loaded: ${error.message}.`));
  ready();
}

function ready() {
  if (document.body.dataset.ready === undefined) performance.mark("shown");
  document.body.dataset.ready = "yes";
}

async function readSummary(signal = undefined) {
  const summary = await get("summary", {}, signal);
  context.summary = summary;
  context.ahead = summary.now - Date.now() / 1000;
  return summary;
}

// A hundred viewers hear of each window: the page that most of them look at asks for that window alone.
async function change(state) {
  context.changed = state.changed;
  context.summary.reading = state.reading;
  context.summary.live_until = state.live_until;
  try {
    if (!page?.readsWindows) await readSummary();
  } catch {
    return; // the link tells when it is back
  }
  turns?.refresh(true);
  drawLink();
}

function drawLink(up = isUp) {
  isUp = up;
  const link = document.getElementById("link");
  link.className = `link ${up ? "up" : "down"}`;
  if (up) show(link, context.summary && context.isLive() ? "Live" : "Connected");
  else show(link, "Link lost", h("span", { class: "rest" }, ", retrying …"));
}

function themeOf() {
  return document.documentElement.dataset.theme || "auto";
}

function drawTheme() {
  const button = document.getElementById("theme");
  button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[themeOf()];
  button.setAttribute("aria-label", `Colours: ${button.textContent}. Change`);
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(themeOf()) + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("superhosts-theme", next);
  } catch {
    // Storage may be forbidden: the choice lasts for this visit.
  }
  drawTheme();
  page?.restyle?.();
}

function drawZone() {
  const button = document.getElementById("zone");
  button.textContent = isLocal ? "Local" : "UTC";
  button.setAttribute("aria-label", `Times: ${isLocal ? "local" : "UTC"}. Change`);
  button.addEventListener("click", () => {
    button.hidden = !changeZone();
  });
}

const openKeys = () => openHelp(sections().length);

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  const { key, target } = event;
  const table = page?.table;
  const typing = target.matches("input, select, textarea");
  if (key === "Escape") {
    if (table?.clear()) table.search.focus();
    else if (typing) target.blur();
    else if (location.hash.startsWith("#/host/")) history.back();
    return;
  }
  if (typing && !(key === "ArrowDown" && target === table?.search)) return;
  const moves = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
  const number = Number(key);
  if (key === "/" && table) table.search.focus();
  else if (key === "?") openKeys();
  else if (key in moves && table && (key.length === 1 || table.element.contains(target))) table.step(moves[key]);
  else if (number >= 1 && sections()[number - 1]) location.hash = `#/${sections()[number - 1].path}`;
  else if (!page?.keys?.(key)) return;
  event.preventDefault();
}

function begin() {
  if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", location.pathname + location.hash);
  drawTheme();
  drawZone();
  document.getElementById("theme").addEventListener("click", nextTheme);
  document.getElementById("help-open").addEventListener("click", openKeys);
  document.getElementById("skip").addEventListener("click", () => main.focus());
  connect();
}

async function connect() {
  try {
    context.changed = (await readSummary()).changed;
  } catch (error) {
    if (error.status === 401) location.reload();
    drawLink(false);
    setTimeout(connect, 3000);
    return;
  }
  document.getElementById("what").textContent = context.summary.title;
  addEventListener("hashchange", route);
  addEventListener("keydown", onKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page?.restyle?.());
  route();
  listen(context.changed, change, drawLink);
  setInterval(() => isUp && drawLink(), AGAIN);
}

begin();
