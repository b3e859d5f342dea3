// Bounds changed from the page: what would happen is shown before, and nobody's change is overwritten unseen.

import { html, useEffect, useMemo, useState } from "./standalone.module.js";
import { newKey, readBounds, sendBounds } from "./api.js";
import { Dialog, Problem } from "./parts.js";

const TYPING_MS = 300;
const STALE = 412;

/** `fields` ({id: {lower, upper}} as typed) as the body of a PUT. What is no number, the server refuses. */
export function bodyOf(fields) {
  const number = (text) => (/^-?\d+$/.test(text.trim()) ? Number(text) : text.trim());
  return Object.fromEntries(
    Object.entries(fields).map(([id, { lower, upper }]) => [
      id,
      { parallelism: { lowerBound: number(lower), upperBound: number(upper) } },
    ]),
  );
}

const fieldsOf = (bounds) =>
  Object.fromEntries(
    Object.entries(bounds).map(([id, { parallelism }]) => [
      id,
      { lower: String(parallelism.lowerBound), upper: String(parallelism.upperBound) },
    ]),
  );

/** `vertices`: {id: {name, actual}}. `retry`: a rescale was taken back, so that equal bounds may be tried again. */
export function BoundsDialog({ jobId, vertices, retry, onClose }) {
  // Read once, and anew after a refusal: a change of somebody else's must not come in unseen below what was typed.
  const [declared, setDeclared] = useState({});
  const [fields, setFields] = useState(null);
  const [reason, setReason] = useState("");
  const [refusal, setRefusal] = useState(null);
  const [isSending, setSending] = useState(false);
  const version = declared.value?.version;
  const read = () =>
    readBounds(jobId).then(
      (value) => {
        setDeclared({ value });
        setFields((typed) => typed ?? fieldsOf(value.bounds));
      },
      (error) => setDeclared((before) => ({ ...before, error })),
    );
  useEffect(() => void read(), [jobId]);
  const isSame = fields && declared.value && JSON.stringify(bodyOf(fields)) === JSON.stringify(declared.value.bounds);
  const isRetry = Boolean(retry && isSame);
  const preview = usePreview(jobId, version, fields, isRetry);
  const key = useMemo(newKey, [version, fields, reason, isRetry]);

  async function send(event) {
    event.preventDefault();
    setSending(true);
    try {
      await sendBounds(jobId, { version, bounds: bodyOf(fields), reason, key, retry: isRetry });
      onClose();
    } catch (error) {
      setRefusal(error);
      if (error.status === STALE) await read();
    }
    setSending(false);
  }
  const set = (id, name) => (event) => {
    setRefusal(null);
    setFields({ ...fields, [id]: { ...fields[id], [name]: event.target.value } });
  };
  const actual = (id) => preview.value?.currentParallelism?.[id] ?? vertices[id]?.actual ?? "–";
  return html`<${Dialog} title="Bounds" onClose=${onClose}>
    <form onSubmit=${send}>
      <${Problem} error=${declared.error} />
      ${fields && html`<table class="bounds">
        <thead><tr><th>Vertex</th><th>Lower</th><th>Upper</th><th>Now</th><th>Then</th></tr></thead>
        <tbody>
          ${Object.entries(fields).map(([id, { lower, upper }]) => {
            const name = vertices[id]?.name ?? id;
            return html`<tr key=${id}>
              <th scope="row">${name}<${Declared} typed=${fields[id]} bounds=${declared.value?.bounds[id]} /></th>
              <td><${Bound} name=${`${name}: lower bound`} value=${lower} onInput=${set(id, "lower")} /></td>
              <td><${Bound} name=${`${name}: upper bound`} value=${upper} onInput=${set(id, "upper")} /></td>
              <td>${actual(id)}</td>
              <td class="then">${preview.value?.parallelism?.[id] ?? "–"}</td>
            </tr>`;
          })}
        </tbody>
      </table>`}
      <${Preview} ...${preview} />
      <label class="wide">Reason, for the history
        <input maxlength="1000" value=${reason} onInput=${(event) => setReason(event.target.value)} /></label>
      ${refusal?.status === STALE && html`<p class="warning" role="alert">
        Somebody has changed the bounds meanwhile. Theirs are now beside yours: look again before you declare yours.
      </p>`}
      <${Problem} error=${refusal} />
      <footer>
        <button type="button" class="plain" disabled=${!fields || isSame}
          onClick=${() => setFields(fieldsOf(declared.value.bounds))}>Take those in force</button>
        <button type="submit" class="main" disabled=${!fields || isSending || (isSame && !isRetry)}>
          ${isRetry ? "Try again" : "Declare"}</button>
      </footer>
    </form>
  <//>`;
}

const Bound = ({ name, value, onInput }) =>
  html`<input inputmode="numeric" aria-label=${name} value=${value} onInput=${onInput} />`;

/** The bounds in force, where others were typed. */
function Declared({ typed, bounds }) {
  if (!bounds) return null;
  const { lowerBound, upperBound } = bounds.parallelism;
  if (typed.lower === String(lowerBound) && typed.upper === String(upperBound)) return null;
  return html`<small> in force ${lowerBound}–${upperBound}</small>`;
}

/** {value, error}: what the server says of the bounds that are typed. */
function usePreview(jobId, version, fields, retry) {
  const [state, setState] = useState({});
  useEffect(() => {
    if (!fields || !version) return undefined;
    const ending = new AbortController();
    const timer = setTimeout(async () => {
      const asked = { version, bounds: bodyOf(fields), dryRun: true, retry };
      const found = await sendBounds(jobId, asked, ending.signal).then(
        (value) => ({ value }),
        (error) => ({ error }),
      );
      if (!ending.signal.aborted) setState(found);
    }, TYPING_MS);
    return () => (clearTimeout(timer), ending.abort());
  }, [jobId, version, fields, retry]);
  return state;
}

function Preview({ value, error }) {
  const refusal = error ?? (value?.refused.length ? { sentences: value.refused } : null);
  return html`<section class="preview" aria-live="polite">
    ${refusal && html`<h3>This would be refused</h3><${Problem} error=${refusal} />`}
    ${!refusal && !value && html`<p class="muted">Asking what would happen…</p>`}
    ${!refusal && value && html`<h3>What would happen</h3>
      <p>Slots <b>${value.slotsBefore} → ${value.slotsAfter ?? "–"}</b>
        ${value.rung && html`, rung <b>${value.rung}</b>`}</p>
      <ul>${value.explanation.map((sentence) => html`<li>${sentence}</li>`)}</ul>`}
  </section>`;
}
