// Numbers, times and rescales in words. Pure, but for the time zone and the date.

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]];

export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const place = UNITS.findIndex(([, size]) => ms >= size);
  const [[unit, size], [small, smaller]] = [UNITS[place], UNITS[place + 1]];
  const rest = Math.floor((ms % size) / smaller);
  return `${Math.floor(ms / size)} ${unit}${rest ? ` ${rest} ${small}` : ""}`;
}

/** The time of day, with the date if that is not the date of `now`. */
export function time(ms, now = Date.now()) {
  const when = new Date(ms);
  const clock = when.toLocaleTimeString("en-GB");
  return when.toDateString() === new Date(now).toDateString() ? clock : `${when.toLocaleDateString("sv")} ${clock}`;
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  const style = value >= 100_000 ? { notation: "compact", maximumFractionDigits: 1 } : { maximumFractionDigits: 0 };
  return value.toLocaleString("en", style);
}

const OUTCOMES = { COMPLETED: "completed", FAILED: "failed", IGNORED: "ignored" };
export const outcome = (record) => OUTCOMES[record.terminalState] ?? "in progress";

/** The parallelism before and after. */
export const change = (record) => (record.parallelismInWords ?? "not decided").replaceAll("->", "→");

export function took(record, now) {
  return duration((record.endTimestampInMillis ?? now) - record.startTimestampInMillis);
}

/** What there is to say of a rescale: [[term, text], ...]. */
export function facts(record, now) {
  return [
    ["Cause", record.causeInWords],
    ["By", record.requestedBy],
    ["Why", record.reason],
    ["Parallelism", change(record)],
    ["Rung", record.rung],
    ["Outcome", outcome(record)],
    ["Took", took(record, now)],
    ["Output gap", record.outputGapInMillis === null ? null : duration(record.outputGapInMillis)],
    ["Takes back", record.rollbackOf === null ? null : `rescale ${record.rollbackOf}`],
    ["Remark", record.message],
  ].filter(([, text]) => text);
}
