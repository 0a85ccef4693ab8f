// The page: a stream of changes from the server, and what shows them.

import { Chart } from "./chart.js";
import { Details } from "./details.js";
import { byId, make, replace } from "./dom.js";
import { Empty } from "./empty.js";
import { Panels } from "./panels.js";
import { Store } from "./store.js";
import { Twin } from "./twin.js";

const ALL_PARTS = ["locks", "writers", "plans", "losses", "actions"];
const store = new Store();
const select = (key) => {
  chart.show(key);
  details.open(key);
};
const chart = new Chart(byId("chart"), byId("scroll"), byId("spacer"), byId("hint"), store, select);
new Empty(chart, store);
const panels = new Panels(store, select, confirmAction);
const twin = new Twin(store, select);
const details = new Details(store, fetchOf, select);
let source = null;
let table = Number(new URLSearchParams(location.hash.slice(1)).get("table") ?? 0) || 0;
let tables = [];
let unseen = true; // nothing of this table was shown yet

history.replaceState(null, "", location.pathname + location.hash); // the token is in a cookie by now

function connect() {
  source?.close();
  if (document.hidden) return; // who does not look needs no stream, and a browser has few for each host
  source = new EventSource(`api/events?table=${table}`);
  source.addEventListener("tables", (event) => showTables(JSON.parse(event.data)));
  source.onmessage = (event) => {
    const change = JSON.parse(event.data);
    const first = change.reset;
    const lost = store.apply(change);
    panels.show(first ? ALL_PARTS : Object.keys(change.parts));
    if (lost.length) byId("news").textContent = panels.news(lost);
    if (details.key && change.entries.some((one) => one.key === details.key)) details.open(details.key);
    if (first && unseen) chart.begin();
    else chart.notice();
    unseen = false;
    refresh();
  };
  source.onopen = () => say("live", "live");
  source.onerror = () => {
    const over = source.readyState === EventSource.CLOSED;
    say(over ? "The page has ended: open the URL that lakelatch ui prints" : "connection lost, trying again", "lost");
  };
}

function refresh() {
  twin.show();
  chart.ask();
}

function say(text, kind) {
  byId("connection").textContent = text;
  byId("connection").className = kind;
}

function showTables(told) {
  tables = told.tables;
  if (table >= tables.length) return choose(0);
  panels.allowed = told.actions;
  byId("actions-panel").hidden = !told.actions;
  const tabs = tables.map((one) => {
    const name = one.uri.split("/").at(-1);
    const more = one.state !== "ok" ? ` (${one.state})` : one.pending ? ` · ${one.pending} open` : "";
    const values = { type: "button", title: one.uri, class: one.state, "data-focus": `t${one.number}`, "aria-current": one.number === table ? "true" : undefined };
    return make("button", { ...values, onclick: () => choose(one.number) }, name + more);
  });
  replace(byId("tables"), ...tabs);
  const own = tables[table];
  document.title = `${own.uri.split("/").at(-1)} – Lakelatch`;
  byId("problem").hidden = !own.problem;
  byId("problem").textContent = own.problem && `${own.uri}: ${own.problem}`;
  byId("archived").hidden = !own.has_history || byId("archived").dataset.done === String(table);
}

function choose(number) {
  table = number;
  unseen = true;
  store.clear();
  details.close();
  location.hash = number ? `table=${number}` : "";
  connect();
}

// What the server says on a question, or the problem with it.
async function fetchOf(path, options) {
  try {
    const answer = await fetch(`api/tables/${table}/${path}`, options);
    if (answer.headers.get("content-type")?.startsWith("application/json")) {
      const found = await answer.json();
      return answer.ok ? found : { problem: found.message };
    }
    return { problem: await answer.text() };
  } catch (error) {
    return { problem: `the page cannot be reached (${error.message})` };
  }
}

function confirmAction(what, target, words) {
  const dialog = byId("confirm");
  byId("confirm-text").textContent = words;
  byId("confirm-no").onclick = () => dialog.close();
  byId("confirm-yes").onclick = async () => {
    dialog.close();
    const body = JSON.stringify({ what, target, confirmed: target });
    const found = await fetchOf("actions", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (found.problem) byId("news").textContent = found.problem;
    if (found.problem) replace(byId("actions"), make("p", { class: "warn" }, `${what} ${target}: ${found.problem}`));
  };
  dialog.showModal();
}

async function showArchived() {
  const found = await fetchOf(`archived?before=${store.oldestArchived()}`);
  if (found.problem) return say(found.problem, "lost");
  store.addArchived(found.entries);
  const button = byId("archived");
  button.textContent = `Archived: ${found.left} more`;
  button.hidden = !found.left;
  if (!found.left) button.dataset.done = String(table);
  refresh();
  return undefined;
}

function listen() {
  const acts = {
    "zoom-in": () => chart.zoom(0.6), "zoom-out": () => chart.zoom(1.6), earlier: () => chart.pan(-chart.width / 3), later: () => chart.pan(chart.width / 3),
    fit: () => chart.fit(), follow: () => chart.setFollows(!chart.follows), archived: showArchived,
  };
  for (const [id, act] of Object.entries(acts)) byId(id).addEventListener("click", act);
  chart.onFollow = (follows) => byId("follow").setAttribute("aria-pressed", String(follows));
  chart.onStep = (text) => (byId("news").textContent = text);
  const filter = () => {
    store.setFilter({ text: byId("search").value.trim(), outcome: byId("outcome").value, kind: byId("kind").value });
    twin.page = 0;
    refresh();
  };
  for (const id of ["search", "outcome", "kind"]) byId(id).addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("visibilitychange", connect);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.readColours());
  byId("theme").addEventListener("click", () => setTheme({ "": "dark", dark: "light", light: "" }[document.documentElement.dataset.theme ?? ""]));
  setTheme(localStorage.getItem("theme") ?? "");
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  localStorage.setItem("theme", theme);
  byId("theme").textContent = theme ? `Theme: ${theme}` : "Theme: system";
  chart.readColours();
}

window.lakelatch = { chart, store }; // for who measures or tests the page
listen();
connect();
