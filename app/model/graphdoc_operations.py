"""The rules of sources, sinks and Python functions: fields of one operation that do not go together, or not with the
type of the job or with the other operations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from app.model.formats import FILE_FORMATS, rate_option_faults
from app.model.graphdoc_build import RawVertex
from app.model.grapherrors import Errors, below
from app.model.jobgraph import JobType, Operation, OutputMode, PythonSpec, SinkSpec, SourceSpec
from app.model.locations import plain_location
from app.model.sentences import hint, shown
from app.model.sink_formats import (
    BATCH_SINKS,
    BATCH_TABLE,
    OWN_SINKS,
    TABLE_SINKS,
    TAKEN_OPTIONS,
    file_option_faults,
)

WRITE_MODES: Final = ("append", "upsert")
_ARCHIVES = (".zip", ".whl")
Faults = Iterator[tuple[str, str]]
"""Places within an operation, each with a sentence without its beginning."""


def check_operations(
    errors: Errors, vertices: Sequence[RawVertex], artifacts: Collection[str], job_type: JobType
) -> None:
    for vertex in vertices:
        for place, sentence in _faults(vertex.operation, artifacts, job_type):
            errors.add(f"{vertex.place}.{place}", sentence)
    _check_paths(errors, vertices)


def _faults(operation: Operation, artifacts: Collection[str], job_type: JobType) -> Faults:
    python: object = operation
    if isinstance(operation, SourceSpec):
        yield from _below("source", _source_faults(operation, job_type))
    elif isinstance(operation, SinkSpec):
        yield from _below("sink", _sink_faults(operation, job_type))
        python = operation.python
    if isinstance(python, PythonSpec) and (sentence := missing_module(python, artifacts)) is not None:
        yield "python" if python is operation else "sink.python", sentence


def _below(field: str, faults: Iterable[tuple[str, str]]) -> Faults:
    for place, sentence in faults:
        yield f"{field}.{place}", sentence


def _of_options(faults: Iterable[tuple[str, str]]) -> Faults:
    for key, sentence in faults:
        yield below("options", key), sentence


def _source_faults(source: SourceSpec, job_type: JobType) -> Faults:
    if source.format in FILE_FORMATS and source.path is None:
        yield "path", f"is missing: format {source.format} needs an absolute path."
    if source.format == "rate":
        yield from _of_options(rate_option_faults(dict(source.options)))
        for field, value in (("path", source.path), ("schema", source.schema)):
            if value is not None:
                yield field, "is not a field of format rate: it makes its rows itself."
        if job_type is JobType.BATCH:
            yield "format", "rate never ends: a BATCH job takes sources that end, such as files."


def _sink_faults(sink: SinkSpec, job_type: JobType) -> Faults:
    name, options, is_batch = sink.format, dict(sink.options), job_type is JobType.BATCH
    if is_batch and sink.output_mode is not OutputMode.APPEND:
        mode = sink.output_mode.value
        yield "outputMode", f"{mode} is for STREAMING jobs: a BATCH job writes its result once."
    if name == "python" and sink.python is None:
        yield "python", "is missing: module:function is expected."
    if name != "python" and sink.python is not None:
        yield "python", f"cannot be combined with format {name}: give one of them."
    yield from _sink_path_faults(sink, job_type)
    if is_batch and name not in BATCH_SINKS:
        allowed = ", ".join(BATCH_SINKS)
        yield "format", f"{name} is for STREAMING jobs: the sink of a BATCH job is one of {allowed}."
    elif name not in OWN_SINKS:
        is_file = is_batch and name != "noop"
        yield from _of_options(
            file_option_faults(name, options) if is_file else _option_faults(sink, options)
        )
    elif OWN_SINKS[name].options:
        yield from _of_options(_database_faults(name, options))
    elif options:
        yield "options", f"are not allowed: a {name} sink has none."


def _sink_path_faults(sink: SinkSpec, job_type: JobType) -> Faults:
    name, own, path = sink.format, OWN_SINKS.get(sink.format), sink.path
    if (own is not None and not own.has_path) or name == "noop":
        if path is not None:
            yield "path", f"is not a field of a sink of format {name}."
    elif path is None:
        if own is not None or name in FILE_FORMATS:
            yield "path", f"is missing: format {name} needs an absolute path."
    elif is_mounted(name, job_type) and not path.startswith("/"):
        yield "path", f"should be an absolute path on a mounted file system, found {shown(path)}."


def is_mounted(sink_format: str, job_type: JobType) -> bool:
    """Whether sinks of a format write on a mounted file system, and to no URL."""
    return sink_format in OWN_SINKS or job_type is JobType.BATCH


def _option_faults(sink: SinkSpec, options: Mapping[str, str]) -> Faults:
    """Of a sink that is none of our own."""
    name = sink.format
    for key in options:
        if sink.path is not None and key == "table" and name.lower() in TABLE_SINKS:
            yield key, f"and path exclude each other: one of them says where a sink of format {name} writes."
        elif name == "noop":
            yield key, "is not an option of sinks of format noop, which have none."
        elif key.lower() in TAKEN_OPTIONS:
            yield key, f"is not an option of sinks of format {name}: {TAKEN_OPTIONS[key.lower()]}."


def _database_faults(name: str, options: Mapping[str, str]) -> Faults:
    allowed = OWN_SINKS[name].options
    for key in options:
        if key not in allowed:
            near = f"{hint(key, allowed)} Allowed are {', '.join(allowed)}."
            yield key, f"is not an option of a {name} sink.{near}"
    for key in ("url", "table"):
        if key in allowed and not options.get(key, "").strip():
            yield key, f"is missing: a {name} sink needs it."
    if options.get("table", "").rpartition(".")[2].lower() == BATCH_TABLE:
        yield "table", f"must not be {BATCH_TABLE}, which records the batches."
    mode = options.get("mode", "append")
    if mode not in WRITE_MODES:
        yield "mode", f"should be append or upsert, found {shown(mode)}.{hint(mode, WRITE_MODES)}"
    keys = [key.strip() for key in options.get("keys", "").split(",")]
    if mode == "upsert" and "keys" not in options:
        yield "keys", "is missing: upsert needs the key columns, separated by commas."
    elif mode == "append" and "keys" in options:
        yield "keys", "is for mode upsert; the mode is append."
    elif "keys" in options and (not all(keys) or len(set(keys)) != len(keys)):
        found = shown(options["keys"])
        yield "keys", f"should be column names separated by commas, each once, found {found}."


def _check_paths(errors: Errors, vertices: Sequence[RawVertex]) -> None:
    """No sink writes where a source reads: a STREAMING job would read its own rows for ever, a BATCH job some. Two
    queries do not write into one folder, if Spark keeps the log of one there."""
    read: dict[str | None, RawVertex] = {}
    written: dict[str | None, RawVertex] = {}
    for vertex in vertices:
        if isinstance(vertex.operation, SourceSpec) and vertex.operation.path:
            read.setdefault(plain_location(vertex.operation.path), vertex)
    for vertex in vertices:
        if not isinstance(vertex.operation, SinkSpec) or not (path := vertex.operation.path):
            continue
        if (source := read.get(plain_location(path))) is not None:
            errors.add(
                f"{vertex.place}.sink.path",
                f"{shown(path)} is what {source.place}.source reads: the job would read what it writes.",
            )
        if vertex.operation.format in FILE_FORMATS:
            other = written.setdefault(plain_location(path), vertex)
            if other is not vertex:
                errors.add(
                    f"{vertex.place}.sink.path",
                    f"{shown(path)} is where {other.place}.sink writes: Spark's log in a folder is that of one query, "
                    "so give each sink a folder of its own.",
                )


def missing_module(python: PythonSpec, artifacts: Collection[str]) -> str | None:
    """The sentence that says that the module of ``python`` can be in none of the artifacts; None if it can."""
    module = python.module
    if f"{module}.py" in artifacts or any(name.lower().endswith(_ARCHIVES) for name in artifacts):
        return None
    near = hint(f"{module}.py", [name for name in artifacts if name.endswith(".py")])
    wanted = (
        "a .zip or .whl that holds it" if "." in module else f"{module}.py, or a .zip or .whl that holds it"
    )
    return f"the module {module} is in none of the artifacts: list {wanted}, under artifacts.{near}"
