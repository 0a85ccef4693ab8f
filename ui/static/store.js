// What the server has told of one table, and which of it is shown.

import { toMs } from "./format.js";

const WRITES = new Set(["commit", "deltacommit", "replacecommit", "write"]);
const OUTCOMES = { completed: "done", lost: "lost", "rolled back": "gone", aborted: "off" };
const ROWS_MOST = 8;
const [SAME_MS, RETRY_MS, CLOCK_SET_MS] = [100, 30_000, 1000];

export class Store {
  constructor() {
    this.filter = { text: "", outcome: "", kind: "" };
    this.clear();
  }

  clear() {
    this.entries = new Map();
    this.parts = {};
    this.known = false; // whether the server has told anything
    this.ahead = 0; // of this machine's clock is the server's
    this.keepsArchived = false;
    this.lanes = [];
    this.shown = [];
    this.ends = [];
  }

  now() {
    return Date.now() + this.ahead;
  }

  // A change may come late and never early, so the greatest is right, unless a clock was set.
  setAhead(ahead) {
    if (!this.known || ahead > this.ahead || ahead < this.ahead - CLOCK_SET_MS) this.ahead = ahead;
  }

  // Takes a change over; the conflicts that are new in it are returned.
  apply(change) {
    this.setAhead(change.now_ms - Date.now());
    this.known = true;
    if (change.reset) for (const [key, one] of this.entries) if (!one.archived) this.entries.delete(key);
    for (const key of change.gone) this.remove(key);
    for (const raw of change.entries) this.entries.set(raw.key, prepared(raw));
    const before = new Set((this.parts.losses ?? []).map((one) => one.instant));
    Object.assign(this.parts, change.parts);
    this.arrange();
    return change.reset ? [] : (this.parts.losses ?? []).filter((one) => !before.has(one.instant));
  }

  remove(key) {
    const before = this.entries.get(key);
    if (this.keepsArchived && before?.completion) before.archived = true;
    else this.entries.delete(key);
  }

  addArchived(found) {
    this.keepsArchived = true;
    for (const raw of found) if (!this.entries.has(raw.key)) this.entries.set(raw.key, prepared(raw));
    this.arrange();
  }

  oldestArchived() {
    let oldest = "";
    for (const one of this.entries.values()) if (one.archived && (!oldest || one.completion < oldest)) oldest = one.completion;
    return oldest;
  }

  setFilter(filter) {
    this.filter = filter;
    this.arrange();
  }

  matches(one) {
    const { text, outcome, kind } = this.filter;
    if (outcome && one.outcome !== outcome) return false;
    if (kind && one.kind !== kind) return false;
    return !text || wordsOf(one).includes(text.toLowerCase());
  }

  // Lanes in the order in which they first appear, those of services last; in each, rows for what overlaps.
  arrange() {
    this.shown = [...this.entries.values()].filter((one) => this.matches(one)).sort((a, b) => a.start - b.start);
    const lanes = new Map();
    for (const one of this.shown) {
      let lane = lanes.get(one.lane);
      if (!lane) lanes.set(one.lane, (lane = { name: one.lane, kind: one.kind, ends: [], attempt: null, entries: [] }));
      const before = number(lane, one);
      one.row = before && lane.ends[before.row] <= before.end ? before.row : freeRow(lane.ends, one.start);
      lane.ends[one.row] = Math.max(lane.ends[one.row] ?? 0, one.end ?? Infinity);
      lane.entries.push(one);
      one.laneOf = lane;
    }
    this.lanes = [...lanes.values()].sort((a, b) => (a.kind === "service") - (b.kind === "service"));
    this.lanes.forEach((lane, index) => (lane.index = index));
    let last = -Infinity;
    this.ends = this.shown.map((one) => (last = Math.max(last, one.end ?? Infinity)));
  }

  // What is shown and overlaps a time: the starts are in order, and so is the last end of all that have started.
  between(start, end, now) {
    const from = firstIndex(this.ends, (one) => one >= start);
    const until = firstIndex(this.shown, (one) => one.start > end);
    return this.shown.slice(from, until).filter((one) => (one.end ?? now) >= start);
  }

  extent() {
    let [start, end] = [Infinity, -Infinity];
    for (const one of this.shown) {
      start = Math.min(start, one.start);
      end = Math.max(end, one.end ?? this.now());
    }
    return this.shown.length ? [start, end] : [this.now() - 60_000, this.now()];
  }

  // The heartbeat of an open instant, if the server sees one.
  beatOf(one) {
    return one.end === null ? (this.parts.writers ?? []).find((writer) => writer.instant === one.requested) : undefined;
  }
}

function prepared(raw) {
  const kind = WRITES.has(raw.action) && !raw.service ? "write" : "service";
  const outcome = OUTCOMES[raw.state] ?? (raw.cancelled === "whole" ? "off" : "open");
  const start = toMs(raw.requested);
  const ended = raw.completion ?? raw.ended;
  const end = ended ? Math.max(toMs(ended), start) : outcome === "off" ? start : null;
  const lane = kind === "service" ? (raw.service || raw.action) : (raw.writer || "writers not known yet");
  const label = raw.operation || raw.service || raw.action;
  // The object that was parsed, since thousands of copies take longer than all the rest.
  return Object.assign(raw, { rows: raw.rows ?? 0, files: raw.files ?? 0, size_bytes: raw.size_bytes ?? 0, writer: raw.writer ?? "", kind, outcome, start, end, lane, label });
}

// What a search looks through, made when somebody searches.
function wordsOf(one) {
  const said = [one.requested, one.completion, one.writer, one.operation, one.action, one.service, one.state, one.lane];
  return (one.words ??= said.join(" ").toLowerCase());
}

// The first place at which something holds that holds from there on.
function firstIndex(values, holds) {
  let [from, until] = [0, values.length];
  while (from < until) {
    const half = (from + until) >> 1;
    if (holds(values[half])) until = half;
    else from = half + 1;
  }
  return from;
}

function freeRow(ends, start) {
  for (let row = 0; row < ROWS_MOST; row += 1) if ((ends[row] ?? -Infinity) <= start) return row;
  return ROWS_MOST - 1;
}

// Tries of one write: what the same writer begins soon after it has lost. They are numbered, on one row; the try before is
// returned.
function number(lane, one) {
  one.attempt = 0;
  if (one.kind !== "write") return null;
  const before = lane.attempt;
  lane.attempt = one;
  if (before?.outcome !== "lost" || before.end > one.start + SAME_MS || before.end < one.start - RETRY_MS) return null;
  before.attempt ||= 1;
  one.attempt = before.attempt + 1;
  return before;
}

export function stateText(one) {
  if (one.cancelled && one.state !== "aborted") return `${one.state}, called off${one.cancelled === "part" ? " in part" : ""}`;
  return one.archived ? "archived" : one.state;
}
