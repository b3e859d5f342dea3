"""What Spark has noted of state: its schemas, and which operator has which number."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.driver.program.origin import _differences, _in_order_of_spark, read_schemas
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex


def struct(**fields: str) -> str:
    listed = ",".join(
        f'{{"name":"{name}","type":"{kind}","nullable":true,"metadata":{{}}}}'
        for name, kind in fields.items()
    )
    return f'{{"type":"struct","fields":[{listed}]}}'


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def in_parts(value: str, size: int = 40) -> bytes:
    parts = [value[at : at + size] for at in range(0, len(value), size)]
    return len(parts).to_bytes(4, "big") + b"".join(map(text, parts))


def note(state: Path, operator: str, content: bytes) -> Path:
    file = state / operator / "0" / "_metadata" / "schema"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return file


def test_both_forms_of_a_schema_are_read(tmp_path: Path) -> None:
    key, value = struct(key="long"), struct(count="long", most="string")
    for form, content in (
        ("v1", text("v1") + text(key) + text(value)),
        ("v2", text("v2") + in_parts(key) + in_parts(value)),
    ):
        found = read_schemas(note(tmp_path / form, "0", content))
        assert [each.simpleString() for each in found] == [
            "struct<key:bigint>",
            "struct<count:bigint,most:string>",
        ]
    with pytest.raises(ValueError, match="has the form v3"):
        read_schemas(note(tmp_path / "v3", "0", text("v3")))


def vertex(name: str, *inputs: str, stateful: bool = True) -> PlannedVertex:
    return PlannedVertex(name, Role.OPERATOR, "Aggregate", inputs, stateful)


def test_operators_are_counted_from_the_sink_on() -> None:
    plan = (
        vertex("source", stateful=False),
        vertex("left", "source"),
        vertex("right", "source"),
        vertex("join", "left", "right"),
        vertex("store", "join", stateful=False),
    )
    assert _in_order_of_spark(plan) == ["join", "left", "right"]


def test_differences_name_the_operator_and_the_field(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for state, key in ((old, "long"), (new, "string")):
        note(state, "0", text("v2") + in_parts(struct(k="long")) + in_parts(struct(n="long")))
        note(state, "1", text("v2") + in_parts(struct(id=key)) + in_parts(struct()))
    plan = (vertex("first"), vertex("second", "first"), vertex("store", "second", stateful=False))
    assert _differences(old, new, plan) == [
        "the key of 'first' has field 1, id, as string now, and had it as bigint"
    ]
