// The micro-batches that take long, while they run.

import { html } from "./standalone.module.js";
import { count, duration } from "./words.js";

// The driver tells of such a batch every five seconds.
const SILENT_MS = 15_000;

/** What is shown of a batch of `/load` at `now`: {title, about, percent, tasks, silent}. Pure. */
export function shownOf(batch, now) {
  const { tasksDone: done, tasksKnown: known, numRecords: rows, reportedTimestampInMillis: told } = batch;
  const hasTasks = known !== null;
  return {
    title: `${batch.vertexName}, batch ${batch.batchId}`,
    about: [
      `for ${duration(Math.max(0, now - batch.startTimestampInMillis))}`,
      rows === null ? "" : `${count(rows)} rows`,
    ].filter(Boolean).join(", "),
    percent: hasTasks ? Math.round((100 * done) / known) : null,
    tasks: hasTasks ? `${count(done)} of ${count(known)} tasks` : "tasks are not known",
    silent: now - told > SILENT_MS ? `The driver was last heard of ${duration(now - told)} ago.` : "",
  };
}

export function Running({ batches, now }) {
  if (!batches?.length) return null;
  return html`<div class="running" role="group" aria-label="Running batches">
    ${batches.map((batch) => html`<${Batch} key=${batch.vertexId} batch=${batch} now=${now} />`)}
  </div>`;
}

function Batch({ batch, now }) {
  const { title, about, percent, tasks, silent } = shownOf(batch, now);
  return html`<div>
    <p><b>${title}</b> <span class="muted">${about}</span><span class="muted">${tasks}</span></p>
    ${percent !== null && html`<progress max="100" value=${percent} aria-label=${title}></progress>`}
    ${batch.message && html`<p class="waits">${batch.message}</p>`}
    ${silent && html`<p class="warning">${silent}</p>`}
  </div>`;
}
