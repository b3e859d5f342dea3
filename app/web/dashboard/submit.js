// Submit a document, or a program for which a document is written.

import { html, useState } from "./standalone.module.js";
import { call } from "./api.js";
import { Dialog, Problem } from "./parts.js";

const DOCUMENT = /[.](ya?ml|json)$/i;

/** The document of a program that was chosen, to be completed by hand. */
export function documentOf(script, others) {
  const name = script.replace(/[.]py$/i, "");
  const lines = [`name: ${JSON.stringify(name)}`, `script: ${JSON.stringify(script)}`, "args: []"];
  if (others.length) lines.push(`artifacts: ${JSON.stringify(others)}`);
  return `${lines.join("\n")}\n`;
}

/** The form of a submission: the text, and the files beside it. JSON is told from YAML by its first character. */
export function formOf(text, files) {
  const type = text.trimStart().startsWith("{") ? "application/json" : "application/yaml";
  const form = new FormData();
  form.append("graph", new Blob([text], { type }), type.endsWith("json") ? "graph.json" : "graph.yaml");
  for (const file of files) form.append("files", file, file.name);
  return form;
}

export function SubmitDialog({ onClose }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState([]);
  const [state, setState] = useState({});

  async function chosen(event) {
    const all = [...event.target.files];
    const document = all.find((file) => DOCUMENT.test(file.name));
    const rest = all.filter((file) => file !== document);
    const script = rest.find((file) => /[.]py$/i.test(file.name));
    setFiles(rest);
    setState({});
    const others = rest.filter((file) => file !== script).map((file) => file.name);
    if (document) setText(await document.text());
    else if (script) setText(documentOf(script.name, others));
  }
  const send = (dryRun) => async (event) => {
    event.preventDefault();
    setState({ isSending: true });
    try {
      const sent = { body: formOf(text, files), limitMs: Infinity };
      const answer = await call("POST", dryRun ? "jobs?dryRun=true" : "jobs", sent);
      const told = await answer.json();
      if (dryRun) setState({ checked: told });
      else location.hash = `#/jobs/${told.jobid}`;
    } catch (error) {
      setState({ error });
    }
  };
  const { isSending, checked, error } = state;
  return html`<${Dialog} title="Submit a job" onClose=${onClose}>
    <form onSubmit=${send(false)}>
      <label class="wide">Document (.yaml, .json) or program (.py), with the files that it needs
        <input type="file" multiple onChange=${chosen} /></label>
      ${files.length > 0 && html`<p class="muted">Sent with it: ${files.map((file) => file.name).join(", ")}</p>`}
      <label class="wide">Document
        <textarea rows="12" spellcheck="false" value=${text} placeholder=${"name: counts\nvertices: ..."}
          onInput=${(event) => setText(event.target.value)}></textarea></label>
      <${Problem} error=${error} />
      ${checked && html`<${Checked} document=${checked} />`}
      <footer>
        <button type="button" class="plain" disabled=${!text || isSending} onClick=${send(true)}>Check</button>
        <button type="submit" class="main" disabled=${!text || isSending}>Submit</button>
      </footer>
    </form>
  <//>`;
}

/** What a document comes to, with all defaults. */
function Checked({ document: { name, type, vertices } }) {
  const kind = ({ source, sink, planned }) => planned?.operator ?? source?.format ?? sink?.format ?? "";
  return html`<section class="preview" role="status">
    <h3>${name} would be accepted (${type})</h3>
    <table>
      <thead><tr><th>Vertex</th><th>What</th><th>Bounds</th></tr></thead>
      <tbody>${vertices.map((one) => html`<tr><th scope="row">${one.name}</th><td>${kind(one)}</td>
        <td>${one.lowerBound ?? 1}–${one.parallelism ?? one.maxParallelism}</td></tr>`)}</tbody>
    </table>
  </section>`;
}
