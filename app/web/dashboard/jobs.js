// The first page: the jobs, and who holds the slots.

import { html, useMemo, useState } from "./standalone.module.js";
import { get } from "./api.js";
import { useEvents, useRead } from "./live.js";
import { EventItem, Live, Problem, SlotBar, Status, hasEnded } from "./parts.js";
import { readSlots } from "./slots.js";
import { count, duration, time } from "./words.js";
import { SubmitDialog } from "./submit.js";

const EVERY_MS = 5_000;
const ROWS_FIRST = 200;
const EVENTS_SHOWN = 30;
const CHANGES_JOBS = new Set(["status", "job-forgotten", "restart", "gone", "rescale-ended"]);

const COLUMNS = [
  { name: "Status", value: (job) => job.state },
  { name: "Name", value: (job) => job.name.toLowerCase() },
  { name: "Type", value: (job) => job.jobType },
  { name: "Slots", value: (job, slots) => slots?.[job.jid] ?? 0 },
  { name: "Tasks", value: (job) => job.tasks.running },
  { name: "Submitted", value: (job) => job["start-time"] },
  { name: "Duration", value: (job) => job.duration },
];
const SUBMITTED = 5;

/** The jobs to show, in their order. `status`: only these, null for all. */
export function chosen(jobs, slots, { text, status, column, isDown }) {
  const wanted = text.trim().toLowerCase();
  const { value } = COLUMNS[column];
  const way = isDown ? -1 : 1;
  return jobs
    .filter((job) => !status || job.state === status)
    .filter((job) => job.name.toLowerCase().includes(wanted) || job.jid.startsWith(wanted))
    .map((job) => [value(job, slots), job])
    .sort(([one], [other]) => (one < other ? -way : one > other ? way : 0))
    .map(([, job]) => job);
}

export function JobsPage() {
  const overview = useRead((signal) => get("jobs/overview", signal), [], EVERY_MS);
  const slots = useRead(readSlots, [], EVERY_MS);
  const members = useRead((signal) => get("cluster/members", signal), [], 2 * EVERY_MS);
  const [patches, setPatches] = useState({ of: null, states: {} });
  const [isSubmitting, setSubmitting] = useState(false);
  const { events, live } = useClusterEvents((event) => {
    if (event.type === "status")
      setPatches(({ of, states }) => ({
        of: overview.value,
        states: { ...(of === overview.value ? states : {}), [event.jid]: event.status },
      }));
    if (CHANGES_JOBS.has(event.type)) (overview.refresh(), slots.refresh());
    if (event.type.startsWith("member")) members.refresh();
  });
  // What an event has told is newer than the answer that was there when it came.
  const jobs = useMemo(() => {
    const states = patches.of === overview.value ? patches.states : {};
    return (overview.value?.jobs ?? []).map((job) => (states[job.jid] ? { ...job, state: states[job.jid] } : job));
  }, [overview.value, patches]);
  const names = useMemo(() => Object.fromEntries(jobs.map((job) => [job.jid, job.name])), [jobs]);
  return html`<main>
    <div class="heading">
      <h1>Jobs</h1><${Live} state=${live} />
      <button class="main" onClick=${() => setSubmitting(true)}>Submit a job</button>
    </div>
    <${Problem} error=${overview.error ?? slots.error} />
    <${Slots} slots=${slots.value} names=${names} members=${members.value} />
    ${overview.value && html`<${Table} jobs=${jobs} slots=${slots.value ? slots.value.byJob : {}} />`}
    <${Recent} events=${events} names=${names} />
    ${isSubmitting && html`<${SubmitDialog} onClose=${() => setSubmitting(false)} />`}
  </main>`;
}

function useClusterEvents(onEvent) {
  const [events, setEvents] = useState([]);
  const live = useEvents("events", 0, ({ type, data }) => {
    if (!data) return;
    const event = { ...JSON.parse(data), type };
    onEvent(event);
    if (event.id) setEvents((before) => [event, ...before].slice(0, EVENTS_SHOWN));
  });
  return { events, live };
}

function Slots({ slots, names, members }) {
  if (!slots) return null;
  const total = slots.managers.reduce((sum, one) => sum + one.total, 0);
  const free = slots.managers.reduce((sum, one) => sum + one.free, 0);
  const named = ([id, held]) => ({ id, name: names[id] ?? id, slots: held });
  return html`<section class="card" aria-label="Slots">
    <h2>Slots <span class="muted">${count(free)} of ${count(total)} free</span></h2>
    ${slots.managers.map(({ id, total: all, free: left, holders }) => html`<div class="manager" key=${id}>
      ${slots.managers.length > 1 && html`<span class="muted">${id}</span>`}
      ${holders
        ? html`<${SlotBar} total=${all} holders=${holders.map(named)} />`
        : html`<span>${left} of ${all} free</span>`}
    </div>`)}
    ${members?.shared && html`<p class="members">
      ${members.members.map((one) => html`<${Member} key=${one.id} ...${one} />`)}</p>`}
  </section>`;
}

function Member({ url, jobs, isArbiter, state }) {
  const told = [url, `${jobs} jobs`, isArbiter && "decides about slots", state !== "ALIVE" && state];
  return html`<span class=${state === "ALIVE" ? "" : "lost"}>${told.filter(Boolean).join(" · ")}</span>`;
}

function Table({ jobs, slots }) {
  const [view, setView] = useState({ text: "", status: null, column: SUBMITTED, isDown: true });
  const [isWhole, setWhole] = useState(false);
  const found = useMemo(() => chosen(jobs, slots, view), [jobs, slots, view]);
  const held = (id) => (slots ? slots[id] || "" : "?");
  const shown = isWhole ? found : found.slice(0, ROWS_FIRST);
  const counts = {};
  for (const { state } of jobs) counts[state] = (counts[state] ?? 0) + 1;
  const choices = [[null, jobs.length], ...Object.entries(counts).sort()];
  const sort = (column) => setView({ ...view, column, isDown: view.column === column ? !view.isDown : column >= 3 });
  const order = (column) => (view.column !== column ? "none" : view.isDown ? "descending" : "ascending");
  return html`<section class="card">
    <div class="row">
      <input type="search" class="search" placeholder="Name or id" aria-label="Name or id" value=${view.text}
        onInput=${(event) => setView({ ...view, text: event.target.value })} />
      <div class="choice" role="group" aria-label="Status">
        ${choices.map(([status, many]) => html`<button key=${status} aria-pressed=${view.status === status}
          onClick=${() => setView({ ...view, status })}>${status?.toLowerCase() ?? "all"} ${many}</button>`)}
      </div>
    </div>
    ${found.length === 0 && html`<p class="muted empty">
      ${jobs.length ? "No job matches the search." : "There are no jobs."}</p>`}
    ${found.length > 0 && html`<table class="jobs">
      <thead><tr>${COLUMNS.map(({ name }, column) => html`<th aria-sort=${order(column)}>
        <button class="plain" onClick=${() => sort(column)}>${name}</button></th>`)}</tr></thead>
      <tbody>${shown.map((job) => html`<${Row} key=${job.jid} job=${job} slots=${held(job.jid)} />`)}</tbody>
    </table>`}
    ${shown.length < found.length && html`<button onClick=${() => setWhole(true)}>Show all ${found.length}</button>`}
  </section>`;
}

function Row({ job, slots }) {
  const failure = job.unreadable ?? job.lastFailure?.message;
  return html`<tr>
    <td><${Status} value=${job.state} /></td>
    <td class="name"><a href=${`#/jobs/${job.jid}`}>${job.name}</a>
      ${failure && !hasEnded(job.state) && html`<small class="failure">${failure}</small>`}</td>
    <td>${job.jobType}</td>
    <td>${slots}</td>
    <td>${job.tasks.running || ""}</td>
    <td>${time(job["start-time"])}</td>
    <td>${duration(job.duration)}</td>
  </tr>`;
}

function Recent({ events, names }) {
  if (events.length === 0) return null;
  return html`<section class="card"><h2>Just now</h2><ol class="events">
    ${events.map((event) => html`<${EventItem} key=${event.id} event=${event}>
      ${event.jid && html`<a href=${`#/jobs/${event.jid}`}>${names[event.jid] ?? event.jid}</a>`}<//>`)}
  </ol></section>`;
}
