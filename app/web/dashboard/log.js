// The log of an attempt, from its end on.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./standalone.module.js";
import { call, get, job } from "./api.js";
import { Problem } from "./parts.js";
import { time } from "./words.js";
import { useRead } from "./live.js";

const FIRST_BYTES = 128 * 1024;
const CHARACTERS_MAX = 512 * 1024;
const AGAIN_MS = 1_000;
const ATTEMPTS_MS = 5_000;

/** `attemptNumber`: that of the job now. The newest attempt is shown until another one is chosen. */
export function Log({ jobId, attemptNumber }) {
  const attempts = useRead((signal) => get(job(jobId, "/attempts"), signal), [jobId, attemptNumber], ATTEMPTS_MS);
  const [chosen, setChosen] = useState(null);
  const all = attempts.value?.attempts ?? [];
  const shown = all.find((one) => one.attempt === chosen) ?? all[0];
  const text = (one) => `${one.attempt}: ${time(one.startTimestampInMillis)}, ${one.ending ?? "runs"}`;
  return html`<div>
    <${Problem} error=${attempts.error} />
    ${all.length === 0 && html`<p class="muted">There is no attempt yet.</p>`}
    ${shown && html`<div class="row">
      <label>Attempt <select value=${shown.attempt} onChange=${(event) => setChosen(Number(event.target.value))}>
        ${all.map((one) => html`<option value=${one.attempt}>${text(one)}</option>`)}
      </select></label>
      ${shown.sparkUi && html`<a href=${shown.sparkUi} rel="noreferrer">Spark's page</a>`}
      <span class="muted">${placeOf(shown)}</span>
    </div>
    ${shown.message && html`<p class="warning">${shown.message}</p>`}
    ${shown.log.available
      ? html`<${Text} key=${shown.attempt} jobId=${jobId} attempt=${shown} />`
      : html`<p class="muted">Its log was removed.</p>`}`}
  </div>`;
}

function placeOf({ host, driverPid, sparkVersion }) {
  const told = [host, driverPid && `process ${driverPid}`, sparkVersion && `PySpark ${sparkVersion}`];
  return told.filter(Boolean).join(", ");
}

function Text({ jobId, attempt }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [isFollowing, setFollowing] = useState(true);
  const page = useRef();
  useEffect(() => {
    const ending = new AbortController();
    tail(jobId, attempt, {
      signal: ending.signal,
      onText: (more) => setText((before) => lastLines(before + more)),
      onError: setError,
    });
    return () => ending.abort();
  }, [jobId, attempt.attempt]);
  useLayoutEffect(() => {
    if (isFollowing) page.current.scrollTop = page.current.scrollHeight;
  }, [text, isFollowing]);
  // Whoever scrolls up wants to read; at the end it goes on.
  const scrolled = ({ target }) => setFollowing(target.scrollTop + target.clientHeight >= target.scrollHeight - 8);
  return html`<${Problem} error=${error} />
    <label class="follow">
      <input type="checkbox" checked=${isFollowing} onChange=${(event) => setFollowing(event.target.checked)} /> Follow
    </label>
    <pre class="log" ref=${page} tabindex="0" aria-label="Log" onScroll=${scrolled}>
      ${text || "Nothing was logged yet."}</pre>`;
}

function lastLines(text) {
  return text.length <= CHARACTERS_MAX ? text : text.slice(text.indexOf("\n", text.length - CHARACTERS_MAX) + 1);
}

/** Reads pieces, since a request that waits would keep one of the few connections that a browser has. */
async function tail(jobId, { attempt, log }, { signal, onText, onError }) {
  let from = Math.max(log.cutInBytes, log.sizeInBytes - FIRST_BYTES);
  let isCut = from > log.cutInBytes;
  for (;;) {
    try {
      const answer = await call("GET", job(jobId, `/attempts/${attempt}/logs?from=${from}`), { signal });
      const text = await answer.text();
      // The first line is a part of one.
      onText(isCut ? text.slice(text.indexOf("\n") + 1) : text);
      isCut = false;
      onError(null);
      from = Number(answer.headers.get("X-Slotwise-Next"));
      if (answer.headers.get("X-Slotwise-Complete") === "true") return;
    } catch (error) {
      if (signal.aborted) return;
      onError(error);
      if (error.status >= 400 && error.status < 500) return;
    }
    do await new Promise((done) => setTimeout(done, AGAIN_MS));
    while (document.hidden && !signal.aborted);
    if (signal.aborted) return;
  }
}
