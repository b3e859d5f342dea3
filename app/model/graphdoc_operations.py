"""Reading the operation of a vertex from its document: a source, a SQL text, a Python function, a sink."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from typing import Final

from app.model.formats import FILE_FORMATS, rate_option_faults
from app.model.graphdoc_fields import Fields
from app.model.jobgraph import (
    JobType,
    Operation,
    OutputMode,
    PlannedSpec,
    PythonSpec,
    Role,
    SinkSpec,
    SourceSpec,
    SqlSpec,
)
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
from app.model.sqltext import SqlTextError, check_query, tokens_of

WRITE_MODES: Final = ("append", "upsert")
MAX_OPTIONS: Final = 100

# Spark does not mind how a format is spelled.
_KNOWN_SOURCES: Final = (*FILE_FORMATS, "rate")
_KNOWN_SINKS: Final = (*FILE_FORMATS, *OWN_SINKS, "noop")
_SIMILAR: Final = 0.75

_FORMAT = re.compile(r"[A-Za-z][A-Za-z0-9_.$-]{0,199}\Z")
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)
_ARCHIVES = (".zip", ".whl")


def read_source(fields: Fields, job_type: JobType) -> SourceSpec | None:
    """The ``source`` of a vertex; None if something of it is wrong."""
    known = fields.errors.count
    source = _inner(fields, "source", ("format", "path", "schema", "options", "static"), "a source")
    if source is None:
        return None
    name = (
        source.text("format", "a format") if source.present("format", "csv, rate or another format") else None
    )
    static = source.boolean("static") or False
    schema = source.text("schema", "a schema such as 'carrier STRING, delay INT'")
    options = source.texts("options", "a mapping of options", MAX_OPTIONS)
    if name is None:
        _path(source, needed=False)
        return None
    if not _FORMAT.match(name):
        source.wrong("format", f"should be the name of a format, found {shown(name)}.")
        return None
    name = name.lower() if name.lower() in _KNOWN_SOURCES else name
    is_files = name in FILE_FORMATS
    path = _path(source, needed=is_files)
    if static and not is_files:
        source.wrong(
            "static", f"is for the formats {', '.join(FILE_FORMATS)} only, found format {shown(name)}."
        )
    if name == "rate":
        _check_rate(source, dict(options), job_type)
    if fields.errors.count > known:
        return None
    return SourceSpec(name, path, schema, options, static)


def _check_rate(source: Fields, options: dict[str, str], job_type: JobType) -> None:
    for key, sentence in () if source.errors.stored else rate_option_faults(options):
        source.wrong_option(key, sentence)
    for field in ("path", "schema"):
        if field in source:
            source.wrong(field, "is not a field of format rate: it makes its rows itself.")
    if job_type is JobType.BATCH:
        source.wrong("format", "rate never ends: a BATCH job takes sources that end, such as files.")


def read_sink(fields: Fields, job_type: JobType) -> SinkSpec | None:
    """The ``sink`` of a vertex; None if something of it is wrong."""
    known = fields.errors.count
    sink = _inner(fields, "sink", ("format", "path", "outputMode", "options", "python"), "a sink")
    if sink is None:
        return None
    mode = sink.choice("outputMode", OutputMode) or OutputMode.APPEND
    if job_type is JobType.BATCH and mode is not OutputMode.APPEND:
        sink.wrong("outputMode", f"{mode.value} is for STREAMING jobs: a BATCH job writes its result once.")
    options = sink.texts("options", "a mapping of options", MAX_OPTIONS)
    name = _sink_format(sink)
    if name is None:
        _path(sink, needed=False)
        return None
    python = read_entry(sink, "python") if "python" in sink else None
    path = _sink_path(sink, name, job_type)
    if job_type is JobType.BATCH and name not in BATCH_SINKS:
        allowed = ", ".join(BATCH_SINKS)
        sink.wrong("format", f"{name} is for STREAMING jobs: the sink of a BATCH job is one of {allowed}.")
    elif name not in OWN_SINKS:
        if not fields.errors.stored:
            for key, sentence in _sink_faults(name, dict(options), job_type, has_path="path" in sink):
                sink.wrong_option(key, sentence)
    elif OWN_SINKS[name].options:
        _database(sink, name, options)
    elif options:
        sink.wrong("options", f"are not allowed: a {name} sink has none.")
    if fields.errors.count > known:
        return None
    return SinkSpec(name, path, mode, options, python)


def _sink_faults(
    name: str, options: dict[str, str], job_type: JobType, *, has_path: bool
) -> Iterator[tuple[str, str]]:
    """The options of a sink that is none of our own that are wrong, each with a sentence without its beginning."""
    if job_type is JobType.BATCH and name != "noop":
        yield from file_option_faults(name, options)
        return
    for key in options:
        if has_path and key == "table" and name.lower() in TABLE_SINKS:
            yield key, f"and path exclude each other: one of them says where a sink of format {name} writes."
        elif name == "noop":
            yield key, "is not an option of sinks of format noop, which have none."
        elif key.lower() in TAKEN_OPTIONS:
            yield key, f"is not an option of sinks of format {name}: {TAKEN_OPTIONS[key.lower()]}."


def _sink_path(sink: Fields, name: str, job_type: JobType) -> str | None:
    own = OWN_SINKS.get(name)
    if (own is not None and not own.has_path) or name == "noop":
        if "path" in sink:
            sink.wrong("path", f"is not a field of a sink of format {name}.")
        return None
    return _path(
        sink,
        needed=own is not None or name in FILE_FORMATS,
        local=own is not None or job_type is JobType.BATCH,
    )


def _sink_format(sink: Fields) -> str | None:
    if "format" not in sink and "python" in sink:
        return "python"
    expected = f"{', '.join(OWN_SINKS)} or the name of a format of Spark's, such as parquet"
    if (name := sink.needed("format", expected)) is None:
        return None
    near = difflib.get_close_matches(name[:80].lower(), OWN_SINKS, n=1, cutoff=_SIMILAR)
    if not _FORMAT.match(name) or (near and near[0] != name.lower()):
        sink.wrong("format", f"should be {expected}, found {shown(name)}.{hint(name, OWN_SINKS)}")
        return None
    name = name.lower() if name.lower() in _KNOWN_SINKS else name
    if name == "python" and "python" not in sink:
        sink.wrong("python", "is missing: module:function is expected.")
    if name != "python" and "python" in sink:
        sink.wrong("python", f"cannot be combined with format {name}: give one of them.")
    return name


def _database(sink: Fields, name: str, options: tuple[tuple[str, str], ...]) -> None:
    allowed = OWN_SINKS[name].options
    values = dict(options)
    for key in values:
        if key not in allowed:
            sink.wrong_option(
                key,
                f"is not an option of a {name} sink.{hint(key, allowed)} Allowed are {', '.join(allowed)}.",
            )
    for key in ("url", "table"):
        if key in allowed and not values.get(key, "").strip():
            sink.wrong_option(key, f"is missing: a {name} sink needs it.")
    if values.get("table", "").rpartition(".")[2].lower() == BATCH_TABLE:
        sink.wrong_option("table", f"must not be {BATCH_TABLE}, which records the batches.")
    mode = values.get("mode", "append")
    if mode not in WRITE_MODES:
        sink.wrong_option(
            "mode", f"should be append or upsert, found {shown(mode)}.{hint(mode, WRITE_MODES)}"
        )
    keys = [key.strip() for key in values.get("keys", "").split(",")]
    if mode == "upsert" and "keys" not in values:
        sink.wrong_option("keys", "is missing: upsert needs the key columns, separated by commas.")
    elif mode == "append" and "keys" in values:
        sink.wrong_option("keys", "is for mode upsert; the mode is append.")
    elif "keys" in values and (not all(keys) or len(set(keys)) != len(keys)):
        sink.wrong_option(
            "keys", f"should be column names separated by commas, each once, found {shown(values['keys'])}."
        )


def read_sql(fields: Fields) -> SqlSpec | None:
    """The ``sql`` of a vertex: one query that reads; None if it is not."""
    text = fields.text("sql", "a SQL text")
    if text is None:
        return None
    try:
        check_query(tokens_of(text))
    except SqlTextError as error:
        fields.wrong("sql", str(error))
        return None
    return SqlSpec(text)


def read_planned(fields: Fields) -> PlannedSpec | None:
    """The ``planned`` of a vertex of a program."""
    planned = _inner(
        fields, "planned", ("role", "operator", "checkpoint", "path", "fixed"), "a planned vertex"
    )
    if planned is None:
        return None
    planned.present("role", "a text")
    role, operator = planned.choice("role", Role), planned.name("operator", needed=True)
    others = {
        name: planned.text(name, "a text") for name in ("checkpoint", "path", "fixed") if name in planned
    }
    return PlannedSpec(role, operator, **others) if role is not None and operator is not None else None


def read_entry(fields: Fields, name: str) -> PythonSpec | None:
    """A field that names a Python function, such as the ``python`` of a vertex."""
    text = fields.text(name, "module:function", longest=500)
    if text is None:
        return None
    if not _ENTRY.match(text):
        fields.wrong(name, f"should be module:function, such as 'routes:with_airline', found {shown(text)}.")
        return None
    return PythonSpec(text)


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


def python_of(operation: Operation | None) -> PythonSpec | None:
    """The Python function that an operation calls, if it does."""
    if isinstance(operation, PythonSpec):
        return operation
    return operation.python if isinstance(operation, SinkSpec) else None


def _inner(fields: Fields, name: str, allowed: tuple[str, ...], what: str) -> Fields | None:
    value = fields.mapping(name, f"a mapping with {', '.join(allowed)}")
    return None if value is None else Fields(fields.errors, fields.at(name), value, allowed, what)


def _path(fields: Fields, *, needed: bool, local: bool = False) -> str | None:
    """The field ``path``, as Spark is given it. ``local``: it must be on a mounted file system, so no URL but `file:`
    will do, and that is left out."""
    if "path" not in fields:
        if needed:
            fields.wrong("path", f"is missing: format {fields.raw('format')} needs an absolute path.")
        return None
    path = fields.text("path", "an absolute path", longest=4096)
    if path is None:
        return None
    plain = plain_location(path)
    if plain is not None and (plain.startswith("/") or not local):
        return plain if local and not path.startswith("/") else path
    if path.startswith("/") and fields.errors.stored:
        # An earlier version took one with two slashes in front.
        return path
    if plain is not None or path.startswith("/"):
        fields.wrong("path", f"should be an absolute path on a mounted file system, found {shown(path)}.")
    else:
        fields.wrong(
            "path",
            f"{shown(path)} is relative: an absolute path is expected. (slotwise submit makes paths absolute, seen "
            "from the graph file's folder.)",
        )
    return None
