// The micro-batches that take long, while they run.

import { html } from "./standalone.module.js";
import { count, duration } from "./words.js";

// The driver tells of such a batch every five seconds.
const SILENT_MS = 15_000;

/** What is shown of a batch of `/load` at `now`: {title, about, percent, tasks, waits}. Pure. */
export function shownOf(batch, now) {
  const { tasksDone: done, tasksKnown: known, numRecords: rows, reportedTimestampInMillis: told } = batch;
  const ran = duration(Math.max(0, now - batch.startTimestampInMillis));
  const tasks = known === null ? "no task is known" : `${count(done)} of ${count(known)} tasks done`;
  return {
    title: `${batch.vertexName}, batch ${batch.batchId}`,
    about: rows === null ? `for ${ran}` : `for ${ran}, ${count(rows)} rows`,
    percent: known === null ? null : Math.round((100 * done) / known),
    tasks: now - told > SILENT_MS ? `${tasks}, ${duration(now - told)} ago` : tasks,
    waits: waitsOf(batch, now),
  };
}

function waitsOf({ waitingInWords: what, waitingSinceTimestampInMillis: since, interruptionTimestampInMillis: due }, now) {
  if (!what) return "";
  const waited = since === null ? "" : ` for ${duration(Math.max(0, now - since))}`;
  const left = due === null || due <= now ? "" : `, and may interrupt it in ${duration(due - now)}`;
  return `${what[0].toUpperCase()}${what.slice(1)} has waited${waited} for its end${left}.`;
}

export function LongBatches({ batches, now }) {
  if (!batches?.length) return null;
  return html`<div class="running" role="group" aria-label="Running batches">
    ${batches.map((batch) => html`<${Batch} key=${batch.vertexId} ...${shownOf(batch, now)} />`)}
  </div>`;
}

const Batch = ({ title, about, percent, tasks, waits }) => html`<div>
  <p><b>${title}</b> <span class="muted">${about}</span><span class="muted">${tasks}</span></p>
  ${percent !== null && html`<progress max="100" value=${percent} aria-label=${title}></progress>`}
  ${waits && html`<p class="waits">${waits}</p>`}
</div>`;
