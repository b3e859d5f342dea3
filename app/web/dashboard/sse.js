// Server-Sent Events out of the pieces of a body. EventSource cannot send a token in a header.

/** Takes text as it comes and gives the events that it completes: {id, type, data}; `type` is "" of an empty one. */
export class EventParser {
  #rest = "";
  #event = { id: null, type: "", data: [] };

  feed(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    const events = [];
    for (const line of lines) this.#take(line.endsWith("\r") ? line.slice(0, -1) : line, events);
    return events;
  }

  #take(line, events) {
    if (line === "") {
      const { id, type, data } = this.#event;
      if (id !== null || type || data.length) events.push({ id, type, data: data.join("\n") });
      this.#event = { id: null, type: "", data: [] };
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") this.#event.id = value;
    else if (name === "event") this.#event.type = value;
    else if (name === "data") this.#event.data.push(value);
  }
}
