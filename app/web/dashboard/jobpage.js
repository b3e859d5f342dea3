// One job: what it does, why, and what happened to it.

import { html, useEffect, useMemo, useRef, useState } from "./standalone.module.js";
import { call, get, job as path, newKey } from "./api.js";
import { useEvents, useNow, useRead } from "./live.js";
import { Dialog, EventItem, Live, Problem, SlotBar, Status, hasEnded, kindOf } from "./parts.js";
import { BOUNDS, DeclareDialog, policyOf } from "./bounds.js";
import { Graph } from "./graph.js";
import { Log } from "./log.js";
import { LongBatches } from "./longbatches.js";
import { ALL, busyTimes, readOn } from "./series.js";
import { FIRST_RANGE_MS, Timeline, stepOf } from "./timeline.js";
import { change, duration, outcome, time, took } from "./words.js";

const EVERY_MS = 5_000;
const EVENTS_MAX = 1_000;
const EVENTS_BACK = 20_000;
const EVENTS_SHOWN = 200;
const GATHER_MS = 50;

export function JobPage({ id, theme }) {
  const job = useRead((signal) => get(path(id), signal), [id], EVERY_MS);
  const explained = useRead((signal) => get(path(id, "/explanation"), signal), [id], EVERY_MS);
  const records = useRecords(id);
  const { events, live } = useJobEvents(id, () => [job, explained, records].forEach((read) => read.refresh()));
  const [rangeMs, setRange] = useState(null);
  const isOver = job.value && hasEnded(job.value.state);
  const range = rangeMs ?? (isOver ? ALL : FIRST_RANGE_MS);
  const step = stepOf(range);
  const load = useRead((signal) => get(path(id, `/load?step=${step}`), signal), [id, step], EVERY_MS);
  const now = useNow(job.value?.now);
  const [selected, setSelected] = useState(null);
  const busy = useMemo(() => busyTimes(load.value, now), [load.value]);
  const vertices = useMemo(() => verticesOf(job.value, explained.value, busy), [job.value, explained.value, busy]);
  const isKnown = Boolean(explained.value) && Object.keys(vertices).length > 0;
  // Once: it should not change under the eyes of who looks at it.
  useEffect(() => setSelected(isKnown ? mostElastic(vertices) : null), [id, isKnown]);
  // A job that was forgotten while it was shown is shown no more.
  if (!job.value || job.error?.status === 404)
    return html`<main>${job.error ? html`<${Problem} error=${job.error} />` : "Reading…"}</main>`;
  const shown = vertices[selected] ? selected : mostElastic(vertices);
  return html`<main>
    <${Head} job=${job.value} live=${live} explained=${explained.value} vertices=${vertices}
      onChanged=${job.refresh} />
    <${Problem} error=${job.error ?? explained.error} />
    <div class="columns">
      <${Why} explained=${explained.value} />
      <section class="card" aria-label="Graph">
        <${Graph} nodes=${job.value.plan.nodes} vertices=${vertices} selected=${shown} onSelect=${setSelected} />
        <${LongBatches} batches=${isOver ? [] : load.value?.longBatches} now=${now} />
      </section>
    </div>
    <${Timeline} job=${job.value} records=${records.all} events=${events} load=${load.value} vertices=${vertices}
      selected=${shown} onSelect=${setSelected} rangeMs=${range} onRange=${setRange} theme=${theme} now=${now} />
    <${Below} job=${job.value} records=${records.all} cancelable=${explained.value?.cancelableRescales ?? []}
      events=${events} now=${now} />
  </main>`;
}

/** All that is shown of each vertex: {id: {name, lower, upper, actual, tasks, busy}}. Its bounds are those that count: the
 * declared ones within the floor and ceiling. */
function verticesOf(job, explained, busy) {
  if (!job) return {};
  const of = explained?.vertices ?? {};
  const entry = ({ id, name, progress }) => {
    const { effectiveLowerBound: lower, effectiveUpperBound: upper, inForce, tasks } = of[id] ?? {};
    const shown = { name, lower, upper, actual: inForce ?? null, tasks, percent: progress?.percent };
    return [id, hasEnded(job.state) ? shown : { ...shown, busy: busy[id] }];
  };
  return Object.fromEntries(job.vertices.map(entry));
}

/** The vertex that can be changed most: whoever opens the page is shown that one. */
function mostElastic(vertices) {
  const width = ({ lower = 0, upper = 0 }) => upper - lower;
  const all = Object.entries(vertices);
  return all.reduce((best, one) => (width(one[1]) > width(best[1]) ? one : best), all[0])[0];
}

/** All rescales are read once, then those that are new or were open. */
function useRecords(id) {
  const known = useRef([]);
  const read = useRead(async (signal) => {
    const page = (query) => get(path(id, `/rescales/history?${query}`), signal);
    known.current = await readOn(known.current, page);
    return known.current;
  }, [id], EVERY_MS);
  return { all: read.value ?? [], refresh: read.refresh };
}

/** The events that are kept of a job and those that come. `onNews`: something has changed. */
function useJobEvents(id, onNews) {
  const [events, setEvents] = useState([]);
  const waiting = useRef([]);
  const latest = useRef();
  latest.current = onNews;
  useEffect(() => setEvents([]), [id]);
  const live = useEvents(path(id, "/events"), EVENTS_BACK, ({ type, data }) => {
    if (!data) return;
    if (waiting.current.length === 0)
      // Thousands may come at once when the page is opened.
      setTimeout(() => {
        const newer = waiting.current.splice(0);
        setEvents((before) => [...before, ...newer.filter((event) => event.id)].slice(-EVENTS_MAX));
        latest.current();
      }, GATHER_MS);
    waiting.current.push({ ...JSON.parse(data), type });
  });
  return { events, live };
}

const REACTIVE = "A job in reactive mode uses all available slots.";

function Head({ job, live, explained, vertices, onChanged }) {
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const isOver = hasEnded(job.state);
  const canChange = explained && !explained.reactive;
  const about = [
    !isOver && job.schedulerState,
    job["job-type"].toLowerCase(),
    `attempt ${job.attempt}`,
    `since ${time(job["start-time"])} (${duration(job.duration)})`,
    job.submittedBy && `by ${job.submittedBy}`,
  ];
  return html`<div class="heading">
    <div>
      <h1>${job.name} <${Status} value=${job.state} /></h1>
      <p class="about">${about.filter(Boolean).map((text) => html`<span>${text}</span>`)}<code>${job.jid}</code></p>
      ${job.lastFailure && html`<p class="warning">${job.lastFailure.message}</p>`}
    </div>
    <${Live} state=${live} />
    <div class="actions">
      ${job.sparkUi && html`<a class="button" href=${job.sparkUi} rel="noreferrer">Spark's page</a>`}
      ${!isOver && html`<button class="main" disabled=${!canChange} title=${explained?.reactive ? REACTIVE : ""}
          onClick=${() => setOpen("bounds")}>Change bounds</button>
        <button disabled=${!explained} onClick=${() => setOpen("policy")}>Floor and ceiling</button>
        <button onClick=${() => setOpen("stop")}>Stop</button>
        <button class="danger" onClick=${() => setOpen("cancel")}>Cancel</button>`}
      ${isOver && html`<button class="danger" onClick=${() => setOpen("forget")}>Forget</button>`}
    </div>
    ${open === "bounds" && html`<${DeclareDialog} kind=${BOUNDS} jobId=${job.jid} vertices=${vertices}
      retry=${Boolean(explained?.rollback)} onClose=${close} />`}
    ${open === "policy" && html`<${DeclareDialog} kind=${policyOf(Object.keys(vertices))} jobId=${job.jid}
      vertices=${vertices} onClose=${close} />`}
    ${open in ENDINGS && html`<${Confirm} ...${ENDINGS[open]} job=${job} onClose=${close} onDone=${onChanged} />`}
  </div>`;
}

const ENDINGS = {
  cancel: {
    verb: "Cancel",
    text: "The job ends at once. Its current batch is aborted.",
    method: "PATCH",
    rest: "?mode=cancel",
  },
  stop: {
    verb: "Stop",
    text: "The job ends after its current batch, with a complete checkpoint.",
    method: "POST",
    rest: "/stop",
  },
  forget: {
    verb: "Forget",
    text: "The job is deleted, with its history, its checkpoint and its events.",
    method: "DELETE",
    rest: "",
  },
};

/** `what`: the thing that the verb is done to, if that is not the job itself. */
function Confirm({ verb, what, text, method, rest, job, onClose, onDone }) {
  const [state, setState] = useState({});
  // For a rescale: if the answer is lost and the button is pressed again, the server knows the request again.
  const key = useMemo(newKey, []);
  async function act() {
    setState({ isSending: true });
    try {
      await call(method, path(job.jid, rest), { headers: { "Idempotency-Key": key } });
      if (rest === "") location.hash = "#/";
      onClose();
      onDone();
    } catch (error) {
      setState({ error });
    }
  }
  return html`<${Dialog} title=${`${verb} ${what ?? job.name}?`} onClose=${onClose}>
    <p>${text}</p>
    <${Problem} error=${state.error} />
    <footer><button class="plain" onClick=${onClose}>Back</button>
      <button class="danger" disabled=${state.isSending} onClick=${act}>${verb} ${what ?? "the job"}</button></footer>
  <//>`;
}

/** Why the job runs as it does, in words, and the slots that it has. */
function Why({ explained }) {
  if (!explained) return html`<section class="card"><h2>Why</h2></section>`;
  const { slots, slotShare: share, supply, jid, name, status, violations, sentences } = explained;
  const title = hasEnded(status) ? "How it ended" : "Why it runs as it does";
  const holders = [
    { id: jid, name, slots: slots.held },
    { id: "", name: "other jobs", slots: supply.total - supply.idle - slots.held },
  ];
  return html`<section class="card why" aria-label=${title}>
    <h2>${title}</h2>
    <ul>
      ${violations.map((sentence) => html`<li class="violated">${sentence}</li>`)}
      ${sentences.map((sentence) => html`<li>${sentence}</li>`)}
    </ul>
    ${!hasEnded(status) && html`<p class="slots">Slots: holds <b>${slots.held}</b>, uses <b>${slots.used}</b>,
      ${" "}wants <b>${slots.desired}</b>,
      ${" "}needs <b>${slots.minimal}</b><span class="share">weight ${share.weight}, priority ${share.priority},
      ${" "}cap ${share.cap ?? "none"}</span></p>
    <${SlotBar} total=${supply.total} marked=${jid} holders=${holders.filter((one) => one.slots > 0)} />`}
  </section>`;
}

const TABS = ["Rescales", "Events", "Log"];

function Below({ job, records, cancelable, events, now }) {
  const [tab, setTab] = useState(TABS[0]);
  const move = (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way) return;
    const next = TABS[(TABS.indexOf(tab) + way + TABS.length) % TABS.length];
    setTab(next);
    event.currentTarget.querySelector(`[data-tab=${next}]`).focus();
  };
  return html`<section class="card">
    <div class="tabs" role="tablist" onKeyDown=${move}>
      ${TABS.map((name) => html`<button role="tab" data-tab=${name} aria-selected=${tab === name}
        tabindex=${tab === name ? 0 : -1} onClick=${() => setTab(name)}>${name}</button>`)}
    </div>
    <div role="tabpanel" aria-label=${tab}>
      ${tab === "Rescales" && html`<${Rescales} job=${job} records=${records} cancelable=${cancelable} now=${now} />`}
      ${tab === "Events" && html`<${Events} events=${events} now=${now} />`}
      ${tab === "Log" && html`<${Log} jobId=${job.jid} attemptNumber=${job.attempt} />`}
    </div>
  </section>`;
}

const COLUMNS = ["#", "When", "Cause", "Parallelism", "Rung", "Took", "Gap", "Outcome"];

const CANCEL = "The bounds before hold. A rescale that has begun cannot be canceled.";

function Rescales({ job, records, cancelable, now }) {
  const [canceled, setCanceled] = useState(null);
  if (records.length === 0) return html`<p class="muted">There was no rescale yet.</p>`;
  return html`<table class="rescales">
    <thead><tr>${COLUMNS.map((name) => html`<th>${name}</th>`)}</tr></thead>
    <tbody>${records.slice(0, EVENTS_SHOWN).map((one) => html`<tr key=${one.number}>
      <td>${one.number}</td><td>${time(one.startTimestampInMillis, now)}</td>
      <td>${one.causeInWords}<small>${[one.requestedBy, one.reason].filter(Boolean).join(": ")}</small></td>
      <td>${change(one)}</td><td>${one.rung ?? ""}</td><td>${took(one, now)}</td>
      <td>${one.outputGapInMillis === null ? "" : duration(one.outputGapInMillis)}</td>
      <td><span class="status ${kindOf(one.terminalState ?? "OPEN")}">${outcome(one)}</span>
        ${cancelable.includes(one.number) && html` <button class="danger small"
          onClick=${() => setCanceled(one)}>Cancel the rescale</button>`}
        ${one.message && html`<small>${one.message}</small>`}</td>
    </tr>`)}</tbody>
  </table>
  ${canceled && html`<${Confirm} verb="Cancel" what=${`rescale ${canceled.number}`} text=${CANCEL} method="DELETE"
    rest=${`/rescales/${canceled.rescaleUuid}`} job=${job} onClose=${() => setCanceled(null)} onDone=${() => {}} />`}`;
}

function Events({ events, now }) {
  const shown = events.slice(-EVENTS_SHOWN).reverse();
  if (shown.length === 0) return html`<p class="muted">No event is kept.</p>`;
  return html`<ol class="events">
    ${shown.map((event) => html`<${EventItem} key=${event.id} event=${event} now=${now} />`)}</ol>`;
}
