// Beside the timeline: locks, open transactions, plans, conflicts, and what was done from here.

import { byId, make, replace, tableOf } from "./dom.js";
import { bytesText, countText, spanText, timeText, toMs } from "./format.js";

const LOSSES_SHOWN = 20;

export class Panels {
  constructor(store, select, ask) {
    Object.assign(this, { store, select, ask });
    this.allowed = false;
    setInterval(() => this.age(), 1000);
  }

  // Renders the parts that have changed.
  show(names) {
    const all = { locks: this.locks, writers: this.writers, plans: this.plans, losses: this.losses, actions: this.actions };
    for (const name of names) if (all[name]) replace(byId(name), ...all[name].call(this, this.store.parts[name] ?? []));
    this.age();
  }

  // Ages go on while nothing else changes.
  age() {
    for (const one of document.querySelectorAll("[data-since]")) {
      one.textContent = spanText(this.store.now() - Number(one.dataset.since));
    }
  }

  since(ms) {
    return make("span", { "data-since": ms });
  }

  instant(key) {
    return make("button", { type: "button", class: "link", "data-focus": `i${key}`, title: key, onclick: () => this.select(key) }, timeText(toMs(key.slice(0, 17))).slice(11));
  }

  button(what, target, words) {
    if (!this.allowed) return "";
    const focus = `${what} ${target}`;
    return make("button", { type: "button", "data-focus": focus, onclick: () => this.ask(what, target, words) }, what);
  }

  locks(part) {
    const said = Object.entries(part.options ?? {}).map(([key, value]) => `${key}=${value}`).join(" ");
    const found = [make("p", { class: "small" }, said || "not asked yet")];
    if (part.others) found.push(warn(`the table's writers use other locks: ${part.others}`));
    if (part.problem) return [...found, warn(part.problem)];
    if (!part.held?.length) return [...found, make("p", {}, "no lock is held")];
    const rows = part.held.map((one) => [
      [one.key, "text"],
      [one.owner, "text"],
      [one.token, "number"],
      [this.since(one.since_ms), "number"],
      [waitersText(one), "text"],
      this.button("break", one.key, `Break the lock ${one.key} of ${one.owner}? Its holder is told, and must not believe that it holds it any more.`),
    ]);
    return [...found, tableOf("Locks that are held", ["lock", "holder", "token", "for", "waiting", ""], rows)];
  }

  writers(part) {
    if (!part.length) return [make("p", {}, "no transaction is open")];
    const texts = { alive: "alive", watched: "watched", silent: "silent" };
    const rows = part.map((one) => [
      this.instant(one.instant),
      [make("span", one.version ? { title: `lakelatch ${one.version}` } : {}, one.writer || "another kind of writer"), "text"],
      [make("span", { title: `without a beat for ${spanText(one.expiry_ms)} it counts as dead` }, texts[one.state]), `state-${one.state}`],
      [one.proof === "lease" ? "by lease" : this.since(one.seen_ms), "number"],
    ]);
    return [tableOf("Open transactions", ["begun", "writer", "", "beat seen"], rows)];
  }

  plans(part) {
    const found = [];
    if (part.waiting?.length) {
      const rows = part.waiting.map((one) => [
        this.instant(one.instant),
        one.action,
        one.cancelled ? `called off${one.cancelled === "part" ? " in part" : ""}` : one.state,
        !one.cancellable || one.cancelled === "whole" ? "" : this.button("call off", one.instant, `Call ${one.action} ${one.instant} off? It will never commit, for good.`),
      ]);
      found.push(tableOf("Plans that wait", ["planned", "service", "state", ""], rows));
    }
    const due = part.due ?? [];
    if (due.length) {
      const rows = due.map((name) => [name, "due", this.button("run", name, `Run ${name} now, in the process of this page?`)]);
      found.push(tableOf("Services that are due", ["service", "", ""], rows));
    }
    return found.length ? found : [make("p", {}, "nothing is due, and no plan waits")];
  }

  losses(part) {
    if (!part.length) return [make("p", {}, "no write has lost lately")];
    const sum = (name) => part.reduce((total, one) => total + one[name], 0);
    const text = `${part.length} lost: ${spanText(sum("time_lost_s") * 1000)}, ${countText(sum("rows_lost"))} rows, ${bytesText(sum("bytes_lost"))}`;
    const rows = part.slice(-LOSSES_SHOWN).reverse().map((one) => [
      this.instant(one.instant),
      [`${one.writer} lost to ${one.winner_writer || "another writer"}${one.early ? ", found early" : ""}`, "text"],
      [spanText(one.time_lost_s * 1000), "number"],
      [bytesText(one.bytes_lost), "number"],
    ]);
    return [make("p", { class: "small" }, text), tableOf("Conflicts", ["loser", "", "time", "bytes"], rows)];
  }

  actions(part) {
    const rows = [...part].reverse().map((one) => [
      [`${one.what} ${one.target}`, "text"],
      [one.state, `state-${one.state}`],
      [one.outcome || this.since(one.since_ms), "text"],
    ]);
    return rows.length ? [tableOf("Actions", ["what", "", "outcome"], rows)] : [make("p", {}, "nothing was done from this page yet")];
  }

  // The conflicts in words, for who hears the page.
  news(losses) {
    return losses.map((one) => `${one.writer} (${one.instant}) lost to ${one.winner_writer || one.winner}: ${spanText(one.time_lost_s * 1000)} of work`).join(". ");
  }
}

// Who waits by name, or how many; "not told" where the lock service does not know.
function waitersText(one) {
  if (one.waiting === null) return "not told";
  const more = one.waiting - one.waiters.length;
  return one.waiters.length ? `${one.waiters.join(", ")}${more > 0 ? ` and ${more} more` : ""}` : one.waiting ? String(one.waiting) : "";
}

function warn(text) {
  return make("p", { class: "warn" }, text);
}
