// The timeline as a table, in pages: all that the canvas shows, for who does not see it.

import { byId, make, replace, tableOf } from "./dom.js";
import { bytesText, countText, spanText, timeText } from "./format.js";
import { stateText } from "./store.js";

const PAGE = 50;

export class Twin {
  constructor(store, select) {
    Object.assign(this, { store, select });
    this.page = 0;
    this.text = "";
  }

  show() {
    const { shown } = this.store;
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const until = shown.length - this.page * PAGE;
    const chosen = shown.slice(Math.max(0, until - PAGE), until).reverse();
    const text = JSON.stringify([this.page, shown.length, chosen.map((one) => [one.key, one.state, one.rows, one.writer, one.cancelled, one.completion, one.archived])]);
    if (text === this.text) return;
    this.text = text;
    const heads = ["requested", "instant", "writer", "outcome", ["took", "number"], ["rows", "number less"], ["files", "number less"], ["bytes", "number less"]];
    const table = tableOf("Instants, the newest first", heads, chosen.map((one) => this.row(one)));
    replace(byId("twin-table"), table, this.pager(pages, shown.length));
  }

  row(one) {
    const open = { type: "button", class: "link", "data-focus": one.key, "data-key": one.key, onclick: () => this.select(one.key) };
    const lost = one.winner ? ` to ${one.winner_writer || one.winner}` : "";
    const state = `${stateText(one)}${lost}${one.attempt ? ` (try ${one.attempt})` : ""}`;
    return [
      [make("button", open, timeText(one.start)), "time"],
      one.label,
      [one.writer || (one.kind === "service" ? "" : "not known"), "text"],
      [state, `state-${one.outcome}`],
      [one.end === null ? "…" : spanText(one.end - one.start), "number"],
      [one.rows ? countText(one.rows) : "", "number less"],
      [one.files || one.file_groups ? String(one.files || one.file_groups) : "", "number less"],
      [one.size_bytes ? bytesText(one.size_bytes) : "", "number less"],
    ];
  }

  pager(pages, count) {
    const go = (by) => () => {
      this.page += by;
      this.show();
    };
    return make(
      "div",
      { class: "pager" },
      make("button", { type: "button", disabled: this.page === 0, "data-focus": "newer", onclick: go(-1) }, "Newer"),
      make("span", {}, `page ${this.page + 1} of ${pages}, ${countText(count)} instants`),
      make("button", { type: "button", disabled: this.page >= pages - 1, "data-focus": "older", onclick: go(1) }, "Older"),
    );
  }
}
