"""The page /docs: the OpenAPI document as one static HTML page. It loads nothing and runs no script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_METHODS = ("get", "put", "post", "patch", "delete")
_CODE = re.compile(r"`([^`]+)`")
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2563eb; }
@media (prefers-color-scheme: dark) { :root { --accent: #7aa7ff; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
a { color: var(--accent); } code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .6rem; overflow-x: auto; border-radius: 4px; max-height: 24rem; }
details { border: 1px solid var(--line); border-radius: 4px; margin: .4rem 0; padding: 0 .8rem; }
details[open] { padding-bottom: .6rem; }
summary { cursor: pointer; padding: .4rem 0; } summary .path { font-weight: 600; }
.method { display: inline-block; min-width: 4.2rem; font-weight: 700; color: var(--accent); }
.note { opacity: .75; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; }
"""


def render_page(document: Mapping[str, Any]) -> str:
    """The HTML of an OpenAPI document as `app.api.openapi` builds it."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: REST API</title><meta'
        f' name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
    )
    return "\n".join(
        [
            head,
            f"<header><h1>{title}</h1>",
            *(f"<p>{_prose(paragraph)}</p>" for paragraph in info["description"].strip().split("\n\n")),
            '<p>The same as a document for programs: <a href="openapi.json">openapi.json</a>.</p>',
            "</header><main>",
            *_operations(document),
            "<section id='schemas'><h2>Schemas</h2>",
            *_schemas(document["components"]["schemas"]),
            "</section></main></body></html>",
        ]
    )


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    for tag in document["tags"]:
        yield f"<section><h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>"
        for path, methods in document["paths"].items():
            for method in _METHODS:
                operation = methods.get(method)
                if operation is not None and tag["name"] in operation["tags"]:
                    yield from _operation(method, path, operation)
        yield "</section>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f'<details id="{escape(operation["operationId"])}"><summary><span'
        f' class="method">{method.upper()}</span>'
    )
    yield f'<code class="path">{escape(path)}</code> {escape(operation["summary"])}</summary>'
    if operation.get("description"):
        yield f"<p>{_prose(operation['description'])}</p>"
    if operation["parameters"]:
        yield "<table><tr><th>Parameter</th><th>In</th><th>Meaning</th><th>Schema</th></tr>"
        for parameter in operation["parameters"]:
            yield (
                f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(parameter['in'])}</td>"
                f"<td>{_prose(parameter['description'])}</td><td><code>{_compact(parameter['schema'])}</code></td></tr>"
            )
        yield "</table>"
    body = operation.get("requestBody")
    if body is not None:
        yield f"<h4>Body</h4><p>{_prose(body['description'])}</p>"
        for media, content in body["content"].items():
            yield from _content(media, content)
    for status, answer in operation["responses"].items():
        yield from _answer(status, answer)
    yield "</details>"


def _answer(status: str, answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h4>{escape(status)} {_prose(answer['description'])}</h4>"
    for name, header in answer.get("headers", {}).items():
        yield f"<p><code>{escape(name)}</code>: {_prose(header['description'])}</p>"
    for media, content in answer.get("content", {}).items():
        if status.startswith("2"):
            yield from _content(media, content)
        else:
            yield f"<pre>{_pretty(content['example'])}</pre>"


def _content(media: str, content: Mapping[str, Any]) -> Iterator[str]:
    yield f'<p class="note">{escape(media)} {_reference(content["schema"])}</p>'
    examples = [content["example"]] if "example" in content else []
    examples += [example["value"] for example in content.get("examples", {}).values()]
    for example in examples:
        yield f"<pre>{escape(example) if isinstance(example, str) else _pretty(example)}</pre>"


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        yield f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        if schema.get("description"):
            yield f"<p>{_prose(schema['description'])}</p>"
        rest = {key: value for key, value in schema.items() if key not in ("description", "title")}
        yield f"<pre>{_pretty(rest)}</pre></details>"


def _reference(schema: Mapping[str, Any]) -> str:
    """Links to the schemas that a schema names at its top."""
    if "$ref" in schema:
        name = escape(str(schema["$ref"]).rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if schema.get("type") == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {_reference(schema['items'])}"
    return " or ".join(filter(None, (_reference(part) for part in schema.get("anyOf", ()))))


def _pretty(value: Any) -> str:
    return escape(json.dumps(value, indent=2, ensure_ascii=False))


def _compact(value: Any) -> str:
    return escape(json.dumps(value, ensure_ascii=False))


def _prose(text: str) -> str:
    """``text`` as HTML; what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
