"""`to_document` and `parse_document` undo each other, also through JSON and YAML, and the examples are sound."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.api.yamltext import decode_yaml_strict
from app.cli.submit import read_graph
from app.documents.graph import parse_document
from app.model.graphdoc import to_document
from app.model.jobgraph import Partitioner
from app.model.strictjson import decode_json_strict
from tests.unit.model.documents import document

ROOT = Path(__file__).parents[3]
# Those of Kubernetes are manifests (tests/unit/cluster/test_kubernetes_examples.py), those of the autoscaler policies.
EXAMPLES = sorted(
    path for path in (ROOT / "examples").glob("**/*.yaml") if not {"kubernetes", "autoscaler"} & {*path.parts}
)

_text = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)
_options = st.dictionaries(
    _text.map(lambda key: "no-option-of-sparks-" + key), _text | st.integers(0, 9) | st.booleans(), max_size=3
)
_json_options = st.fixed_dictionaries({}, optional={"ignoreNullFields": st.booleans(), "dateFormat": _text})
_name = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,6}\Z") | _text


def _sql(kind: str, inputs: list[str]) -> str:
    quoted = ["`" + name.replace("`", "``") + "`" for name in inputs]
    union = " UNION ALL ".join(f"SELECT * FROM {name}" for name in quoted)
    return f"SELECT k, count(*) AS n FROM ({union}) GROUP BY k" if kind == "aggregate" else union


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Correct documents of every kind of vertex and field."""
    names = draw(st.lists(_name, min_size=3, max_size=8, unique_by=str.lower))
    batch = draw(st.booleans())
    sources = draw(st.integers(1, len(names) - 2))
    vertices: list[dict[str, Any]] = []
    static: set[str] = set()
    for index, name in enumerate(names[:sources]):
        fixed = draw(st.booleans()) and index > 0
        options = draw(_options) if fixed or batch else {"nullValue": draw(_text)}
        kinds: list[dict[str, Any]] = [
            {"format": "csv", "path": "/in", "schema": "k INT", "options": options, "static": fixed},
            {"format": "parquet", "path": "/in/" + draw(_text), "static": fixed},
        ]
        if not fixed:
            kinds.append({"format": "own", "options": draw(_options)})
            kinds += (
                [] if batch else [{"format": "rate", "options": {"rowsPerSecond": draw(st.integers(1, 9))}}]
            )
        vertices.append({"name": name, "source": draw(st.sampled_from(kinds))})
        if fixed:
            static.add(name)
    for name in names[sources:-1]:
        chosen = draw(
            st.lists(st.sampled_from(vertices), min_size=1, max_size=3, unique_by=lambda v: str(v["name"]))
        )
        inputs = [vertex["name"] for vertex in chosen]
        kind = draw(st.sampled_from(["aggregate", "plain", "python"]))
        vertex: dict[str, Any] = {
            "name": name,
            "inputs": [_edge(draw, producer, batch) for producer in inputs],
        }
        vertex.update({"python": "m:f"} if kind == "python" else {"sql": _sql(kind, inputs)})
        if set(inputs) <= static:
            static.add(name)
        elif draw(st.booleans()):
            vertex["stateful"] = draw(st.booleans())
        vertices.append(vertex)
    # One vertex that reads every result not used yet, so that each leads to a sink.
    used = {
        edge if isinstance(edge, str) else edge["vertex"] for v in vertices for edge in v.get("inputs", [])
    }
    loose = [v["name"] for v in vertices if v["name"] not in used or v["name"] == names[0]]
    vertices.append({"name": names[-1], "inputs": loose, "sql": _sql("plain", loose)})
    for vertex in vertices:
        lower, upper, maximum = sorted(draw(st.lists(st.integers(1, 40), min_size=3, max_size=3)))
        vertex.update(
            draw(
                st.sampled_from(
                    [{}, {"parallelism": upper, "lowerBound": lower}, {"maxParallelism": maximum}]
                )
            )
        )
    mode = "append" if batch else draw(st.sampled_from(["append", "update"]))
    sinks: list[dict[str, Any]] = [
        {"format": "noop"},
        {"format": "json", "path": "/out", "options": draw(_json_options), "outputMode": "append"},
        {"format": "sqlite", "path": "/x.db", "options": {"table": "t", "mode": "upsert", "keys": "k"}},
        {"python": "m:f"},
    ]
    sink = {"outputMode": mode, **draw(st.sampled_from(sinks))}
    group = {} if batch else {"slotSharingGroup": draw(_text)}
    vertices.append({"name": "the sink", "inputs": [names[-1]], "sink": sink, **group})
    order = draw(st.permutations(vertices))
    config = {"spark.x": draw(_text), "slot.idle.timeout": "5 s"}
    return {**document(*order, artifacts=["m.py"], config=config), "type": "BATCH" if batch else "STREAMING"}


def _edge(draw: st.DrawFn, producer: str, batch: bool) -> str | dict[str, Any]:
    plain: list[str | dict[str, Any]] = [
        producer,
        {"vertex": producer},
        {"vertex": producer, "keys": ["k"]},
        {"vertex": producer, "partitioner": Partitioner.BROADCAST.value},
        {"vertex": producer, "partitioner": Partitioner.HASH.value, "keys": ["k", "n"]},
        {"vertex": producer, "exchange": "BLOCKING" if batch else "PIPELINED"},
    ]
    return draw(st.sampled_from(plain))


@given(documents())
def test_the_resolved_document_means_the_same_graph(value: dict[str, Any]) -> None:
    graph = parse_document(value)
    resolved = to_document(graph)
    assert parse_document(resolved) == graph
    assert to_document(parse_document(resolved)) == resolved
    assert parse_document(decode_json_strict(json.dumps(resolved).encode())) == graph


def test_a_graph_survives_yaml() -> None:
    graph = parse_document(document(config={"spark.x": "no", "slot.idle.timeout": "5 s", "spark.a": "010"}))
    text = yaml.safe_dump(to_document(graph), sort_keys=False)
    assert parse_document(decode_yaml_strict(text.encode())) == graph


@given(documents())
def test_vertices_come_after_their_inputs(value: dict[str, Any]) -> None:
    graph = parse_document(value)
    assert {v.name for v in graph.vertices} == {v["name"] for v in value["vertices"]}
    seen: set[str] = set()
    for vertex in graph.vertices:
        assert all(edge.vertex_id in seen for edge in vertex.inputs)
        assert 1 <= vertex.lower_bound <= vertex.parallelism <= vertex.max_parallelism <= 32768
        seen.add(vertex.id)


def test_every_default_is_written_out_but_what_spark_says() -> None:
    assert to_document(parse_document(document())) == {
        "name": "job",
        "type": "STREAMING",
        "artifacts": [],
        "config": {},
        "vertices": [
            {
                "name": "flights",
                "source": {"format": "rate", "options": {}, "static": False},
                "parallelism": 1,
                "lowerBound": 1,
                "maxParallelism": 128,
                "stateful": False,
                "slotSharingGroup": "default",
            },
            {
                "name": "counts",
                "sql": "SELECT value % 10 AS k, count(*) AS n FROM flights GROUP BY value % 10",
                "inputs": [{"vertex": "flights", "partitioner": "FORWARD", "exchange": "PIPELINED"}],
                "parallelism": 1,
                "lowerBound": 1,
                "slotSharingGroup": "default",
            },
            {
                "name": "store",
                "sink": {"format": "noop", "outputMode": "update", "options": {}},
                "inputs": [{"vertex": "counts", "partitioner": "FORWARD", "exchange": "PIPELINED"}],
                "parallelism": 1,
                "lowerBound": 1,
                "maxParallelism": 128,
                "stateful": False,
                "slotSharingGroup": "default",
            },
        ],
    }


def test_the_document_of_the_rest_contract() -> None:
    value = decode_yaml_strict(
        b"""
        name: flight-delays
        type: STREAMING
        artifacts: [flight_delays.py]
        config: {spark.sql.session.timeZone: UTC}
        vertices:
          - name: flights
            source: {format: csv, path: /in/, schema: "carrier STRING", options: {maxFilesPerTrigger: 4}}
            parallelism: 2
          - name: delays
            inputs: [flights]
            sql: SELECT carrier, count(*) AS n, avg(dep_delay) AS delay FROM flights GROUP BY carrier
            maxParallelism: 12
          - name: enrich
            inputs: [delays]
            python: flight_delays:enrich
          - name: store
            inputs: [enrich]
            sink: {format: sqlite, path: /out.db, outputMode: update, options: {table: t, mode: upsert, keys: carrier}}
            slotSharingGroup: sinks
        """
    )
    graph = parse_document(value)
    assert [v.is_assumed for v in graph.vertices] == [False, True, True, False]
    assert [name for name, _ in graph.groups] == ["default", "sinks"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_is_sound_and_its_artifacts_are_there(path: Path) -> None:
    graph = parse_document(read_graph(path))
    assert all((path.parent / name).is_file() for name in graph.artifacts)
    assert decode_yaml_strict(path.read_bytes())["name"] == graph.name


def test_the_page_shows_the_examples_as_they_are() -> None:
    page = (ROOT / "docs/job-graph.md").read_text()
    shown = dict(re.findall(r"\[`(examples/[\w./-]+\.yaml)`\][^\n]*\n+```yaml\n(.*?)```", page, re.DOTALL))
    assert len(shown) >= 3
    for name, text in shown.items():
        assert (ROOT / name).read_text() == text, name
