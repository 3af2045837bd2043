// The dialog that lists the keys.

import { h, show } from "./dom.js";

const keys = (sections) => [
  ["/", "filter the table"],
  ["j, k or ↓, ↑", "next and previous row"],
  ["Enter", "open the host"],
  ["[ and ]", "earlier and later window, or host"],
  ["l", "latest window"],
  [sections > 1 ? `1 … ${sections}` : "1", "sections"],
  ["Esc", "clear the filter, close this, go back"],
  ["?", "this list"],
];

export function openHelp(sections) {
  const dialog = document.getElementById("help");
  show(
    dialog,
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "keys" }, keys(sections).map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
    h("form", { method: "dialog" }, h("button", { type: "submit" }, "Close")),
  );
  if (!dialog.open) dialog.showModal();
}
