// Hooks that keep a page current: what is read again and again, and events.

import { useEffect, useMemo, useRef, useState } from "./standalone.module.js";
import { follow } from "./api.js";

// As often as things change, but after some times as long as an answer took: a server with much to do is asked less.
const REST = 4;
const REST_LEAST_MS = 100;
const REST_MOST_MS = 1_000;
const GONE = 404;
const AGAIN = "slotwise-again";

/** Have everything on the page read again, and events followed: there is a token now. */
export const readAgain = () => document.dispatchEvent(new Event(AGAIN));

function onSeen(then) {
  const looked = () => document.hidden || then();
  for (const name of ["visibilitychange", AGAIN]) document.addEventListener(name, looked);
  return () => {
    for (const name of ["visibilitychange", AGAIN]) document.removeEventListener(name, looked);
  };
}

/** {value, error, refresh}: what `read(signal)` gives, now, every `everyMs`, and soon after `refresh()`. Nothing is read
 * while nobody can see the page, nor for ever what is not there. */
export function useRead(read, keys, everyMs) {
  const [state, setState] = useState({});
  const latest = useRef();
  latest.current = read;
  const again = useRef(() => {});
  useEffect(() => {
    const ending = new AbortController();
    let timer;
    let next = -Infinity;
    let isReading = false;
    let isWanted = false;
    function refresh() {
      clearTimeout(timer);
      timer = setTimeout(run, Math.max(0, next - performance.now()));
    }
    async function run() {
      clearTimeout(timer);
      isWanted = isReading || document.hidden;
      if (isWanted) return;
      isReading = true;
      const began = performance.now();
      const found = await latest.current(ending.signal).then(
        (value) => ({ value }),
        (error) => ({ error }),
      );
      isReading = false;
      const took = performance.now() - began;
      next = began + took + Math.min(REST_MOST_MS, Math.max(REST_LEAST_MS, REST * took));
      if (ending.signal.aborted) return;
      // What was known stays on the page while the server is away.
      setState((before) => ({ value: before.value, ...found }));
      if (isWanted) refresh();
      else if (found.error?.status !== GONE) timer = setTimeout(run, everyMs);
    }
    const forget = onSeen(run);
    again.current = refresh;
    setState({});
    run();
    return () => {
      ending.abort();
      clearTimeout(timer);
      forget();
    };
  }, [...keys, everyMs]);
  return { ...state, refresh: () => again.current() };
}

/** "live", or "away" while there is no connection. `back`: with so many events of the past, of all jobs. Events are
 * followed while the page can be seen: a browser has few connections for each server, and each tab would keep one. */
export function useEvents(path, back, onEvent) {
  const [state, setState] = useState("away");
  const latest = useRef();
  latest.current = onEvent;
  useEffect(() => {
    const cursor = { after: null, back };
    let ending;
    function look() {
      ending?.abort();
      if (document.hidden) return;
      ending = new AbortController();
      const { signal } = ending;
      const tell = (then) => (value) => signal.aborted || then(value);
      follow(path, cursor, { signal, onEvent: tell((event) => latest.current(event)), onState: tell(setState) });
    }
    document.addEventListener("visibilitychange", look);
    document.addEventListener(AGAIN, look);
    look();
    return () => {
      ending?.abort();
      document.removeEventListener("visibilitychange", look);
      document.removeEventListener(AGAIN, look);
    };
  }, [path]);
  return state;
}

/** The time of the server, once a second while the page can be seen. `told`: what it has said that it is, undefined if
 * nothing yet. The clock of the browser may be another hour's. */
export function useNow(told) {
  const [now, setNow] = useState(Date.now());
  const ahead = useMemo(() => (told === undefined ? 0 : told - Date.now()), [told]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now + ahead;
}
