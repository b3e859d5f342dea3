// One time axis: rescales and decisions as lanes, below them parallelism, backlog and rate.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./standalone.module.js";
import { ALL, bars, loadColumns, points, span, steps, valuesAt } from "./series.js";
import { count, facts, time } from "./words.js";
import { kindOf } from "./parts.js";

const RANGES = [["10 min", 600_000], ["1 h", 3_600_000], ["6 h", 21_600_000], ["all", ALL]];
export const FIRST_RANGE_MS = RANGES[0][1];
// The lanes are as far from the edges as the plots are.
const AXIS_WIDTH = 52;
const EDGE = 26;

/** Which step of `/load` a range is drawn from: fine steps go back ten minutes. */
export const stepOf = (rangeMs) => (rangeMs <= FIRST_RANGE_MS ? 5 : 60);

// A canvas knows no variables and no light-dark(): the browser resolves them for an element.
const probe = document.body.appendChild(document.createElement("i"));

function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

// Seconds, minutes, hours, days: nothing is told of less.
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800];
const LONG_STEPS_S = [1, 2, 3, 6, 12, 24, 48, 168, 720].map((hours) => 3_600 * hours);
const INCRS = [...STEPS_S, ...LONG_STEPS_S];

function axes(isLast, ticks) {
  const line = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
  const font = "11px system-ui, sans-serif";
  return [
    { ...line, font, space: 80, incrs: INCRS, size: isLast ? 28 : 0, values: isLast ? timesOf : () => [] },
    { ...line, font, space: 24, size: AXIS_WIDTH, values: (_, all) => all.map(ticks) },
  ];
}

const timesOf = (plot, all) => {
  const isLong = plot.scales.x.max - plot.scales.x.min > 86_400;
  return all.map((at) => {
    const when = new Date(at * 1_000);
    if (isLong) return `${when.getMonth() + 1}/${when.getDate()} ${when.toLocaleTimeString("en-GB").slice(0, 5)}`;
    return when.toLocaleTimeString("en-GB").slice(0, plot.scales.x.max - plot.scales.x.min < 600 ? 8 : 5);
  });
};

const wholeOnly = (value) => (Number.isInteger(value) ? count(value) : "");

function parallelismPlot(isLast) {
  const stepped = globalThis.uPlot.paths.stepped({ align: 1 });
  const quiet = { paths: stepped, points: { show: false } };
  return {
    height: isLast ? 198 : 170,
    series: [
      { ...quiet, stroke: colour("band-edge"), width: 1 },
      { ...quiet, stroke: colour("band-edge"), width: 1 },
      { ...quiet, stroke: colour("wanted"), width: 2, dash: [5, 4] },
      { ...quiet, stroke: colour("actual"), width: 2.5 },
    ],
    bands: [{ series: [2, 1], fill: colour("band") }],
    range: (_, __, high) => [0, Math.max(2, Math.ceil((high || 1) * 1.15))],
    ticks: wholeOnly,
  };
}

const loadPlot = (name) => (isLast) => ({
  height: isLast ? 98 : 70,
  series: [{ stroke: colour(name), fill: colour(`${name}-fill`), width: 1.5, points: { show: false } }],
  bands: [],
  range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1],
  ticks: wholeOnly,
});

const PLOTS = { parallelism: parallelismPlot, backlog: loadPlot("backlog"), rate: loadPlot("rate") };

/** One plot; the last one has the times below it. `onCursor(seconds or null)`: where the pointer is, in all plots. */
function Plot({ kind, label, isLast, data, axis, theme, onCursor }) {
  const frame = useRef();
  const plot = useRef();
  const latest = useRef();
  latest.current = { axis, onCursor };
  useLayoutEffect(() => {
    const { height, series, bands, range, ticks } = PLOTS[kind](isLast);
    const moved = ({ cursor: { left }, posToVal }) => latest.current.onCursor(left < 0 ? null : posToVal(left, "x"));
    const options = {
      width: frame.current.clientWidth,
      height,
      padding: [6, EDGE, 6, 0],
      legend: { show: false },
      cursor: { sync: { key: "slotwise" }, drag: { x: false, y: false }, y: false, points: { show: false } },
      scales: { x: { time: true, range: () => seconds(latest.current.axis) }, y: { range } },
      axes: axes(isLast, ticks),
      series: [{}, ...series],
      bands,
      hooks: { setCursor: [moved] },
    };
    plot.current = new globalThis.uPlot(options, data, frame.current);
    const fit = () => plot.current.setSize({ width: frame.current.clientWidth, height });
    const watcher = new ResizeObserver(fit);
    watcher.observe(frame.current);
    return () => (watcher.disconnect(), plot.current.destroy());
  }, [kind, isLast, theme]);
  useLayoutEffect(() => plot.current.setData(data), [data, axis]);
  return html`<figure class="plot ${kind}"><figcaption>${label}</figcaption><div ref=${frame}></div></figure>`;
}

const seconds = ({ from, to }) => [from / 1_000, to / 1_000];

/** A lane of marks, each of which says more when it is pointed at or has the focus. The arrow keys go along it. */
function Lane({ label, marks, onShow }) {
  const lane = useRef();
  if (marks.length === 0) return null;
  const move = (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way) return;
    const all = [...lane.current.querySelectorAll("button")];
    all[all.indexOf(document.activeElement) + way]?.focus();
    event.preventDefault();
  };
  const last = marks.length - 1;
  return html`<div class="lane" role="group" aria-label=${label} ref=${lane} onKeyDown=${move}>
    <span class="lane-label">${label}</span>
    ${marks.map((mark, place) => html`<button key=${mark.key} class="mark ${mark.look}" aria-label=${spoken(mark)}
      style=${{ left: `${mark.left}%`, width: mark.width === undefined ? undefined : `${mark.width}%` }}
      tabindex=${place === last ? 0 : -1}
      onMouseEnter=${() => onShow(mark)} onFocus=${() => onShow(mark)}
      onMouseLeave=${() => onShow(null)} onBlur=${() => onShow(null)}></button>`)}
  </div>`;
}

const spoken = ({ title, rows }) => `${title}: ${rows.map(([term, text]) => `${term} ${text}`).join("; ")}`;

const rescaleMark = (now) => ({ record, outcome: ending, left, width }) => ({
  key: record.number,
  left,
  width,
  look: `bar ${kindOf(ending)}`,
  title: `Rescale ${record.number}, ${time(record.startTimestampInMillis, now)}`,
  rows: facts(record, now),
});

const pointMark = (now) => ({ event, left }) => ({
  key: event.id,
  left,
  look: `point ${event.type === "failure" ? "bad" : "note"}`,
  title: `${event.type}, ${time(event.firstTimestampInMillis ?? event.timestampInMillis, now)}`,
  rows: [[event.reason ?? "", event.summary]],
});

function Tip({ shown }) {
  if (!shown) return null;
  const { left, title, rows } = shown;
  return html`<div class="tip" role="tooltip" style=${{ left: `${Math.min(100, left)}%`, "--shift": `-${left}%` }}>
    <b>${title}</b>
    <dl>${rows.map(([term, text]) => html`<dt>${term}</dt><dd>${text}</dd>`)}</dl>
  </div>`;
}

/** What the legend says: at the pointer, or at the end of the axis, which is `title`. */
function readout(at, columns, load, now, title) {
  const when = at === null ? null : valuesAt(columns, at);
  const values = when ?? (at === null ? valuesAt(columns, Infinity) : null);
  const loaded = at === null ? valuesAt(load, Infinity) : valuesAt(load, at);
  return { title: at === null ? title : time(at * 1_000, now), values: values ?? {}, loaded: loaded ?? {} };
}

/** `vertices`: {id: {name, lower, upper, actual}}. */
export function Timeline({ job, records, events, load, vertices, selected, onSelect, rangeMs, onRange, theme, now }) {
  const [at, setAt] = useState(null);
  const [shown, setShown] = useState(null);
  const axis = useMemo(() => span(job, records, rangeMs, now), [job, records, rangeMs, now]);
  const vertex = vertices[selected];
  const columns = useMemo(() => {
    const { lower, upper, actual } = vertex ?? {};
    return steps(records, events, selected, axis.to, { lower, upper, actual: actual ?? null });
  }, [records, events, selected, vertex, axis]);
  const loaded = useMemo(() => loadColumns(load, now), [load]);
  const data = useMemo(() => [columns.times, columns.lower, columns.upper, columns.wanted, columns.actual], [columns]);
  const backlog = useMemo(() => [loaded.times, loaded.backlog], [loaded]);
  const rate = useMemo(() => [loaded.times, loaded.rate], [loaded]);
  useEffect(() => setShown(null), [rangeMs]);
  const isOver = axis.to < now - 1_000;
  const { title, values, loaded: figures } = readout(at, columns, loaded, now, isOver ? "at the end" : "now");
  const plot = { axis, theme, onCursor: setAt };
  const hasLoad = loaded.times.length > 0;
  return html`<section class="card timeline" aria-label="Time axis">
    <header>
      <label>Vertex <select value=${selected} onChange=${(event) => onSelect(event.target.value)}>
        ${Object.entries(vertices).map(([id, { name }]) => html`<option value=${id}>${name}</option>`)}
      </select></label>
      <div class="choice" role="group" aria-label="Time">
        ${RANGES.map(([name, ms]) => html`<button aria-pressed=${ms === rangeMs} onClick=${() => onRange(ms)}>
          ${name}</button>`)}
      </div>
      <p class="readout" aria-hidden="true">
        <b>${title}</b>
        <span class="key band">bounds ${values.lower ?? "–"}–${values.upper ?? "–"}</span>
        <span class="key wanted">wanted ${values.wanted ?? "–"}</span>
        <span class="key actual">actual ${values.actual ?? "–"}</span>
        <span class="key backlog">backlog ${count(figures.backlog)}</span>
        <span class="key rate">${count(figures.rate)} rows/s</span>
      </p>
    </header>
    <div class="lanes">
      <${Lane} label="Rescales" marks=${bars(records, axis).map(rescaleMark(now))} onShow=${setShown} />
      <${Lane} label="Notes" marks=${points(events, axis).map(pointMark(now))} onShow=${setShown} />
      <${Tip} shown=${shown} />
    </div>
    <${Plot} kind="parallelism" label="Parallelism" isLast=${!hasLoad} data=${data} ...${plot} />
    ${hasLoad && html`<${Plot} kind="backlog" label="Backlog, rows" data=${backlog} ...${plot} />
      <${Plot} kind="rate" label="Rows per second" isLast=${true} data=${rate} ...${plot} />`}
    ${!hasLoad && html`<p class="muted">
      There is no backlog and no rate to show: they are kept while a streaming job runs on its server.</p>`}
  </section>`;
}
