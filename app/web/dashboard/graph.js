// The graph of a job: what each vertex is, how parallel it is, and how busy.

import { html, useMemo, useRef, useLayoutEffect, useState } from "./standalone.module.js";

const WIDTH = 168;
const HEIGHT = 62;
// By more than this a drawing is not made smaller to fit: it is turned, from left to right to from top to bottom.
const SHRINK_MAX = 1.35;
// Nobody reads a larger one, and laying it out would stop the page for seconds.
const DRAWN_MAX = 200;

/** Nodes and edges with their places. `nodes`: those of `plan`, {id, inputs}. */
export function layout(nodes, direction) {
  const graph = new globalThis.dagre.graphlib.Graph();
  graph.setGraph({ rankdir: direction, nodesep: 18, ranksep: 42, marginx: 4, marginy: 4 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id } of nodes) graph.setNode(id, { width: WIDTH, height: HEIGHT });
  for (const { id, inputs } of nodes) for (const input of inputs ?? []) graph.setEdge(input.id, id);
  globalThis.dagre.layout(graph);
  const { width, height } = graph.graph();
  return {
    width,
    height,
    places: Object.fromEntries(nodes.map(({ id }) => [id, graph.node(id)])),
    edges: graph.edges().map((edge) => graph.edge(edge).points),
  };
}

function curve(points) {
  const [first, ...rest] = points;
  let path = `M${first.x},${first.y}`;
  for (let place = 0; place < rest.length - 1; place += 1) {
    const [via, next] = [rest[place], rest[place + 1]];
    const end = place === rest.length - 2 ? next : { x: (via.x + next.x) / 2, y: (via.y + next.y) / 2 };
    path += `Q${via.x},${via.y} ${end.x},${end.y}`;
  }
  return rest.length === 1 ? `${path}L${rest[0].x},${rest[0].y}` : path;
}

/** `vertices`: {id: {name, lower, upper, actual, tasks, busy, percent}}, busy in ms of each second. */
export function Graph(given) {
  if (given.nodes.length <= DRAWN_MAX) return html`<${Drawing} ...${given} />`;
  return html`<p class="muted">
    A graph of ${given.nodes.length} vertices is not drawn: choose one at the time axis.</p>`;
}

function Drawing({ nodes, vertices, selected, onSelect }) {
  const frame = useRef();
  const [room, setRoom] = useState(Infinity);
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(([{ contentRect }]) => setRoom(contentRect.width));
    watcher.observe(frame.current);
    return () => watcher.disconnect();
  }, []);
  const shape = JSON.stringify(nodes.map(({ id, inputs }) => [id, (inputs ?? []).map((input) => input.id)]));
  const drawn = useMemo(() => {
    const wide = layout(nodes, "LR");
    return wide.width > room * SHRINK_MAX ? layout(nodes, "TB") : wide;
  }, [shape, room]);
  return html`<div class="graph" ref=${frame}>
    <svg viewBox=${`0 0 ${drawn.width} ${drawn.height}`} width=${drawn.width} height=${drawn.height}
      role="group" aria-label="Job graph">
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0,0L8,4L0,8z" class="arrow" />
        </marker>
      </defs>
      ${drawn.edges.map((points) => html`<path class="edge" d=${curve(points)} marker-end="url(#arrow)" />`)}
      ${nodes.map(({ id }) => html`<${Node} key=${id} place=${drawn.places[id]} vertex=${vertices[id] ?? {}}
        isSelected=${id === selected} onSelect=${() => onSelect(id)} />`)}
    </svg>
  </div>`;
}

function Node({ place, vertex, isSelected, onSelect }) {
  const { name = "", lower, upper, actual, tasks, busy, percent } = vertex;
  // A source with fewer parts than its parallelism: more slots bring nothing.
  const fewer = tasks != null && tasks < actual ? `, as ${tasks}` : "";
  const share = Math.min(1, (busy ?? 0) / 1_000);
  const bounds = lower === undefined ? "" : ` of ${lower}–${upper}`;
  // A vertex of a batch job is not busy for ever: how far it is says more.
  const isBusy = busy === undefined ? "" : `busy ${Math.round(share * 100)} %`;
  const load = percent === undefined ? isBusy : `${percent} % done`;
  const key = (event) => ["Enter", " "].includes(event.key) && (event.preventDefault(), onSelect());
  return html`<g class="node ${isSelected ? "selected" : ""}" tabindex="0" role="button" aria-pressed=${isSelected}
    aria-label=${`${name}: runs ${actual ?? "not"}${fewer && `${fewer} task${tasks === 1 ? "" : "s"}`}${bounds}${load && `, ${load}`}`}
    transform=${`translate(${place.x - WIDTH / 2},${place.y - HEIGHT / 2})`} onClick=${onSelect} onKeyDown=${key}>
    <title>${name}</title>
    <rect class="box" width=${WIDTH} height=${HEIGHT} rx="7" />
    <rect class="busy" x="1" y=${HEIGHT - 7} width=${(WIDTH - 2) * share} height="6" rx="3"
      style=${{ "--busy": `${Math.round(share * 100)}%` }} />
    <text x="10" y="20" class="name">${shortened(name, 21)}</text>
    <text x="10" y="41"><tspan class="number">${actual ?? "–"}</tspan><tspan class="fewer">${fewer}</tspan><tspan class="muted">${bounds}</tspan></text>
    <text x=${WIDTH - 10} y="41" text-anchor="end" class="muted">${load}</text>
  </g>`;
}

const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
