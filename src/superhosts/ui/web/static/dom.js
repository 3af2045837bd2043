// Makes elements. Text from outside is only ever a text node: there is no way here to make markup of it.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function show(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
}

export function say(text) {
  document.getElementById("announcer").textContent = text;
}

// What is shown until there is something: lines as wide as words.
export const bones = (lines = 3) => h("div", { class: "bones", "aria-hidden": "true" }, Array.from({ length: lines }, () => h("div", { class: "bone" })));

// Something that is chosen and kept in this browser; storage may be forbidden.
export function stored(key, value = undefined) {
  try {
    if (value !== undefined) localStorage.setItem(key, JSON.stringify(value));
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

export const notices = (texts) => texts.map((text) => h("p", { class: "notice" }, text));

// A table with a caption; `columns`: [heading, class]; `rows`: arrays of texts or nodes.
export function plainTable(caption, columns, rows, captionClass = "") {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: captionClass }, caption),
      h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
      h(
        "tbody",
        {},
        rows.map((cells) =>
          h("tr", {}, cells.map((cell, at) => h(at ? "td" : "th", at ? { class: columns[at][1] } : { scope: "row" }, cell))),
        ),
      ),
    ),
  );
}
