// Calls of the REST API. Paths are relative: the page works behind a proxy and below /v1.

import { EventParser } from "./sse.js";

const TOKEN = "slotwise-token";
const AGAIN_MS = 2_000;
// An event comes every 15 seconds, if only an empty one: a connection that is silent for longer is dead.
const SILENCE_MS = 40_000;

/** An answer that is no success. `status` is 0 if there was none. */
export class Refusal extends Error {
  constructor(status, sentences) {
    super(sentences.join(" "));
    this.status = status;
    this.sentences = sentences;
  }
}

let unauthorized = () => {};

/** Have `then` called whenever the server asks for a token. */
export function onUnauthorized(then) {
  unauthorized = then;
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

/** Kept for this tab, until it is closed. An empty one is none. */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

function withToken(headers) {
  const token = sessionStorage.getItem(TOKEN);
  return token === null ? headers : { ...headers, Authorization: `Bearer ${token}` };
}

/** The answer, if it is a success. */
export async function call(method, path, { body, headers, signal } = {}) {
  let answer;
  try {
    answer = await fetch(path, { method, body, signal, headers: withToken(headers), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, ["The server cannot be reached."]);
  }
  if (answer.ok) return answer;
  if (answer.status === 401) unauthorized();
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, told.errors ?? [`The server answered ${answer.status}.`]);
}

export const get = async (path, signal) => (await call("GET", path, { signal })).json();

export const job = (id, rest = "") => `jobs/${id}${rest}`;

/** A header is bytes: a text with other characters than those of ASCII goes as its UTF-8. */
export const headerText = (text) => String.fromCharCode(...new TextEncoder().encode(text));

/** The bounds of a job and their version; for `put` of `sendBounds`. */
export async function readBounds(id, signal) {
  const answer = await call("GET", job(id, "/resource-requirements"), { signal });
  return { version: answer.headers.get("ETag"), bounds: await answer.json() };
}

/** Declare bounds, or with `dryRun` ask what would happen. They are refused if `version` is not in force. */
export async function sendBounds(id, { version, bounds, reason, dryRun, retry }, signal) {
  const asked = [dryRun && "dryRun=true", retry && "retry=true"].filter(Boolean);
  const query = asked.length ? `?${asked.join("&")}` : "";
  const headers = { "Content-Type": "application/json", "If-Match": version };
  if (reason) headers["X-Slotwise-Reason"] = headerText(reason);
  const path = job(id, `/resource-requirements${query}`);
  return (await call("PUT", path, { body: JSON.stringify(bounds), headers, signal })).json();
}

/** The events behind `cursor.after`, until `signal`. The cursor moves on with them, so that a later call goes on. */
export async function follow(path, cursor, { signal, onEvent, onState }) {
  while (!signal.aborted) {
    try {
      await readEvents(path, cursor, { signal, onEvent, onState });
    } catch (error) {
      // Neither a token nor a job comes by waiting.
      if (signal.aborted || error.status === 401 || error.status === 404) return;
    }
    onState("away");
    await pause(AGAIN_MS, signal);
  }
}

async function readEvents(path, cursor, { signal, onEvent, onState }) {
  const silent = new AbortController();
  const stop = () => silent.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MS);
  try {
    const headers = cursor.after === null ? {} : { "Last-Event-ID": String(cursor.after) };
    const answer = await call("GET", path, { headers, signal: silent.signal });
    onState("live");
    const parser = new EventParser();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      for (const event of parser.feed(read.value)) {
        if (event.id) cursor.after = event.id;
        if (event.type !== "closing") onEvent(event);
      }
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
