// Small parts that several pages share.

import { html, useEffect, useRef } from "./standalone.module.js";
import { time } from "./words.js";

const KINDS = {
  RUNNING: "ok", FINISHED: "done", FAILED: "bad", FAILING: "bad", CANCELED: "off", COMPLETED: "ok", IGNORED: "off",
};

/** The colour of a status or an outcome. A word always stands with it. */
export const kindOf = (status) => KINDS[status] ?? "wait";

export const Status = ({ value }) => html`<span class="status ${kindOf(value)}">${value}</span>`;

export const hasEnded = (status) => ["FINISHED", "FAILED", "CANCELED"].includes(status);

/** The sentences of a refusal. */
export function Problem({ error }) {
  if (!error) return null;
  const sentences = error.sentences ?? [String(error)];
  return html`<ul class="problem" role="alert">
    ${sentences.map((sentence) => html`<li>${sentence}</li>`)}
  </ul>`;
}

export const Live = ({ state }) =>
  html`<span class="connection ${state}" role="status">${state === "live" ? "live" : "connecting…"}</span>`;

/** `children`: what stands before its words. */
export const EventItem = ({ event, now, children }) => html`<li>
  <time>${time(event.timestampInMillis, now)}</time><span class="type">${event.type}</span>
  <span>${children}${" "}${event.summary ?? event.message}</span>
</li>`;

/** A dialog above the page; Escape and a click beside it close it. */
export function Dialog({ title, onClose, children }) {
  const element = useRef();
  useEffect(() => element.current.showModal(), []);
  const beside = (event) => event.target === element.current && onClose();
  return html`<dialog ref=${element} aria-label=${title} onClose=${onClose} onMouseDown=${beside}>
    <div class="dialog">
      <header>
        <h2>${title}</h2>
        <button class="plain" aria-label="Close" onClick=${onClose}>✕</button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

/** Slots as one bar: for each of `holders` ({id, name, slots}) a segment, and what is free. */
export function SlotBar({ holders, total, marked }) {
  const held = holders.reduce((sum, { slots }) => sum + slots, 0);
  const whole = Math.max(total, held, 1);
  const width = (slots) => ({ width: `${(slots / whole) * 100}%` });
  return html`<div class="slotbar" role="list" aria-label="Slots">
    ${holders.map(
      ({ id, name, slots }) => html`<a
        role="listitem"
        href=${id ? `#/jobs/${id}` : "#/"}
        class=${id === marked ? "marked" : id ? "" : "others"}
        style=${{ ...width(slots), "--hue": id && hue(id) }}
        title=${`${name}: ${slots} slot${slots === 1 ? "" : "s"}`}
        ><span>${name} ${slots}</span></a
      >`,
    )}
    ${total > held && html`<span role="listitem" class="free" style=${width(total - held)}>
      <span>${total - held} free</span></span>`}
  </div>`;
}

/** A colour for each job, the same on all pages. */
const hue = (id) => parseInt(id.slice(0, 4), 16) % 360;
