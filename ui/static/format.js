// Times, sizes and counts as people read them.

let [lastHour, lastHourMs] = ["", 0]; // thousands of instants are of a few hours

export function toMs(instant) {
  const hour = instant.slice(0, 10);
  if (hour !== lastHour) {
    const part = (from, to) => Number(instant.slice(from, to));
    [lastHour, lastHourMs] = [hour, Date.UTC(part(0, 4), part(4, 6) - 1, part(6, 8), part(8, 10))];
  }
  const rest = Number(instant.length > 14 ? instant.slice(10, 17) : `${instant.slice(10, 14)}999`);
  return lastHourMs + Math.floor(rest / 1e5) * 60_000 + (rest % 1e5);
}

export function timeText(ms) {
  return new Date(ms).toISOString().replace("T", " ").replace("Z", "");
}

export function spanText(ms) {
  if (ms < 0) return "0 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  if (ms < 172_800_000) return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
  return `${Math.round(ms / 86_400_000)} days`;
}

export function bytesText(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

export const countText = (count) => count.toLocaleString("en");

// Ticks of the time axis: [ms, text], about one for each `wanted` of the span.
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5,
  432e5, 864e5, 1728e5, 6048e5, 12096e5,
];

export function ticks(start, span, wanted) {
  const step = STEPS.find((one) => one >= span / wanted);
  return step ? evenTicks(start, span, step) : monthTicks(start, span, wanted);
}

function evenTicks(start, span, step) {
  const found = [];
  for (let at = Math.ceil(start / step) * step; at <= start + span; at += step) found.push([at, tickText(at, step)]);
  return found;
}

function tickText(ms, step) {
  const text = new Date(ms).toISOString();
  if (step >= 864e5) return text.slice(0, 10);
  if (ms % 864e5 === 0) return text.slice(5, 10);
  if (step >= 6e4) return text.slice(11, 16);
  return step >= 1000 ? text.slice(11, 19) : text.slice(14, 23);
}

function monthTicks(start, span, wanted) {
  const months = [1, 3, 6, 12, 24, 60, 120].find((one) => one * 2.63e9 >= span / wanted) ?? 120;
  const first = new Date(start);
  const found = [];
  let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months;
  for (; ; month += months) {
    const at = Date.UTC(Math.floor(month / 12), month % 12);
    if (at > start + span) return found;
    if (at >= start) found.push([at, new Date(at).toISOString().slice(0, 7)]);
  }
}
