// Elements from values. Text is always set as text, so that nothing in a table's names is taken for markup.

export const byId = (id) => document.getElementById(id);

export function make(tag, values = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

export function tableOf(caption, heads, rows) {
  const cell = (tag, [text, kind]) => make(tag, { class: kind, scope: tag === "th" ? "col" : undefined }, text);
  return make(
    "div",
    { class: "wide" },
    make(
      "table",
      { "aria-label": caption },
      make("thead", {}, make("tr", {}, ...heads.map((head) => cell("th", [head].flat())))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value) => cell("td", [value].flat()))))),
    ),
  );
}

// Puts new children in the place of the old ones, and the focus where it was.
export function replace(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  parent.replaceChildren(...children);
  if (focused) [...parent.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === focused)?.focus();
}
