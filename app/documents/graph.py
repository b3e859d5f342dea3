"""The form of job graph documents, and the job graph that one describes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from app.documents.fields import JobForm, check_origin
from app.documents.form import (
    LISTED_ONCE,
    Expected,
    Flag,
    Form,
    Given,
    Key,
    Name,
    Setting,
    Tasks,
    Text,
    checked_by,
    fault_at,
    read_form,
    written_as,
)
from app.model.formats import FILE_FORMATS
from app.model.graphdoc import MAX_VERTICES
from app.model.graphdoc_build import RawInput, RawVertex, vertices_of
from app.model.graphdoc_operations import check_operations, is_mounted
from app.model.graphdoc_settings import check_archive, check_config, check_size
from app.model.grapherrors import Errors
from app.model.jobgraph import (
    DEFAULT_BATCH_PARALLELISM,
    DEFAULT_SLOT_SHARING_GROUP,
    Exchange,
    JobGraph,
    JobType,
    Operation,
    OutputMode,
    Partitioner,
    PythonSpec,
    SinkSpec,
    SourceSpec,
    SqlSpec,
)
from app.model.locations import plain_location
from app.model.sentences import hint, shown
from app.model.sink_formats import OWN_SINKS

MAX_INPUTS: Final = 50
MAX_KEYS: Final = 100
MAX_OPTIONS: Final = 100

# Spark does not mind how a format is spelled.
_KNOWN_FORMATS: Final = (*FILE_FORMATS, *OWN_SINKS, "noop", "rate")
_SINK_FORMAT: Final = f"{', '.join(OWN_SINKS)} or the name of a format of Spark's, such as parquet"
_SIMILAR: Final = 0.75
_FORMAT = re.compile(r"[A-Za-z][A-Za-z0-9_.$-]{0,199}\Z")
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)


def _sink_format_fault(name: str) -> str | None:
    near = difflib.get_close_matches(name[:80].lower(), OWN_SINKS, n=1, cutoff=_SIMILAR)
    if _FORMAT.match(name) and near in ([], [name.lower()]):
        return None
    return f"should be {_SINK_FORMAT}, found {shown(name)}.{hint(name, OWN_SINKS)}"


def _path_fault(path: str) -> str | None:
    if plain_location(path) is not None:
        return None
    if path.startswith("/"):
        return f"should be an absolute path on a mounted file system, found {shown(path)}."
    return (
        f"{shown(path)} is relative: an absolute path is expected. (slotwise submit makes paths absolute, seen from "
        "the graph file's folder.)"
    )


_Path = Annotated[Text, checked_by(_path_fault), Expected("an absolute path", 4096)]
_Entry = Annotated[
    Text,
    written_as(_ENTRY.match, "module:function, such as 'routes:with_airline'"),
    Expected("module:function", 500),
]
_Options = Annotated[dict[Key, Setting], Expected("a mapping of options", MAX_OPTIONS)]
_SourceFormat = Annotated[
    Text, written_as(_FORMAT.match, "the name of a format"), Expected("csv, rate or another format")
]
_SinkFormat = Annotated[Text, checked_by(_sink_format_fault), Expected(_SINK_FORMAT)]


def _spelled(name: str) -> str:
    return name.lower() if name.lower() in _KNOWN_FORMATS else name


class SourceForm(Form):
    """Where rows come from."""

    what = "a source"
    format: _SourceFormat = Field(
        description=f"rate, {', '.join(FILE_FORMATS)}, kafka, or another source of Spark's by its name."
    )
    path: Given[_Path] = None
    ddl: Given[Annotated[Text, Expected("a schema such as 'carrier STRING, delay INT'")]] = Field(
        None, alias="schema", description="Column names and types, as in Spark's DDL."
    )
    options: _Options = Field({})
    static: Flag = Field(False, description="A side table, read whole.")

    @model_validator(mode="after")
    def _is_a_file_if_static(self) -> Self:
        if self.static and _spelled(self.format) not in FILE_FORMATS:
            formats = ", ".join(FILE_FORMATS)
            raise fault_at("static", f"is for the formats {formats} only, found format {shown(self.format)}.")
        return self

    @property
    def spec(self) -> SourceSpec:
        options = tuple(self.options.items())
        return SourceSpec(_spelled(self.format), self.path, self.ddl, options, self.static)


class SinkForm(Form):
    """Where rows go."""

    what = "a sink"
    format: Given[_SinkFormat] = Field(
        None, description=f"{', '.join(OWN_SINKS)}, or a sink of Spark's by its name, such as parquet."
    )
    path: Given[_Path] = None
    output_mode: OutputMode = OutputMode.APPEND
    options: _Options = Field({})
    python: Given[_Entry] = Field(None, description="module:function, for the format python.")

    @model_validator(mode="after")
    def _has_a_format(self) -> Self:
        if self.format is None and self.python is None:
            raise fault_at("format", f"is missing: {_SINK_FORMAT} is expected.")
        return self

    def spec(self, job_type: JobType) -> SinkSpec:
        name, path = _spelled(self.format or "python"), self.path
        if path is not None and is_mounted(name, job_type):
            plain = plain_location(path)
            path = plain if plain and plain.startswith("/") and not path.startswith("/") else path
        python = None if self.python is None else PythonSpec(self.python)
        return SinkSpec(name, path, self.output_mode, tuple(self.options.items()), python)


_Column = Annotated[Text, Expected("a column name")]


class InputForm(Form):
    """How the rows of an input are spread over the tasks."""

    what = "an input"
    vertex: Annotated[Text, Expected("the name of a vertex")]
    partitioner: Given[Partitioner] = None
    keys: Annotated[
        tuple[_Column, ...],
        Expected("a list of column names", MAX_KEYS, empty="leave it out, or list column names"),
        LISTED_ONCE,
    ] = ()
    exchange: Exchange = Exchange.PIPELINED

    @model_validator(mode="after")
    def _keys_are_for_hash(self) -> Self:
        if self.keys and self.partitioner not in (None, Partitioner.HASH):
            raise fault_at(
                "keys", f"are for the partitioner HASH only, found partitioner {self.partitioner}."
            )
        return self

    def raw(self, place: str) -> RawInput:
        partitioner = Partitioner.HASH if self.keys else self.partitioner
        return RawInput(place, self.vertex, partitioner, self.keys, self.exchange)


_Input = Annotated[
    InputForm,
    BeforeValidator(
        lambda value: {"vertex": value} if isinstance(value, str) else value,
        json_schema_input_type=str | InputForm,
    ),
    Expected("the name of a vertex or a mapping with vertex, partitioner, keys, exchange"),
]


class VertexForm(Form):
    """Exactly one of source, sql, python and sink."""

    what = "a vertex"
    one_of = ("source", "sql", "python", "sink")
    name: Name
    source: Given[SourceForm] = None
    sql: Given[Annotated[Text, Expected("a SQL text")]] = Field(
        None, description="A query that reads its inputs by their names."
    )
    python: Given[_Entry] = Field(None, description="module:function in one of the artifacts.")
    sink: Given[SinkForm] = None
    inputs: Annotated[tuple[_Input, ...], Expected("a list of inputs", MAX_INPUTS)] = ()
    parallelism: Given[Tasks] = Field(None, description="The initial upper bound.")
    lower_bound: Tasks = Field(1, description="The initial lower bound.")
    max_parallelism: Given[Tasks] = Field(None, description="For a stateful vertex: its state partitions.")
    stateful: Given[Flag] = Field(None, description="Without meaning: Spark says what keeps state.")
    slot_sharing_group: Name = DEFAULT_SLOT_SHARING_GROUP

    def raw(self, index: int, job_type: JobType) -> RawVertex:
        upper = self.parallelism or 1
        if self.parallelism is None and job_type is JobType.BATCH:
            # A BATCH job decides for itself, so the default leaves room; see docs/batch.md.
            upper = min(DEFAULT_BATCH_PARALLELISM, self.max_parallelism or DEFAULT_BATCH_PARALLELISM)
        return RawVertex(
            index,
            self.name,
            self._operation(job_type),
            tuple(each.raw(f"vertices[{index}].inputs[{at}]") for at, each in enumerate(self.inputs)),
            upper,
            self.lower_bound,
            self.max_parallelism,
            slot_sharing_group=self.slot_sharing_group,
        )

    def _operation(self, job_type: JobType) -> Operation:
        if self.source is not None:
            return self.source.spec
        if self.sink is not None:
            return self.sink.spec(job_type)
        return SqlSpec(self.sql) if self.sql is not None else PythonSpec(self.python or "")


class GraphForm(JobForm):
    """A job graph document."""

    what = "a job graph"
    example: ClassVar[Mapping[str, Any] | None] = {
        "name": "counts-by-key",
        "type": "STREAMING",
        "vertices": [
            {"name": "numbers", "source": {"format": "rate", "options": {"rowsPerSecond": "100"}}},
            {
                "name": "counts",
                "inputs": ["numbers"],
                "sql": "SELECT value % 10 AS k, count(*) AS n FROM numbers GROUP BY value % 10",
                "parallelism": 4,
            },
            {"name": "store", "inputs": ["counts"], "sink": {"format": "noop", "outputMode": "update"}},
        ],
    }
    vertices: Annotated[
        tuple[VertexForm, ...],
        Expected("a list of vertices", MAX_VERTICES, empty="at least a source and a sink are expected"),
    ]


def parse_document(document: object) -> JobGraph:
    """The job graph that ``document`` (as decoded from JSON or YAML) describes, in topological order. What does not fit
    the form is found first, and rules between fields and vertices if all of it fits.

    Raises:
        GraphErrors: with all errors, each with its place and a sentence.
    """
    form, errors = read_form(GraphForm, document), Errors()
    artifacts, config, runtime = form.artifacts, tuple(form.config.items()), form.runtime
    raw = [vertex.raw(index, form.type) for index, vertex in enumerate(form.vertices)]
    if form.type is JobType.BATCH:
        for field in sorted(form.model_fields_set & {"environment", "packages"}):
            # Regions of a BATCH job rest on one version of Spark's plans and on pyarrow.
            errors.add(
                field,
                "is for STREAMING graphs and for programs: a BATCH graph runs in the environment of the server.",
            )
    check_origin(errors, form)
    check_archive(errors, runtime, artifacts)
    check_config(errors, config, form.type)
    check_operations(errors, raw, artifacts, form.type)
    options = [each.operation.options for each in raw if isinstance(each.operation, SourceSpec | SinkSpec)]
    check_size(errors, [config, *options], runtime)
    vertices = vertices_of(errors, form.name, form.type, raw)
    return JobGraph(
        form.name, form.type, vertices, artifacts, config, runtime=runtime, origin=form.goes_on_from
    )
