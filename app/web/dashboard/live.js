// Hooks that keep a page current: what is read again and again, and events.

import { useEffect, useMemo, useRef, useState } from "./standalone.module.js";
import { follow } from "./api.js";

const SOON_MS = 250;

/** {value, error, refresh}: what `read(signal)` gives, now, every `everyMs` (0: not again), and soon after `refresh()`.
 * Nothing is read while nobody can see the page. */
export function useRead(read, keys, everyMs = 0) {
  const [state, setState] = useState({});
  const latest = useRef();
  latest.current = read;
  const again = useRef(() => {});
  useEffect(() => {
    const ending = new AbortController();
    let timer;
    let isReading = false;
    let isWanted = false;
    async function run() {
      clearTimeout(timer);
      isWanted = isReading || document.hidden;
      if (isWanted) return;
      isReading = true;
      const found = await latest.current(ending.signal).then(
        (value) => ({ value }),
        (error) => ({ error }),
      );
      isReading = false;
      if (ending.signal.aborted) return;
      // What was known stays on the page while the server is away.
      setState((before) => ({ value: before.value, ...found }));
      if (isWanted) timer = setTimeout(run, SOON_MS);
      else if (everyMs) timer = setTimeout(run, everyMs);
    }
    const seen = () => document.hidden || run();
    document.addEventListener("visibilitychange", seen);
    again.current = run;
    setState({});
    run();
    return () => {
      ending.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [...keys, everyMs]);
  return { ...state, refresh: () => again.current() };
}

/** "live", or "away" while there is no connection. Events are followed while the page can be seen: a browser has few
 * connections for each server, and each tab would keep one. */
export function useEvents(path, after, onEvent) {
  const [state, setState] = useState("away");
  const latest = useRef();
  latest.current = onEvent;
  useEffect(() => {
    const cursor = { after };
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
    look();
    return () => {
      ending?.abort();
      document.removeEventListener("visibilitychange", look);
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
