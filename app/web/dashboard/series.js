// What the time axis shows, computed from what the API answers. Pure: no page, no clock.

export const ALL = Infinity;
const SPAN_LEAST_MS = 5_000;
const LEAST_S = 0.001;

const byNumber = (one, other) => one.number - other.number;

/** The lowest and highest time of the axis. A job that has ended is shown as it was then. */
export function span(job, records, rangeMs, now) {
  const to = job["end-time"] > 0 ? job["end-time"] : now;
  const first = records.reduce((least, one) => Math.min(least, one.startTimestampInMillis), job["start-time"]);
  // A young job has no past to leave room for.
  const begin = Math.min(first - (to - first) * 0.02, to - SPAN_LEAST_MS);
  return { from: Math.max(begin, to - rangeMs), to };
}

/** The bounds that counted, and what was decided and in force, of one vertex, as steps from oldest to newest.
 *
 * `current` is what holds at `to`: {lower, upper, actual}. Times are in seconds, as the chart wants them.
 */
export function steps(records, events, vertexId, to, current) {
  const changes = [];
  const waiting = new Set();
  for (const event of events) {
    if (event.type !== "requirements") continue;
    if (event.deadlineTimestampInMillis) waiting.add(event.timestampInMillis);
    const bounds = event.bounds?.[vertexId];
    if (bounds) changes.push([event.timestampInMillis, { lower: bounds.lowerBound, upper: bounds.upperBound }]);
  }
  // Behind the event of the same moment: a record has the bounds within the floor and ceiling.
  for (const record of [...records].sort(byNumber)) {
    const vertex = record.vertices[vertexId];
    // Bounds that wait for their deadline do not count: the event has those that do.
    if (vertex) changes.push(...changesOf(record, vertex, waiting.has(record.startTimestampInMillis)));
  }
  changes.sort((one, other) => one[0] - other[0]);
  changes.push([to, current]);
  return folded(changes);
}

function changesOf(record, vertex, waits) {
  const { preRescaleParallelism: pre, postRescaleParallelism: post } = vertex;
  const bounds = waits ? {} : { lower: vertex.sufficientParallelism, upper: vertex.desiredParallelism };
  const begin = [record.startTimestampInMillis, { ...bounds, wanted: post ?? undefined, actual: pre }];
  if (record.endTimestampInMillis === null) return [begin];
  const reached = record.terminalState === "COMPLETED" ? (post ?? pre) : pre;
  return [begin, [record.endTimestampInMillis, { wanted: reached ?? undefined, actual: reached }]];
}

/** Columns out of changes in the order of their times. What a change does not tell stays as it was. */
function folded(changes) {
  const columns = { times: [], lower: [], upper: [], wanted: [], actual: [] };
  const values = { lower: null, upper: null, wanted: null, actual: null };
  const last = () => columns.times.length - 1;
  function put(place, seconds) {
    columns.times[place] = seconds;
    for (const name in values) columns[name][place] = values[name];
  }
  for (const [ms, told] of changes) {
    // A step that leads to nothing is drawn as far as its last point.
    const before = ms / 1_000 - LEAST_S;
    if (told.actual === null && values.actual !== null && columns.times[last()] < before) put(last() + 1, before);
    for (const name in values) if (told[name] !== undefined) values[name] = told[name];
    put(columns.times[last()] === ms / 1_000 ? last() : last() + 1, ms / 1_000);
  }
  return columns;
}

/** The values of columns at a time, as steps: those of the newest entry that is not later. */
export function valuesAt(columns, seconds) {
  let place = columns.times.length - 1;
  while (place >= 0 && columns.times[place] > seconds) place -= 1;
  if (place < 0) return null;
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[place]]));
}

/** Where something from `start` to `end` (null: it goes on) is on the axis, in percent; null if it is not. */
export function placed({ from, to }, start, end) {
  const begin = Math.max(start, from);
  const over = Math.min(end ?? to, to);
  if (over < from || begin > to) return null;
  const percent = (ms) => ((ms - from) / (to - from)) * 100;
  return { left: percent(begin), width: Math.max(0, percent(over) - percent(begin)) };
}

/** A bar for each rescale within the axis, oldest first. */
export function bars(records, axis) {
  return [...records].sort(byNumber).flatMap((record) => {
    const place = placed(axis, record.startTimestampInMillis, record.endTimestampInMillis);
    return place ? [{ record, outcome: record.terminalState ?? "OPEN", ...place }] : [];
  });
}

// By bars, by the band, by the curves of backlog and rate, or by the failure before it.
const SHOWN_OTHERWISE = new Set(
  ["requirements", "slot-share", "status", "attempt-begun", "attempt-ended", "restart", "batches"],
);

/** Whether an event is a point of the axis: a failure, a decision not to act, and what is not known here. */
const isPoint = (event) => !SHOWN_OTHERWISE.has(event.type) && !event.type.startsWith("rescale-");

/** A point for each decision not to act and each failure within the axis, oldest first. A decision that was made again
 * is told again, with its count: it is one point, where it was made first. */
export function points(events, axis) {
  const decisions = new Map();
  for (const event of events.filter(isPoint)) {
    const at = event.firstTimestampInMillis ?? event.timestampInMillis;
    decisions.set(event.reason ? `${event.reason} ${at}` : event.id, { event, at });
  }
  return [...decisions.values()].flatMap(({ event, at }) => {
    const place = placed(axis, at, at);
    return place ? [{ event, left: place.left }] : [];
  });
}

/** Backlog and rate from `/load`, as columns. A step that is not over yet would show too low a rate. */
export function loadColumns(load, now) {
  const times = load?.startTimestampsInMillis ?? [];
  const whole = times.filter((start) => start + load.stepInMillis <= now).length;
  return {
    times: times.slice(0, whole).map((start) => (start + load.stepInMillis) / 1_000),
    backlog: load?.pendingRecords.slice(0, whole) ?? [],
    rate: load?.numRecordsInPerSecond.slice(0, whole) ?? [],
  };
}

/** Busy ms of each second, by vertex, on average over the last minute; {} if nothing is known. */
export function busyTimes(load, now) {
  const recent = (load?.startTimestampsInMillis ?? []).flatMap((start, place) =>
    start + load.stepInMillis <= now && start > now - 60_000 ? [place] : [],
  );
  if (recent.length === 0) return {};
  const mean = (column) => recent.reduce((sum, place) => sum + column[place], 0) / recent.length;
  return Object.fromEntries(Object.entries(load.busyTimeMsPerSecond).map(([id, column]) => [id, mean(column)]));
}

const FIRST_RECORDS = 500;
const NEWER_RECORDS = 20;

/** The records, newest first, by what is `known` of them: those that are new and those that were open are read, in as
 * many pages as it takes. `read(query)` gives one. */
export async function readOn(known, read) {
  if (known.length === 0) return read(`limit=${FIRST_RECORDS}`);
  const open = known.filter(({ terminalState }) => terminalState === null);
  const oldest = Math.min(known[0].number + 1, ...open.map(({ number }) => number));
  const all = new Map(known.map((record) => [record.number, record]));
  let page = await read(`limit=${NEWER_RECORDS}`);
  for (;;) {
    for (const record of page) all.set(record.number, record);
    const last = page.at(-1)?.number ?? 0;
    if (last <= oldest) break;
    page = await read(`limit=${NEWER_RECORDS}&after=${last}`);
  }
  return [...all.values()].sort(byNumber).reverse();
}
