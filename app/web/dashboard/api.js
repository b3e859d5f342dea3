// Calls of the REST API. Paths are relative: the page works behind a proxy and below /v1.

import { EventParser } from "./sse.js";

const TOKEN = "slotwise-token";
const AGAIN_MS = 2_000;
// An event comes every 15 seconds, if only an empty one: a connection that is silent for longer is dead.
const SILENCE_MS = 40_000;
// Of any other answer: a connection may be dead without a word, after a laptop has slept.
const ANSWER_MS = 30_000;

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

/** Whether it can be sent in a header, as all tokens that a server knows can. */
export const isToken = (text) => /^[\x21-\x7e]+$/.test(text);

/** Kept for this tab, until it is closed. An empty one is none. */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

function withToken(headers) {
  const token = sessionStorage.getItem(TOKEN);
  return token === null ? headers : { ...headers, Authorization: `Bearer ${token}` };
}

/** The answer, if it is a success. `limitMs`: how long to wait for all of it; Infinity: as long as it takes. */
export async function call(method, path, { body, headers, signal, limitMs = ANSWER_MS } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const limits = [signal, limitMs < Infinity && AbortSignal.timeout(limitMs)].filter(Boolean);
  const options = { method, body, headers: withToken(headers), cache: "no-store", signal: AbortSignal.any(limits) };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const late = `The server has not answered within ${limitMs / 1_000} seconds.`;
    throw new Refusal(0, [error.name === "TimeoutError" ? late : "The server cannot be reached."]);
  }
  if (answer.ok) return answer;
  // Not if another token was given meanwhile.
  if (answer.status === 401 && token === sessionStorage.getItem(TOKEN)) unauthorized();
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, told.errors ?? [`The server answered ${answer.status}.`]);
}

export const get = async (path, signal) => (await call("GET", path, { signal })).json();

export const job = (id, rest = "") => `jobs/${id}${rest}`;

/** A header is bytes: a text with other characters than those of ASCII goes as its UTF-8. */
export const headerText = (text) => String.fromCharCode(...new TextEncoder().encode(text));

/** What is declared at `path`, and its version; for `sendDeclared`. */
export async function readDeclared(path, signal) {
  const answer = await call("GET", path, { signal });
  return { version: answer.headers.get("ETag"), body: await answer.json() };
}

/** A key for one change, by which the server knows it again if its answer was lost. */
export const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16)).join("-");

/** Declare `body` at `path`, or with `dryRun` ask what would happen. It is refused if `version` is not in force. */
export async function sendDeclared(path, { version, body, reason, key, deadline, onTimeout, dryRun, retry }, signal) {
  const asked = [dryRun && "dryRun=true", retry && "retry=true"].filter(Boolean);
  const query = asked.length ? `?${asked.join("&")}` : "";
  const headers = { "Content-Type": "application/json", "If-Match": version };
  if (key) headers["Idempotency-Key"] = key;
  if (reason) headers["X-Slotwise-Reason"] = headerText(reason);
  if (deadline) {
    headers["X-Slotwise-Deadline"] = headerText(deadline);
    headers["X-Slotwise-On-Timeout"] = onTimeout;
  }
  return (await call("PUT", `${path}${query}`, { body: JSON.stringify(body), headers, signal })).json();
}

/** The events behind `cursor.after`, until `signal`. The cursor moves on with them, so that a later call goes on. If it
 * has `back` instead, events begin so many (of all jobs) before the newest: there may be a hundred thousand. */
export async function follow(path, cursor, { signal, onEvent, onState }) {
  while (!signal.aborted) {
    try {
      await readEvents(path, cursor, { signal, onEvent, onState });
    } catch (error) {
      // Neither a token nor a job comes by waiting.
      if (signal.aborted || error.status === 401 || error.status === 404) return;
    }
    if (cursor.isFound) {
      cursor.isFound = false;
      continue;
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
    const answer = await call("GET", path, { headers, signal: silent.signal, limitMs: Infinity });
    onState("live");
    const parser = new EventParser();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      // The cursor must not pass events that nobody is told of.
      if (signal.aborted) return;
      for (const event of parser.feed(read.value)) {
        if (event.id && cursor.back) {
          Object.assign(cursor, { after: Math.max(0, event.id - cursor.back), back: 0, isFound: true });
          return;
        }
        if (event.id) cursor.after = event.id;
        if (event.type !== "closing") onEvent(event);
      }
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    stop();
  }
}

function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
