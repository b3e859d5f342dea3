// Bounds, floors and ceilings changed from the page: what would happen is shown before, and nobody's change is
// overwritten unseen.

import { html, useEffect, useMemo, useState } from "./standalone.module.js";
import { job, newKey, readDeclared, sendDeclared } from "./api.js";
import { Dialog, Problem } from "./parts.js";

const TYPING_MS = 300;
const STALE = 412;
const ALL = "";

// What is no number, the server refuses.
const number = (text) => (/^-?\d+$/.test(text.trim()) ? Number(text) : text.trim());
const limit = (text) => (text.trim() === "" ? null : number(text));
const mapped = (object, change) => Object.fromEntries(Object.entries(object).map(([id, one]) => [id, change(one)]));

/** The bounds: `fieldsOf` makes {id: {low, high}} as typed of what is declared, `bodyOf` the body of a PUT of them. */
export const BOUNDS = {
  title: "Bounds",
  rest: "/resource-requirements",
  names: { low: "Lower", high: "Upper" },
  label: (name) => `${name} bound`,
  fieldsOf: (body) =>
    mapped(body, ({ parallelism: { lowerBound, upperBound } }) => ({ low: `${lowerBound}`, high: `${upperBound}` })),
  bodyOf: (fields) =>
    mapped(fields, ({ low, high }) => ({ parallelism: { lowerBound: number(low), upperBound: number(high) } })),
};

/** The floor and ceiling of all vertices, and of those in `ids`. */
export const policyOf = (ids) => ({
  title: "Floor and ceiling",
  rest: "/scaling-policy",
  names: { low: "Floor", high: "Ceiling" },
  label: (name) => name,
  fieldsOf: ({ allVertices, vertices }) => {
    const typed = ({ floor, ceiling } = {}) => ({ low: `${floor ?? ""}`, high: `${ceiling ?? ""}` });
    const own = [...ids, ...Object.keys(vertices)].map((id) => [id, typed(vertices[id])]);
    return { [ALL]: typed(allVertices), ...Object.fromEntries(own) };
  },
  bodyOf: ({ [ALL]: everywhere, ...own }) => {
    const limits = ({ low, high }) => ({ floor: limit(low), ceiling: limit(high) });
    const given = Object.entries(own).filter(([, { low, high }]) => (low + high).trim());
    return { allVertices: limits(everywhere), vertices: mapped(Object.fromEntries(given), limits) };
  },
});

/** `kind`: `BOUNDS`, or a policy. `vertices`: {id: {name, actual}}. `retry`: a rescale was taken back, so that equal
 * bounds may be tried again. */
export function DeclareDialog({ kind, jobId, vertices, retry, onClose }) {
  const path = job(jobId, kind.rest);
  // Read once, and anew after a refusal: a change of somebody else's must not come in unseen below what was typed.
  const [declared, setDeclared] = useState({});
  const [fields, setFields] = useState(null);
  const [reason, setReason] = useState("");
  const [wait, setWait] = useState({ deadline: "", onTimeout: "ROLLBACK" });
  const [refusal, setRefusal] = useState(null);
  const [isSending, setSending] = useState(false);
  const version = declared.value?.version;
  const read = () =>
    readDeclared(path).then(
      ({ version, body }) => {
        setDeclared({ value: { version, fields: kind.fieldsOf(body) } });
        setFields((typed) => typed ?? kind.fieldsOf(body));
      },
      (error) => setDeclared((before) => ({ ...before, error })),
    );
  useEffect(() => void read(), [path]);
  const sent = fields && JSON.stringify(kind.bodyOf(fields));
  const isSame = fields && declared.value && sent === JSON.stringify(kind.bodyOf(declared.value.fields));
  const isRetry = Boolean(retry && isSame);
  const deadline = wait.deadline.trim();
  const asked = { version, body: fields && kind.bodyOf(fields), retry: isRetry, deadline, onTimeout: wait.onTimeout };
  const keys = [path, version, sent, isRetry, deadline, wait.onTimeout];
  const preview = usePreview(path, asked, keys);
  const key = useMemo(newKey, [...keys, reason]);

  async function send(event) {
    event.preventDefault();
    setSending(true);
    try {
      await sendDeclared(path, { ...asked, reason, key });
      onClose();
    } catch (error) {
      setRefusal(error);
      if (error.status === STALE) await read();
    }
    setSending(false);
  }
  const set = (id, which) => (event) => {
    setRefusal(null);
    setFields({ ...fields, [id]: { ...fields[id], [which]: event.target.value } });
  };
  const actual = (id) => preview.value?.currentParallelism?.[id] ?? vertices[id]?.actual ?? "–";
  return html`<${Dialog} title=${kind.title} onClose=${onClose}>
    <form onSubmit=${send}>
      <${Problem} error=${declared.error} />
      ${fields && html`<table class="bounds">
        <thead><tr><th>Vertex</th><th>${kind.names.low}</th><th>${kind.names.high}</th><th>Now</th><th>Then</th></tr></thead>
        <tbody>
          ${Object.entries(fields).map(([id, typed]) => {
            const name = id === ALL ? "all vertices" : (vertices[id]?.name ?? id);
            const field = (which) => html`<input inputmode="numeric" value=${typed[which]} onInput=${set(id, which)}
              aria-label=${`${name}: ${kind.label(kind.names[which].toLowerCase())}`} />`;
            return html`<tr key=${id}>
              <th scope="row">${name}<${Declared} typed=${typed} fields=${declared.value?.fields[id]} /></th>
              <td>${field("low")}</td><td>${field("high")}</td>
              <td>${id === ALL ? "" : actual(id)}</td>
              <td class="then">${id === ALL ? "" : (preview.value?.parallelism?.[id] ?? "–")}</td>
            </tr>`;
          })}
        </tbody>
      </table>`}
      ${kind === BOUNDS && html`<${Wait} wait=${wait} onWait=${setWait} />`}
      <${Preview} ...${preview} />
      <label class="wide">Reason, for the history
        <input maxlength="1000" value=${reason} onInput=${(event) => setReason(event.target.value)} /></label>
      ${refusal?.status === STALE && html`<p class="warning" role="alert">
        Somebody has made a change meanwhile. It is now beside yours: look again before you declare yours.
      </p>`}
      <${Problem} error=${refusal} />
      <footer>
        <button type="button" class="plain" disabled=${!fields || isSame}
          onClick=${() => setFields(declared.value.fields)}>Take those in force</button>
        <button type="submit" class="main" disabled=${!fields || isSending || (isSame && !isRetry)}>
          ${isRetry ? "Try again" : "Declare"}</button>
      </footer>
    </form>
  <//>`;
}

/** How long bounds may wait for all their slots, and what happens then. */
function Wait({ wait, onWait }) {
  const set = (name) => (event) => onWait({ ...wait, [name]: event.target.value });
  return html`<div class="row">
    <label>Wait for all slots for
      <input class="short" list="deadlines" placeholder="no wait" value=${wait.deadline} onInput=${set("deadline")} />
    </label>
    <datalist id="deadlines">${["1 min", "5 min", "10 min", "1 h"].map((text) => html`<option value=${text} />`)}</datalist>
    <label>then
      <select disabled=${!wait.deadline.trim()} value=${wait.onTimeout} onChange=${set("onTimeout")}>
        <option value="ROLLBACK">drop the new bounds</option>
        <option value="COMMIT">use the slots there are</option>
      </select></label>
  </div>`;
}

/** What is in force, where something else was typed. */
function Declared({ typed, fields }) {
  if (!fields || (typed.low === fields.low && typed.high === fields.high)) return null;
  return html`<small> in force ${fields.low || "none"}–${fields.high || "none"}</small>`;
}

/** {value, error}: what the server says of what is typed. */
function usePreview(path, asked, keys) {
  const [state, setState] = useState({});
  useEffect(() => {
    // What was asked for other numbers says nothing of these.
    setState({});
    if (!asked.body || !asked.version) return undefined;
    const ending = new AbortController();
    const timer = setTimeout(async () => {
      const found = await sendDeclared(path, { ...asked, dryRun: true }, ending.signal).then(
        (value) => ({ value }),
        (error) => ({ error }),
      );
      if (!ending.signal.aborted) setState(found);
    }, TYPING_MS);
    return () => (clearTimeout(timer), ending.abort());
  }, keys);
  return state;
}

function Preview({ value, error }) {
  const refusal = error ?? (value?.refused.length ? { sentences: value.refused } : null);
  return html`<section class="preview" aria-live="polite">
    ${refusal && html`<h3>This would be refused</h3><${Problem} error=${refusal} />`}
    ${!refusal && !value && html`<p class="muted">Computing the effect…</p>`}
    ${!refusal && value && html`<h3>What would happen</h3>
      <p>Slots <b>${value.slotsBefore} → ${value.slotsAfter ?? "–"}</b>
        ${value.rung && html`, rung <b>${value.rung}</b>`}</p>
      <ul>${value.explanation.map((sentence) => html`<li>${sentence}</li>`)}</ul>`}
  </section>`;
}
