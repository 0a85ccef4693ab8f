// Says what there is where no instant is in view, so that an empty picture is not taken for an empty table.

import { FOLLOWED } from "./chart.js";
import { byId } from "./dom.js";
import { spanText, timeText } from "./format.js";

export class Empty {
  constructor(chart, store) {
    Object.assign(this, { chart, store });
    chart.onSeen = (count) => this.show(count);
    byId("show-last").addEventListener("click", () => chart.showLast());
  }

  // Called with each frame, so nothing is touched that stays as it is.
  show(count) {
    const text = count ? "" : this.text();
    const [box, words] = [byId("empty"), byId("empty-text")];
    if (box.hidden !== !text) box.hidden = !text;
    if (words.textContent !== text) words.textContent = text;
    const button = byId("show-last");
    if (button.hidden !== !this.store.shown.length) button.hidden = !this.store.shown.length;
  }

  text() {
    const { chart, store } = this;
    if (!store.known) return "";
    if (!store.shown.length) return store.entries.size ? "No instant is as the search and the filters want it." : "There are no instants.";
    const last = store.extent()[1];
    const at = `The last instant was at ${timeText(last).slice(0, 19)}`;
    if (!chart.follows) return `Nothing in this part of time. ${at}.`;
    return `Nothing in the last ${spanText(chart.span * FOLLOWED)}. ${at}, ${spanText(Math.max(1, Math.floor((store.now() - last) / 1000)) * 1000)} ago.`;
  }
}
