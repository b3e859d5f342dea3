// The frame of all pages: which one is shown, light or dark, and the token.

import { html, render, useEffect, useRef, useState } from "./standalone.module.js";
import { hasToken, isToken, onUnauthorized, setToken } from "./api.js";
import { JobPage } from "./jobpage.js";
import { JobsPage } from "./jobs.js";
import { readAgain } from "./live.js";

const THEME = "slotwise-theme";
const THEMES = { auto: "◐", light: "☀", dark: "☾" };

function useHash() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

/** The theme that was chosen, and a word that changes whenever colours do. */
function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem(THEME) ?? "auto");
  const media = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, setDark] = useState(media.matches);
  useEffect(() => {
    const changed = () => setDark(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  // Before the children measure colours.
  document.documentElement.dataset.theme = theme;
  const next = () => {
    const names = Object.keys(THEMES);
    const chosen = names[(names.indexOf(theme) + 1) % names.length];
    localStorage.setItem(THEME, chosen);
    setTheme(chosen);
  };
  return { theme, next, colours: `${theme} ${isDark}` };
}

/** Above the page, which keeps what was typed into it. */
function TokenDialog({ wasWrong, onGiven }) {
  const [token, setText] = useState("");
  const element = useRef();
  useEffect(() => element.current.showModal(), []);
  const isOdd = token.trim() !== "" && !isToken(token.trim());
  const send = (event) => {
    event.preventDefault();
    setToken(token.trim());
    onGiven();
  };
  return html`<dialog ref=${element} class="token" onClose=${() => element.current?.showModal()}>
    <form class="dialog" onSubmit=${send}>
      <h2>This server asks for a token</h2>
      <p>It is kept in this tab until the tab is closed.</p>
      ${wasWrong && html`<p class="problem" role="alert">The server does not know this token.</p>`}
      ${isOdd && html`<p class="problem" role="alert">A token has no spaces, and only characters of ASCII.</p>`}
      <label class="wide">Token
        <input type="password" autocomplete="off" autofocus value=${token}
          onInput=${(event) => setText(event.target.value)} /></label>
      <footer><button type="submit" class="main" disabled=${isOdd || !token.trim()}>Go on</button></footer>
    </form>
  </dialog>`;
}

function App() {
  const hash = useHash();
  const { theme, next, colours } = useTheme();
  // null: as far as is known the server lets us in.
  const [refused, setRefused] = useState(null);
  useEffect(() => onUnauthorized(() => setRefused({ wasWrong: hasToken() })), []);
  const given = () => {
    setRefused(null);
    readAgain();
  };
  const forget = () => {
    setToken("");
    location.reload();
  };
  const id = /^#\/jobs\/([0-9a-f]{32})$/.exec(hash)?.[1];
  const page = id ? html`<${JobPage} key=${id} id=${id} theme=${colours} />` : html`<${JobsPage} />`;
  return html`
    <nav>
      <a class="brand" href="#/"><img src="ui/icon.svg" alt="" width="22" height="22" /> Slotwise</a>
      <span class="space"></span>
      ${hasToken() && html`<button class="plain" onClick=${forget}>Forget the token</button>`}
      <a href="docs">REST API</a>
      <button class="plain" aria-label=${`Colours: ${theme}`} title=${`Colours: ${theme}`} onClick=${next}>
        ${THEMES[theme]}</button>
    </nav>
    ${page}
    ${refused && html`<${TokenDialog} wasWrong=${refused.wasWrong} onGiven=${given} />`}
  `;
}

render(html`<${App} />`, document.getElementById("app"));
