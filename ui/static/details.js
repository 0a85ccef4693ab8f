// What one instant did, as its files say, beside what is known of it.

import { byId, make, tableOf } from "./dom.js";
import { bytesText, countText, spanText, timeText } from "./format.js";
import { stateText } from "./store.js";

export class Details {
  constructor(store, fetchIt, select) {
    Object.assign(this, { store, fetchIt, select });
    this.panel = byId("details");
    this.key = "";
    document.addEventListener("keydown", (event) => event.key === "Escape" && !byId("confirm").open && this.close());
  }

  async open(key) {
    this.key = key;
    const one = this.store.entries.get(key);
    if (!one) return;
    this.render(one, make("p", { class: "small" }, "reading"));
    const left = !["lost", "gone"].includes(one.outcome);
    const found = left ? await this.fetchIt(`instants/${encodeURIComponent(key)}`) : {};
    if (this.key === key) this.render(this.store.entries.get(key) ?? one, ...this.more(found));
  }

  close() {
    this.panel.hidden = true;
    this.key = "";
  }

  render(one, ...more) {
    const close = make("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => this.close() }, "×");
    const list = make("dl", {}, ...Object.entries(this.lines(one)).flatMap(([name, value]) => (value ? [make("dt", {}, name), make("dd", {}, value)] : [])));
    this.panel.replaceChildren(close, make("h2", {}, `${one.label} ${one.requested}`), list, ...more);
    if (this.panel.hidden) {
      this.panel.hidden = false;
      this.panel.scrollIntoView({ block: "nearest" });
    }
  }

  lines(one) {
    const link = (key) => make("button", { type: "button", class: "link", onclick: () => this.select(key) }, key);
    return {
      outcome: make("span", { class: `state-${one.outcome}` }, stateText(one) + (one.attempt ? `, try ${one.attempt}` : "")),
      writer: one.writer,
      requested: `${timeText(one.start)} UTC`,
      completed: one.completion && `${timeText(one.end)} UTC (${one.completion})`,
      took: one.end !== null && spanText(one.end - one.start),
      "lost to": one.winner && make("span", {}, link(one.winner), ` ${one.winner_writer ?? ""}`),
      "thrown away": one.winner && `${spanText(one.seconds_lost * 1000)}, ${countText(one.rows)} rows, ${bytesText(one.size_bytes)}`,
      "taken away by": one.undone_by && link(one.undone_by),
      wrote: !one.winner && (one.rows || one.files) && `${countText(one.rows)} rows, ${one.files} files, ${bytesText(one.size_bytes)}`,
      "file groups": one.file_groups && String(one.file_groups),
      replaced: one.replaced && `${one.replaced} file groups`,
    };
  }

  more(found) {
    if (found.problem) return [make("p", { class: "warn" }, found.problem)];
    const said = [];
    if (found.columns?.length) said.push(line("columns", found.columns.join(", ")));
    if (found.partitions) said.push(line("partitions", String(found.partitions)));
    for (const [key, value] of Object.entries(found.noted ?? {})) said.push(line(key, value));
    if (found.undone?.length) said.push(line("undid", found.undone.join(", ")));
    if (found.steps?.length) said.push(line("on the timeline", found.steps.join(", ")));
    const list = make("dl", {}, ...said.flat());
    if (!found.files?.length) return [list];
    const rows = found.files.map((file) => [
      [file.path, "text"],
      [file.rows === undefined ? "" : countText(file.rows), "number"],
      [file.bytes === undefined ? "" : bytesText(file.bytes), "number"],
    ]);
    const less = found.file_count > found.files.length ? `, the first ${found.files.length} of them` : "";
    const title = make("p", { class: "small" }, `${countText(found.file_count)} files${less}`);
    return [list, title, make("div", { class: "files", tabindex: "0", role: "region", "aria-label": "Files" }, tableOf("Files", ["file", ["rows", "number"], ["bytes", "number"]], rows))];
  }
}

function line(name, value) {
  return [make("dt", {}, name), make("dd", {}, value)];
}
