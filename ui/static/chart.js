// Swimlanes on a canvas: only what is in view is drawn, and what shares a pixel is drawn once.

import { bytesText, spanText, ticks, timeText } from "./format.js";
import { stateText } from "./store.js";

const ROW = 16, GAP = 3, PAD = 7, AXIS = 22, ARROWS_MOST = 300;
const OUTCOMES = ["done", "lost", "open", "gone", "off"];
export const FOLLOWED = 0.92; // of the width is before now, for who follows
const SPAN_FOLLOWED = 60_000;
const SPAN_LEAST = 5, SPAN_MOST = 40 * 365 * 864e5;

export class Chart {
  constructor(canvas, scroll, spacer, hint, store, select) {
    Object.assign(this, { canvas, scroll, spacer, hint, store, select });
    this.context = canvas.getContext("2d");
    this.follows = true;
    this.quietSince = null; // when the last instant was, while news are awaited
    this.span = SPAN_FOLLOWED;
    this.start = store.now() - 55_000;
    this.selected = "";
    this.drawn = [];
    this.frames = [];
    this.pointers = new Map();
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.readColours();
    new ResizeObserver(() => this.resize()).observe(scroll);
    scroll.addEventListener("scroll", () => this.ask());
    this.listen();
    setInterval(() => this.tick(), 100);
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["paper", "raised", "ink", "faint", "line", "accent", "done", "service", "open", "lost", "gone", "off"];
    this.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.ask();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.width = this.scroll.clientWidth;
    this.height = this.scroll.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.left = this.width < 600 ? 0 : 150;
    this.ask();
  }

  // Draws before the next frame, however often it is asked for.
  ask() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const began = performance.now();
      this.draw();
      this.frames.push(performance.now() - began);
      if (this.frames.length > 600) this.frames.shift();
    });
  }

  // Time goes on for what is under way, and for who follows.
  tick() {
    this.ticks = (this.ticks ?? 0) + 1;
    if (document.hidden || (this.still.matches && this.ticks % 10)) return;
    if (this.follows && !this.pointers.size) {
      this.start = this.store.now() - this.span * FOLLOWED;
      this.ask();
    } else if (this.store.shown.some((one) => one.end === null)) this.ask();
  }

  x(ms) {
    return this.left + ((ms - this.start) / this.span) * (this.width - this.left);
  }

  // -- drawing ------------------------------------------------------------------------------------------------------

  draw() {
    if (!this.width) return;
    const { context, store, colours } = this;
    const now = store.now();
    const end = this.start + this.span;
    const seen = store.between(this.start, end, now);
    this.onSeen?.(seen.length);
    this.place(seen);
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, this.width, this.height);
    context.save();
    context.beginPath();
    context.rect(0, AXIS, this.width, this.height - AXIS);
    context.clip();
    this.drawGrid();
    this.drawn = [];
    for (const lane of this.lanes.keys()) lane.runs = [];
    for (const one of seen) this.drawEntry(one, now);
    for (const lane of this.lanes.keys()) lane.runs.forEach((run) => this.drawBar(run.one, run.from, run.y, run.to - run.from));
    this.drawArrows(seen, now);
    this.drawNow(now);
    this.drawLanes();
    context.restore();
    this.drawAxis();
  }

  // Gives each lane that is in view its height and place.
  place(seen) {
    this.lanes = new Map();
    for (const one of seen) this.lanes.set(one.laneOf, Math.max(this.lanes.get(one.laneOf) ?? 0, one.row + 1));
    let top = AXIS;
    const offset = this.scroll.scrollTop;
    const title = this.left ? 0 : 13;
    for (const lane of [...this.lanes.keys()].sort((a, b) => a.index - b.index)) {
      lane.height = this.lanes.get(lane) * (ROW + GAP) + 2 * PAD + title;
      lane.top = top - offset;
      lane.first = lane.top + PAD + title;
      top += lane.height;
    }
    const blank = Math.max(0, top - this.height);
    if (this.blank !== blank) this.spacer.style.height = `${(this.blank = blank)}px`;
  }

  y(one) {
    return one.laneOf.first + one.row * (ROW + GAP);
  }

  drawGrid() {
    const { context, colours } = this;
    this.marks = ticks(this.start, this.span, Math.max(2, (this.width - this.left) / 110));
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.beginPath();
    for (const [at] of this.marks) {
      const x = Math.round(this.x(at)) + 0.5;
      context.moveTo(x, AXIS);
      context.lineTo(x, this.height);
    }
    for (const lane of this.lanes.keys()) {
      const y = Math.round(lane.top + lane.height) + 0.5;
      context.moveTo(0, y);
      context.lineTo(this.width, y);
    }
    context.stroke();
  }

  drawEntry(one, now) {
    const y = this.y(one);
    if (y + ROW < 0 || y > this.height) return;
    const from = Math.max(this.x(one.start), this.left - 4);
    const to = Math.min(this.x(one.end ?? now), this.width + 4);
    const wide = Math.max(to - from, 2);
    const selected = one.key === this.selected;
    if (wide <= 2 && !selected) return this.drawNarrow(one, from, y);
    this.drawn.push([one, from, y, wide]);
    this.drawBar(one, from, y, wide);
    if (one.outcome === "open") this.drawBeats(one, y, now);
    if (wide > 14) this.drawText(one, from, y, wide);
    if (selected) {
      this.context.strokeStyle = this.colours.ink;
      this.context.lineWidth = 2;
      this.context.strokeRect(from - 2, y - 2, wide + 4, ROW + 4);
    }
    return undefined;
  }

  // Narrow bars of one outcome that touch are one bar; of those that share a pixel one can be pointed at.
  drawNarrow(one, from, y) {
    const { runs } = one.laneOf;
    const place = one.row * OUTCOMES.length + OUTCOMES.indexOf(one.outcome);
    const run = runs[place];
    if (!run || Math.floor(from) !== run.pixel) this.drawn.push([one, from, y, 2]);
    if (run && from <= run.to + 0.5 && run.one.archived === one.archived) {
      run.to = Math.max(run.to, from + 2);
      run.pixel = Math.floor(from);
      return;
    }
    if (run) this.drawBar(run.one, run.from, run.y, run.to - run.from);
    runs[place] = { one, from, to: from + 2, y, pixel: Math.floor(from) };
  }

  colourOf(one) {
    const name = one.outcome === "done" && one.kind === "service" ? "service" : one.outcome;
    const silent = one.outcome === "open" && this.store.beatOf(one)?.state === "silent";
    return this.colours[silent ? "lost" : name];
  }

  drawBar(one, x, y, wide) {
    const { context } = this;
    const colour = this.colourOf(one);
    const filled = one.outcome === "done" || one.outcome === "lost";
    context.globalAlpha = one.archived ? 0.4 : filled ? 0.85 : 0.18;
    context.fillStyle = colour;
    context.fillRect(x, y, wide, ROW);
    context.globalAlpha = 1;
    if (filled || wide < 4) return;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.setLineDash(one.outcome === "open" ? [5, 3] : []);
    context.strokeRect(x + 0.75, y + 0.75, wide - 1.5, ROW - 1.5);
    context.setLineDash([]);
  }

  drawText(one, x, y, wide) {
    const { context, colours } = this;
    const filled = one.outcome === "done" || one.outcome === "lost";
    const mark = one.outcome === "lost" ? "✗ " : one.outcome === "gone" ? "↶ " : "";
    const tries = one.attempt ? `${one.attempt} ` : "";
    const rows = one.rows && wide > 130 ? `, ${one.rows.toLocaleString("en")} rows` : "";
    const text = `${tries}${mark}${wide > 60 ? one.label + rows : ""}`;
    if (!text) return;
    context.save();
    context.beginPath();
    context.rect(x, y, wide - 2, ROW);
    context.clip();
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = filled && !one.archived ? colours.paper : colours.ink;
    context.fillText(text, x + 4, y + ROW / 2 + 0.5);
    context.restore();
  }

  // A dot for each heartbeat, at the storage's time of it.
  drawBeats(one, y, now) {
    const beat = this.store.beatOf(one);
    if (!beat) return;
    this.context.fillStyle = this.colourOf(one);
    for (const at of beat.beats) {
      if (at < one.start || at > now) continue;
      this.context.fillRect(this.x(at) - 1.5, y + ROW - 4, 3, 3);
    }
  }

  // From the end of each write that lost to the end of the one that won, with what was lost.
  drawArrows(seen, now) {
    const { context, colours } = this;
    const texts = [];
    let count = 0;
    for (const one of seen) {
      const winner = one.winner && this.store.entries.get(one.winner);
      if (!winner?.laneOf || !this.lanes.has(winner.laneOf) || (count += 1) > ARROWS_MOST) continue;
      const [x, y] = [this.x(one.end), this.y(one) + ROW / 2];
      const [toX, toY] = [this.x(winner.end ?? now), this.y(winner) + ROW / 2];
      context.strokeStyle = context.fillStyle = colours.lost;
      context.lineWidth = one.key === this.selected ? 2.5 : 1.2;
      context.beginPath();
      context.moveTo(x, y);
      context.bezierCurveTo(x + 18, y, toX + 18, toY, toX + 1, toY);
      context.stroke();
      context.beginPath();
      context.moveTo(toX + 1, toY);
      context.lineTo(toX + 8, toY - 4);
      context.lineTo(toX + 8, toY + 4);
      context.fill();
      const edge = toY < y ? one.laneOf.top : one.laneOf.top + one.laneOf.height; // between two lanes is most space
      texts.push([`−${spanText(one.seconds_lost * 1000)}, ${bytesText(one.size_bytes)}`, x + 14, edge]);
    }
    this.drawTexts(texts);
  }

  drawTexts(texts) {
    const { context, colours } = this;
    const taken = [];
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const [text, wanted, y] of texts) {
      const wide = context.measureText(text).width;
      const x = Math.min(wanted, this.width - wide - 4);
      if (taken.some(([otherX, otherY, its]) => Math.abs(otherY - y) < 14 && x < otherX + its + 6 && otherX < x + wide + 6)) continue;
      taken.push([x, y, wide]);
      context.globalAlpha = 0.85;
      context.fillStyle = colours.paper;
      context.fillRect(x - 2, y - 7, wide + 4, 14);
      context.globalAlpha = 1;
      context.fillStyle = colours.lost;
      context.fillText(text, x, y + 0.5);
    }
  }

  drawNow(now) {
    const x = Math.round(this.x(now)) + 0.5;
    if (x < this.left || x > this.width) return;
    this.context.strokeStyle = this.colours.accent;
    this.context.lineWidth = 1;
    this.context.beginPath();
    this.context.moveTo(x, AXIS);
    this.context.lineTo(x, this.height);
    this.context.stroke();
  }

  drawLanes() {
    const { context, colours } = this;
    if (this.left) {
      context.fillStyle = colours.raised;
      context.fillRect(0, AXIS, this.left - 6, this.height);
    }
    context.textBaseline = this.left ? "middle" : "top";
    for (const lane of this.lanes.keys()) {
      context.font = `${lane.kind === "service" ? "italic " : ""}12px system-ui, sans-serif`;
      context.fillStyle = colours.ink;
      const y = this.left ? lane.top + lane.height / 2 : lane.top + 3;
      context.fillText(shortened(context, lane.name, (this.left || this.width) - 16), 6, y);
    }
  }

  drawAxis() {
    const { context, colours } = this;
    context.fillStyle = colours.raised;
    context.fillRect(0, 0, this.width, AXIS);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = colours.faint;
    const scale = `${timeText(this.start).slice(0, 10)}  ${spanText(this.span)}`;
    const from = Math.max(this.left, context.measureText(scale).width + 14);
    for (const [at, text] of this.marks) if (this.x(at) >= from) context.fillText(text, this.x(at) + 3, AXIS / 2);
    context.fillStyle = colours.ink;
    context.fillText(scale, 6, AXIS / 2);
  }

  // -- moving -------------------------------------------------------------------------------------------------------

  setFollows(follows) {
    this.follows = follows;
    this.quietSince = null;
    this.onFollow?.(follows);
    this.ask();
  }

  pan(pixels) {
    this.start += (pixels / (this.width - this.left)) * this.span;
    this.setFollows(false);
  }

  zoom(factor, x = null) {
    this.quietSince = null;
    const share = x === null ? (this.follows ? FOLLOWED : 0.5) : Math.max(0, x - this.left) / (this.width - this.left);
    const at = this.start + share * this.span;
    this.span = Math.min(Math.max(this.span * factor, SPAN_LEAST), SPAN_MOST);
    this.start = at - share * this.span;
    if (x !== null) this.setFollows(false);
    this.ask();
  }

  // The last minute if something has happened in it, else all that there is until something does.
  begin() {
    const [start, end] = this.store.extent();
    const now = this.store.now();
    this.span = Math.min(Math.max((now - start) * 1.1, 20_000), SPAN_FOLLOWED);
    if (now - end <= SPAN_FOLLOWED) return this.setFollows(true);
    this.fit();
    this.quietSince = end;
    return undefined;
  }

  // Goes to what has begun since `begin`, unless one has moved or looked at an instant meanwhile.
  notice() {
    if (this.quietSince === null || !(this.store.shown.at(-1)?.start > this.quietSince)) return;
    this.span = SPAN_FOLLOWED;
    this.setFollows(true);
  }

  fit() {
    const [start, end] = this.store.extent();
    this.span = Math.max((end - start) * 1.06, 1000);
    this.start = start - this.span * 0.02;
    this.setFollows(false);
  }

  // Brings the last instant into view, at this zoom.
  showLast() {
    const last = this.store.extent()[1];
    this.start = last - this.span * FOLLOWED;
    this.setFollows(false);
  }

  show(key) {
    const one = this.store.entries.get(key);
    if (!one) return;
    this.quietSince = null;
    const now = this.store.now();
    const end = one.end ?? now;
    if (one.start < this.start || end > this.start + this.span) {
      this.span = Math.max(this.span, (end - one.start) * 1.5);
      this.start = (one.start + end) / 2 - this.span / 2;
      this.setFollows(false);
    }
    this.selected = key;
    this.ask();
  }

  // -- pointers and keys --------------------------------------------------------------------------------------------

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => (this.hint.hidden = true));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, event.offsetX));
  }

  // The bar at a point, or the nearest one of its row.
  at(x, y) {
    let [found, least] = [undefined, 3];
    for (const [one, left, top, wide] of this.drawn) {
      const away = y < top || y > top + ROW ? Infinity : Math.max(left - x, x - left - wide, 0);
      if (away <= least) [found, least] = [one, away];
    }
    return found;
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, moved: 0 });
  }

  move(event) {
    const one = this.pointers.get(event.pointerId);
    if (!one) return this.showHint(event);
    const [dx, dy] = [event.offsetX - one.x, event.offsetY - one.y];
    if (this.pointers.size === 2) this.pinch(event.pointerId, event.offsetX);
    else {
      if (dx) this.pan(-dx);
      this.scroll.scrollTop -= dy;
    }
    Object.assign(one, { x: event.offsetX, y: event.offsetY, moved: one.moved + Math.abs(dx) + Math.abs(dy) });
  }

  pinch(id, x) {
    const other = [...this.pointers].find(([key]) => key !== id)[1];
    const before = Math.abs(this.pointers.get(id).x - other.x);
    const after = Math.abs(x - other.x);
    if (before > 5 && after > 5) this.zoom(before / after, (x + other.x) / 2);
  }

  up(event) {
    const one = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (one && one.moved < 5 && event.type === "pointerup") {
      const found = this.at(event.offsetX, event.offsetY);
      if (found) this.select(found.key);
    }
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(event.deltaY * 0.004), event.offsetX);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX || event.deltaY);
    else if (this.blank) this.scroll.scrollTop += event.deltaY;
    else return;
    event.preventDefault();
  }

  key(event) {
    const step = (this.width - this.left) / 8;
    const acts = {
      ArrowLeft: () => this.pan(-step), ArrowRight: () => this.pan(step),
      ArrowUp: () => (this.scroll.scrollTop -= 40), ArrowDown: () => (this.scroll.scrollTop += 40),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1.6),
      f: () => this.setFollows(!this.follows), Home: () => this.fit(), End: () => this.setFollows(true),
      "[": () => this.step(-1), "]": () => this.step(1), Enter: () => this.selected && this.select(this.selected),
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  // The next instant, or the one before; its words are told.
  step(by) {
    const { shown } = this.store;
    const index = shown.findIndex((one) => one.key === this.selected);
    const next = shown[index < 0 ? shown.length - 1 : Math.min(Math.max(index + by, 0), shown.length - 1)];
    if (!next) return;
    this.show(next.key);
    this.onStep?.(told(next, this.store.now()));
  }

  showHint(event) {
    const one = this.at(event.offsetX, event.offsetY);
    this.canvas.style.cursor = one ? "pointer" : "grab";
    this.hint.hidden = !one;
    if (!one) return;
    this.hint.textContent = told(one, this.store.now());
    this.hint.style.left = `${Math.max(0, Math.min(event.offsetX + 12, this.width - 260))}px`;
    this.hint.style.top = `${this.scroll.offsetTop + event.offsetY + 16}px`;
  }
}

export function told(one, now) {
  const took = spanText((one.end ?? now) - one.start);
  const lines = [`${one.label} of ${one.writer || one.lane}, ${stateText(one)}`, `${timeText(one.start)}, ${took}`];
  if (one.winner) lines.push(`lost to ${one.winner_writer || one.winner}: ${spanText(one.seconds_lost * 1000)}, ${bytesText(one.size_bytes)}`);
  if (one.attempt) lines.push(`try ${one.attempt}`);
  if (one.rows || one.files) lines.push(`${one.rows.toLocaleString("en")} rows, ${one.files || one.file_groups || 0} files`);
  return lines.join("\n");
}

function shortened(context, text, wide) {
  if (context.measureText(text).width <= wide) return text;
  let half = Math.floor(text.length / 2);
  while (half > 2 && context.measureText(`${text.slice(0, half)}…${text.slice(-half)}`).width > wide) half -= 1;
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}
