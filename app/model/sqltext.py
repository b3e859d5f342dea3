"""Analysis of a SQL text without Spark: the names that it mentions, and whether it keeps state over a stream.

It reads tokens and is not a parser: Spark checks the text when the job starts. In doubt a vertex counts as
stateful: a wrong "stateful" costs state partitions, a wrong "stateless" gives wrong results.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_NESTING: Final = 100

# fmt: off
AGGREGATES: Final = frozenset(
    {
        "any", "any_value", "approx_count_distinct", "approx_percentile", "approx_top_k",
        "approx_top_k_accumulate", "approx_top_k_combine", "array_agg", "avg", "bit_and", "bit_or",
        "bit_xor", "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or",
        "collect_list", "collect_set", "collect_union", "corr", "count", "count_if", "count_min_sketch",
        "covar_pop", "covar_samp", "every", "first", "first_value", "grouping", "grouping_id",
        "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "kll_merge_agg_bigint",
        "kll_merge_agg_double", "kll_merge_agg_float", "kll_sketch_agg_bigint", "kll_sketch_agg_double",
        "kll_sketch_agg_float", "kurtosis", "last", "last_value", "listagg", "max", "max_by", "mean",
        "measure", "median", "min", "min_by", "mode", "percentile", "percentile_approx", "percentile_cont",
        "percentile_disc", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2",
        "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "schema_of_variant_agg", "skewness", "some",
        "std", "stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "theta_intersection_agg",
        "theta_sketch_agg", "theta_union_agg", "try_avg", "try_sum", "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer", "tuple_sketch_agg_double", "tuple_sketch_agg_integer",
        "tuple_union_agg_double", "tuple_union_agg_integer", "var_pop", "var_samp", "variance",
    }
)
# fmt: on
"""The aggregate functions of Spark 4.3 (its registry's group agg_funcs, and that of variants)."""

_QUANTIFIED = frozenset({"like", "ilike", "rlike", "=", "<", ">", "<=", ">=", "<>", "!=", "=="})
"""Before these words `any` and `some` are quantifiers, no aggregates."""

_STARTS = frozenset({"select", "with", "from", "table", "values", "map", "reduce"})
_SETS = frozenset({"union", "except", "minus", "intersect"})
_AFTER_FROM = frozenset({"where", "group", "having", "order", "sort", "cluster", "limit", "window", "select"})

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+)
  | (?P<comment>--(?:\\\r?\n|[^\r\n])*)
  | (?P<open_comment>/\*)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\w*)
  | (?P<word>\w+)
  | (?P<operator><=>|<=|>=|<>|!=|==|\|>|->|=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_PART = re.compile(r"/\*|\*/")


class SqlTextError(ValueError):
    """A SQL text that cannot be used; the message is a sentence without its subject."""


@dataclass(frozen=True, slots=True)
class Token:
    """``text`` in lower case tells keywords and signs; that of a quoted name begins with a backquote, of a string
    it is an apostrophe. ``name`` is the name of an identifier in lower case, quoted or not.
    """

    text: str
    name: str = ""


def tokens_of(text: str) -> list[Token]:
    """The tokens of a SQL text, without comments.

    Raises:
        SqlTextError: a string, quoted name or comment does not end; parentheses do not match.
    """
    tokens: list[Token] = []
    depth = at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind, value, start = match.lastgroup, match[0], at
        at = match.end()
        if kind == "open_comment":
            at = _end_of_comment(text, start)
        elif kind in ("string", "raw"):
            tokens.append(Token("'"))
        elif kind == "quoted":
            tokens.append(Token(value.lower(), value[1:-1].replace("``", "`").lower()))
        elif kind == "word":
            tokens.append(Token(value.lower(), value.lower()))
        elif kind == "number":
            tokens.append(Token(value.lower()))
        elif kind == "operator":
            if value in "'\"`":
                what = "a quoted name" if value == "`" else "a string"
                raise SqlTextError(f"has {what} that does not end; it begins in line {_line(text, start)}.")
            depth += (value == "(") - (value == ")")
            if depth < 0:
                raise SqlTextError(f"closes a parenthesis that is not open in line {_line(text, start)}.")
            if depth > MAX_NESTING:
                raise SqlTextError(f"nests parentheses too deeply: at most {MAX_NESTING} levels are allowed.")
            tokens.append(Token(value))
    if depth:
        raise SqlTextError(f"has {depth} parentheses that are not closed.")
    return tokens


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _end_of_comment(text: str, start: int) -> int:
    """The end of a comment in brackets; Spark allows one within another."""
    depth = 0
    for part in _COMMENT_PART.finditer(text, start):
        depth += 1 if part[0] == "/*" else -1
        if depth == 0:
            return part.end()
    raise SqlTextError(f"has a comment that does not end; it begins in line {_line(text, start)}.")


def check_query(tokens: list[Token]) -> None:
    """Raises SqlTextError if the tokens are not one query: a statement that changes something, or several."""
    body = list(tokens)
    while body and body[-1].text == ";":
        body.pop()
    first = next((token for token in body if token.text != "("), None)
    if first is None:
        raise SqlTextError("has no statement: a query such as SELECT ... FROM an input is expected.")
    if first.text not in _STARTS:
        raise SqlTextError(
            f"should be a query that begins with SELECT, WITH, FROM, VALUES or TABLE, found {first.text[:40]!r}."
        )
    depth = 0
    for before, token in zip([Token(""), *body], body, strict=False):
        depth += (token.text == "(") - (token.text == ")")
        if token.text == ";":
            raise SqlTextError("has more than one statement: exactly one query is expected.")
        if depth == 0 and before.text == "insert" and token.text in ("into", "overwrite"):
            raise SqlTextError("should only read: INSERT is not allowed, a sink vertex writes.")


def mentioned(tokens: list[Token]) -> frozenset[str]:
    """All names that the text mentions, in lower case."""
    return frozenset(token.name for token in tokens if token.name)


def is_stateful(tokens: list[Token], streaming: Collection[str]) -> bool:
    """Whether the query keeps state over the inputs that stream (their names in ``streaming``).

    It does with GROUP BY, HAVING, DISTINCT, an aggregate function, LIMIT, OFFSET, PIVOT, a set operation other than
    UNION ALL, or a join of two of them. What is done to static inputs only keeps none.
    """
    names = {name.lower() for name in streaming}
    if not names & mentioned(tokens):
        return False
    scanner = _Scanner(tokens)
    streams = scanner.query(dict.fromkeys(names, True))
    # A stream that stands where no relation was expected: be careful.
    return scanner.stateful or (not streams and scanner.keeps_state)


@dataclass(slots=True)
class _Branch:
    """One SELECT: how many streams it reads, and whether it does something that keeps state."""

    streams: int = 0
    keeps_state: bool = False
    in_from: bool = False
    saved: list[tuple[bool, bool]] = field(default_factory=list)
    """For each open parenthesis that is no subquery: whether it stands in FROM, and in_from outside of it."""


class _Scanner:
    """Goes once over the tokens, one call per (sub)query."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._closing = _matching(tokens)
        self.stateful = False
        self.keeps_state = False

    def query(self, relations: Mapping[str, bool]) -> bool:
        """Read a query up to its closing parenthesis or the end; whether it streams."""
        relations = self._with(relations)
        streams = merged = False
        branch = _Branch()
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.text == ")" and not branch.saved:
                break
            if token.text in _SETS and not branch.saved and self._peek(-1) != "*":
                streams |= self._end(branch)
                merged |= self._peek(1) != "all" or token.text != "union"
                branch = _Branch()
            else:
                self._take(token, branch, relations)
            self._at += 1
        self._at += 1
        streams |= self._end(branch)
        self.keeps_state |= merged
        self.stateful |= merged and streams
        return streams

    def _end(self, branch: _Branch) -> bool:
        self.keeps_state |= branch.keeps_state
        self.stateful |= branch.streams > 1 or (branch.streams == 1 and branch.keeps_state)
        return branch.streams > 0

    def _with(self, outer: Mapping[str, bool]) -> Mapping[str, bool]:
        """Read WITH name AS (query), ...; the relations that are known after it."""
        if self._peek(0) != "with":
            return outer
        relations = dict(outer)
        self._at += 1
        while self._at < len(self._tokens):
            if self._peek(0) == "recursive" and self._peek(1) not in ("as", "("):
                self._at += 1
            name = self._tokens[self._at].name
            while self._at < len(self._tokens) and self._peek(0) not in ("as", ")"):
                self._at = self._closing.get(self._at, self._at) + 1
            while self._at < len(self._tokens) and self._peek(0) not in ("(", ")"):
                self._at += 1
            if self._peek(0) != "(":
                break
            self._at += 1
            relations[name] = self.query(relations)
            if self._peek(0) != ",":
                break
            self._at += 1
        return relations

    def _take(self, token: Token, branch: _Branch, relations: Mapping[str, bool]) -> None:
        text = token.text
        if text == "(":
            self._open(branch, relations)
        elif text == ")":
            _, branch.in_from = branch.saved.pop()
        elif text in ("from", "join"):
            # Not that of `a IS DISTINCT FROM b`, nor that of extract(day FROM t).
            if self._peek(-1) != "distinct" and (not branch.saved or branch.saved[-1][0]):
                branch.in_from = True
        elif self._keeps_state(text):
            branch.keeps_state = True
            branch.in_from = branch.in_from and text not in _AFTER_FROM
        elif text in _AFTER_FROM:
            branch.in_from = False
        else:
            self._relation(token, branch, relations)

    def _relation(self, token: Token, branch: _Branch, relations: Mapping[str, bool]) -> None:
        before = self._peek(-1)
        expected = before == "table" or (branch.in_from and before in ("from", "join", ",", "(", "stream"))
        if token.name and expected and self._peek(1) not in ("(", "."):
            branch.streams += relations.get(token.name, False)

    def _open(self, branch: _Branch, relations: Mapping[str, bool]) -> None:
        inside = self._at + 1
        while inside < len(self._tokens) and self._tokens[inside].text == "(":
            inside += 1
        first = self._tokens[inside] if inside < len(self._tokens) else Token("")
        relation = branch.in_from and self._peek(-1) in ("from", "join", ",", "(", "lateral", "stream")
        before = self._peek(-1)
        starts = before in ("", "(", "all", "distinct") or before in _SETS
        if first.text in _STARTS and (self._peek(1) != "(" or relation or starts):
            self._at += 1
            branch.streams += self.query(relations)
            self._at -= 1  # the caller goes one on
        else:
            branch.saved.append((relation, branch.in_from))
            branch.in_from = relation

    def _keeps_state(self, text: str) -> bool:
        after = self._peek(1)
        if text in ("limit", "offset"):
            return after[:1].isdigit() or after == "("
        if text == "distinct":
            return after != "from"
        if text in ("group", "pivot"):
            return after == ("by" if text == "group" else "(")
        return text == "having" or self._is_aggregate(text)

    def _is_aggregate(self, text: str) -> bool:
        if text == "aggregate" and self._peek(-1) == "|>":
            return True
        if text not in AGGREGATES or self._peek(1) != "(" or self._peek(-1) == ".":
            return False
        if text in ("any", "some") and self._peek(-1) in _QUANTIFIED:
            return False
        after = self._closing[self._at + 1] + 1
        words = [token.text for token in self._tokens[after : after + 2]]
        if words[:1] == ["filter"]:
            after = self._closing.get(after + 1, after) + 1
        elif words[1:] == ["nulls"]:
            after += 2
        # A function over a window of rows is computed per row.
        return not (after < len(self._tokens) and self._tokens[after].text == "over")

    def _peek(self, offset: int) -> str:
        at = self._at + offset
        return self._tokens[at].text if 0 <= at < len(self._tokens) else ""


def _matching(tokens: list[Token]) -> dict[int, int]:
    """For each opening parenthesis the index of its closing one."""
    pairs: dict[int, int] = {}
    open_at: list[int] = []
    for at, token in enumerate(tokens):
        if token.text == "(":
            open_at.append(at)
        elif token.text == ")":
            pairs[open_at.pop()] = at
    return pairs
