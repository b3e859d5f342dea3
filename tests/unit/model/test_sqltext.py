"""What a SQL text tells: names, state, and which texts are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.sqltext import SqlTextError, check_query, is_stateful, mentioned, tokens_of

STATEFUL = [
    "SELECT a, count(*) FROM f GROUP BY a",
    "select count(*) from f",
    "SELECT COALESCE(SUM(x), 0) FROM f",
    "SELECT window(t, '1 hour'), max(v) FROM f GROUP BY window(t, '1 hour')",
    "SELECT DISTINCT x FROM f",
    "SELECT max(a) FROM f HAVING max(a) > 1",
    "SELECT sum(x) FILTER (WHERE y) FROM `F`",
    "SELECT any(x) FROM f",
    "SELECT * FROM f LIMIT 3",
    "SELECT * FROM f PIVOT (sum(v) FOR k IN ('a', 'b'))",
    "SELECT * FROM f UNION SELECT * FROM s",
    "SELECT * FROM f INTERSECT SELECT * FROM s",
    "SELECT * FROM f JOIN g ON f.a = g.a",
    "SELECT * FROM f, g WHERE f.a = g.a",
    "SELECT * FROM f LEFT JOIN s ON f.a = s.a JOIN g ON g.a = f.a",
    "SELECT * FROM f a JOIN f b ON a.x = b.x",
    "SELECT * FROM (f JOIN g ON true)",
    "SELECT * FROM ((SELECT * FROM f) a JOIN g ON true)",
    "SELECT x FROM f WHERE k IN (SELECT k FROM g)",
    "SELECT x FROM f WHERE EXISTS (SELECT 1 FROM g WHERE g.k = f.k)",
    "SELECT * FROM (SELECT k, count(*) AS n FROM f GROUP BY k) WHERE n > 3",
    "WITH t AS (SELECT * FROM f) SELECT k, sum(x) FROM t GROUP BY k",
    "WITH t (a, b) AS (SELECT * FROM f), u AS (SELECT a, count(*) FROM t GROUP BY a) SELECT * FROM u",
    "WITH t AS (SELECT * FROM f) SELECT * FROM t JOIN g ON true",
    "FROM f |> AGGREGATE count(*) GROUP BY k",
    "SELECT k, kll_merge_agg_bigint(x) FROM f",
    "SELECT approx_count_distinct(x) FROM f",
    "(SELECT * FROM s) UNION ALL (SELECT max(x) FROM f)",
]
STATELESS = [
    "SELECT * FROM f",
    "TABLE f",
    "FROM f SELECT a",
    "SELECT count(*) OVER (PARTITION BY a) FROM f",
    "SELECT first_value(x) IGNORE NULLS OVER w FROM f WINDOW w AS (ORDER BY t)",
    "SELECT sum(x) FILTER (WHERE y) OVER w FROM f WINDOW w AS (ORDER BY t)",
    "SELECT * EXCEPT (a) FROM f",
    "SELECT * FROM f UNION ALL SELECT * FROM g",
    "(SELECT * FROM f) UNION ALL (SELECT * FROM g)",
    "SELECT * FROM f JOIN s ON f.a = s.a",
    "SELECT * FROM f JOIN s a ON f.a = a.x JOIN s b ON f.a = b.x",
    "SELECT * FROM f JOIN (SELECT k, count(*) c FROM s GROUP BY k) t USING (k)",
    "WITH t AS (SELECT k, count(*) c FROM s GROUP BY k) SELECT * FROM f JOIN t USING (k)",
    "WITH t (a, b) AS (SELECT * FROM f), u AS (SELECT 1) SELECT * FROM t, u",
    "SELECT * FROM f WHERE x IS NOT DISTINCT FROM y",
    "SELECT * FROM f WHERE x IS DISTINCT FROM g",
    "SELECT extract(day FROM g) FROM f",
    "SELECT x FROM f WHERE k IN (SELECT k FROM s)",
    "SELECT (SELECT max(a) FROM s) AS m, x FROM f",
    "SELECT 'count(*) GROUP BY' AS c, `group` FROM f -- GROUP BY x",
    "SELECT x FROM f /* a /* nested */ GROUP BY */",
    "SELECT \"DISTINCT\", r'\\' AS y FROM f",
    "SELECT offset, `limit` FROM f",
    "SELECT x FROM f LIMIT ALL",
    "SELECT x FROM f WHERE n LIKE ANY ('a', 'b')",
    "SELECT f.count FROM f",
    "SELECT k FROM f ORDER BY k, g",
    "SELECT count(*) FROM s",
    "SELECT a, sum(b) FROM s GROUP BY a",
]


@pytest.mark.parametrize("text", STATEFUL)
def test_keeps_state_over_its_streams(text: str) -> None:
    tokens = tokens_of(text)
    check_query(tokens)
    assert is_stateful(tokens, ("F", "g"))
    assert not is_stateful(tokens, ()), "no input streams"


@pytest.mark.parametrize("text", STATELESS)
def test_keeps_no_state(text: str) -> None:
    tokens = tokens_of(text)
    check_query(tokens)
    assert not is_stateful(tokens, ("f", "g"))


def test_a_join_needs_two_sides_that_stream() -> None:
    tokens = tokens_of("SELECT * FROM f JOIN g ON f.a = g.a")
    assert not is_stateful(tokens, ("f",))
    assert not is_stateful(tokens, ("g",))
    assert is_stateful(tokens, ("f", "g"))


def test_what_cannot_be_told_is_stateful() -> None:
    # The scanner does not know where this dialect would put relations; the stream is mentioned, and aggregated.
    assert is_stateful(tokens_of("SELECT count(*) FROM read(f)"), ("f",))


def test_names_are_those_outside_of_comments_and_strings() -> None:
    text = """SELECT Flights.carrier, 'airlines', "planes" -- airports
              FROM flights /* weather */ JOIN `Odd ``Name` o"""
    names = mentioned(tokens_of(text))
    assert {"flights", "odd `name", "o", "carrier"} <= names
    assert not names & {"airlines", "planes", "airports", "weather"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("SELECT 'a\n FROM f", "has a string that does not end; it begins in line 1"),
        ('SELECT\n"a FROM f', "has a string that does not end; it begins in line 2"),
        ("SELECT `a FROM f", "has a quoted name that does not end"),
        ("SELECT /* a /* b */ FROM f", "has a comment that does not end; it begins in line 1"),
        ("SELECT (1 FROM f", "has 1 parentheses that are not closed"),
        ("SELECT 1)\nFROM f", "closes a parenthesis that is not open in line 1"),
        ("SELECT " + "(" * 101 + "1" + ")" * 101, "at most 100 levels"),
        ("-- nothing", "has no statement"),
        (";", "has no statement"),
        ("INSERT INTO t SELECT 1", "found 'insert'"),
        ("DROP TABLE t", "found 'drop'"),
        ("CREATE TABLE t AS SELECT 1", "found 'create'"),
        ("SET x = 1", "found 'set'"),
        ("`select` 1", "found '`select`'"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("WITH t AS (SELECT 1) INSERT INTO x SELECT * FROM t", "INSERT is not allowed"),
        ("FROM f INSERT OVERWRITE TABLE x SELECT *", "INSERT is not allowed"),
    ],
)
def test_is_refused(text: str, part: str) -> None:
    with pytest.raises(SqlTextError) as caught:
        check_query(tokens_of(text))
    assert part in str(caught.value)


def test_one_semicolon_at_the_end_is_fine() -> None:
    check_query(tokens_of("SELECT ';' FROM f ; -- done\n;"))


_KEYWORDS = (
    "select from join where group by having union all except with as table lateral pivot limit distinct"
)
_SIGNS = "( ) , . f g t count ( * ) 'x' `q` |> over filter nulls 3 is not any like recursive aggregate ;"
_WORDS = f"{_KEYWORDS} {_SIGNS}".split()


@given(st.lists(st.sampled_from(_WORDS), max_size=40))
def test_no_text_breaks_it(words: list[str]) -> None:
    try:
        tokens = tokens_of(" ".join(words))
        check_query(tokens)
    except SqlTextError:
        return
    is_stateful(tokens, ("f", "g"))


@given(st.text(st.sampled_from("f('\"`)-/*\n\\ ;,rRx1.")))
def test_no_character_breaks_it(text: str) -> None:
    try:
        mentioned(tokens_of("select 1 " + text))
    except SqlTextError as error:
        assert str(error).endswith(".")
