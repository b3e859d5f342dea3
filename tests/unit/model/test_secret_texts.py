"""Errors and traces without the secrets of a job, and otherwise as they were."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.graph import parse_document
from app.model.graphdoc import to_document
from app.model.jobgraph import MAX_SETTING_CHARS, MAX_SETTINGS_CHARS, JobGraph
from app.model.masking import HIDDEN, masked_document
from app.model.secret_texts import part_without_secrets, secrets_of, without_secrets
from tests.unit.growth import too_slow
from tests.unit.model.documents import document

TRACE = """\
Traceback (most recent call last):
  File "/opt/jobs/flights.py", line 12, in enrich
    tokens = tokenizer.tokenize(row.text, max_tokens=512)
  File "/usr/lib/python3.11/site-packages/pyspark/sql/connect.py", line 3, in wrapped
    if key == name and secretary != None:
py4j.protocol.Py4JJavaError: An error occurred while calling o42.start.
: org.apache.spark.SparkException: [TASK_FAILED] executor 1 at spark://CoarseGrainedScheduler@10.0.0.5:40123 is gone
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:2856)
\tat org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider.getCredentials(SimpleAWSCredentialsProvider.java:31)
\tat java.base/java.util.ArrayList.forEach(ArrayList.java:1596)
Caused by: java.net.ConnectException: http://10.0.0.5:8080/jobs?x=me@here refused; java.lang.Object@1b2c3d, a == b
== Physical Plan ==
*(1) Project [k#12, sum(v#13) AS total#20L] +- Filter (isnotnull(k#12) AND (k#12 = 7))
"""


def graph(*vertices: dict[str, Any], **config: str) -> JobGraph:
    return parse_document(document(*vertices, config={k.replace("__", "."): v for k, v in config.items()}))


def sink(of: str = "in", **options: str) -> dict[str, Any]:
    return {"name": "out", "inputs": [of], "sink": {"format": "postgresql", "options": options}}


SOURCE = {"name": "in", "source": {"format": "rate"}}


def known(**config: str) -> tuple[str, ...]:
    return secrets_of(graph(**config))


# ---- what a job has that is secret


def test_the_secret_values_of_a_job_are_those_under_such_names_and_in_urls() -> None:
    made = graph(
        SOURCE,
        {"name": "side", "source": {"format": "parquet", "path": "s3a://k:p4th-secret@in/x", "static": True}},
        {"name": "both", "inputs": ["in", "side"], "sql": "SELECT * FROM in JOIN side"},
        sink(
            "both",
            url="postgresql://me:pg%2Fsecr3t@db/jobs?sslpassword=ssl-Secr3t",
            table="orders",
            mode="upsert",
            keys="k",
        ),
        spark__hadoop__fs__s3a__secret__key="aws+Secr3t/key",
        spark__driver__extraJavaOptions="-Djavax.net.ssl.keyStorePassword=jvm-Secr3t -Da=ordinary1",
        spark__kafka__sasl__jaas__config='Login required username="meandme" password="jaas-Secr3t";',
        spark__sql__session__timeZone="Europe/Berlin",
    )
    found = secrets_of(made)
    for secret in (
        "p4th-secret",
        "pg%2Fsecr3t",
        "pg/secr3t",
        "ssl-Secr3t",
        "aws+Secr3t/key",
        "aws%2BSecr3t%2Fkey",
        "jvm-Secr3t",
        "jaas-Secr3t",
    ):
        assert secret in found
    assert not {"orders", "ordinary1", "Europe/Berlin", "meandme", "upsert"} & set(found)
    assert list(found) == sorted(found, key=lambda value: (-len(value), value))


@pytest.mark.parametrize(
    "value",
    [
        "true",
        "3600000",
        "10 min",
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "me",
        "secret",
        "abc",
    ],
)
def test_what_is_no_secret_under_such_a_name(value: str) -> None:
    assert known(spark__hadoop__fs__s3a__credentials=value) == ()


def test_a_value_in_braces_is_secret_with_and_without_them() -> None:
    found = known(spark__url="jdbc:sqlserver://h;password={s3c;r}}3t-x};encrypt=true")
    assert {"{s3c;r}}3t-x}", "s3c;r}3t-x"} <= set(found)
    assert without_secrets("tried password={oth;er-one} of h", ()) == f"tried password={HIDDEN} of h"


# ---- hiding them


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        ("hunt-3r/2", "no role for hunt-3r/2.", "no role for ******."),
        ("hunt-3r/2", "GET /?key=hunt-3r%2F2 failed", "GET /?key=****** failed"),
        ("hunter2", "b'hunter2' is refused", "b'******' is refused"),
        # Words that stand for themselves only where nothing else can be meant.
        ("flights", "password flights is wrong", "password ****** is wrong"),
        ("flights", "at /opt/flights.py, flights.py:3, flights(3), my.flights.Of",
         "at /opt/flights.py, flights.py:3, flights(3), my.flights.Of"),
        ("ab12", "0xab12ff and ab12", "0xab12ff and ******"),
        # As Python shows a text.
        ("so\\me-pass", r"'so\\me-pass' is refused", "'******' is refused"),
        # Cut off in the middle.
        ("hunter2-of-me", "connect(me, hunter2-o...", "connect(me, ******..."),
    ],
)  # fmt: skip
def test_values_that_the_job_has(value: str, text: str, shown: str) -> None:
    assert without_secrets(text, known(spark__my__password=value)) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach postgresql://me:hunt/er@2@db:5432/jobs now",
         "cannot reach postgresql://me:******@db:5432/jobs now"),
        ("url 'jdbc:mysql://db/x?user=me&password=hunter2'", "url 'jdbc:mysql://db/x?user=me&password=******"),
        ("Authorization=Basic bWU6aHVudGVyMg==", "Authorization=****** ******"),
        ("{'password': 12345678, 'port': 5432}", "{'password': ******, 'port': 5432}"),
        ("jdbc:oracle:thin:scott/tiger@//db:1521/x", "jdbc:oracle:thin:scott/******@//db:1521/x"),
        ("jdbc:sqlserver://db;user=sa;password=hunter2;encrypt=true",
         "jdbc:sqlserver://db;user=sa;password=******;encrypt=true"),
        ("connect(host='db', password = \"hunter 2\")", "connect(host='db', password = ******)"),
        ("options {'user': 'me', 'password': 'hunt\\'er', 'n': 1}",
         "options {'user': 'me', 'password': '******', 'n': 1}"),
        ('{"apiKey": "hunter2", "x": "y"}', '{"apiKey": "******", "x": "y"}'),
        ("password=123456", "password=******"),
        ("connection to host=db password='hunt er2' user=me failed",
         "connection to host=db password=****** user=me failed"),
        (r"connection to host=db password=hunt\ er2 user=me failed",
         "connection to host=db password=****** user=me failed"),
        ("connect(f(password=hunter2, x=1))", "connect(f(password=****** x=1))"),
        ("Authorization: Bearer abcdef1234567890", "Authorization: Bearer ******"),
        ("header 'authorization': 'Basic bWU6aHVudGVyMg=='", "header 'authorization': '******'"),
        ("the token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl is over", "the token ****** is over"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_hidden_without_being_known(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


def test_a_trace_is_as_it_was() -> None:
    names = {
        "spark__my__password": "spark",
        "spark__aws__credentials__provider": "org.apache.hadoop.Provider",
    }
    assert without_secrets(TRACE, known(**names)) == TRACE


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("host=db password='hunt er2' user=me", "hunt er2"),
        (r"host=db password='hunt\'er2' user=me", "hunt'er2"),
        (r"host=db password=hunt\ er2 user=me", "hunt er2"),
        ("Server=db;Password='hunt''er2';", "hunt'er2"),
        ("Bearer hunter2-of-me", "hunter2-of-me"),
        ('{"password": "hunter2-of-me"}', "hunter2-of-me"),
    ],
)
def test_a_quoted_password_is_known_as_it_is_meant(url: str, secret: str) -> None:
    found = known(spark__url=url)
    assert secret in found
    assert secret not in without_secrets(f"no role for {secret}: {url}", found)


def test_what_has_too_many_secrets_to_look_for_is_hidden_as_a_whole() -> None:
    found = tuple(f"secret-{number}" for number in range(1_001))
    assert "secret-7" not in without_secrets("it is secret-7", found)
    assert "secret-7" not in without_secrets("it is secret-7" + " x" * 100_000, found[:200])
    assert without_secrets("it is secret-7 of them", found[:200]) == f"it is {HIDDEN} of them"


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "a=" * 50_000, "http:/" * 30_000, "'token" * 30_000, "x://" * 30_000]
)
def test_a_long_word_takes_no_long_time(text: str) -> None:
    def seconds_of(length: int) -> float:
        began = time.thread_time()
        without_secrets(text[:length], ("hunter2-of-me",))
        return time.thread_time() - began

    assert too_slow(seconds_of, len(text), 2.0) is None


@given(
    st.text(alphabet="abcXYZ019/+=%:@&; '\"\\-_.", min_size=8, max_size=40).filter(lambda v: v.strip() == v),
    st.text(max_size=30),
    st.text(max_size=30),
)
def test_whatever_a_password_is_made_of_it_is_not_in_the_text(secret: str, before: str, after: str) -> None:
    found = secrets_of(
        graph(SOURCE, sink(url="u", table="t", mode="upsert", keys="k"), spark__my__password=secret)
    )
    if not found:
        return
    shown = without_secrets(f"{before} {secret} {after}", found)
    assert secret not in shown.replace(HIDDEN, "") or secret in before or secret in after


@given(st.text(max_size=200))
def test_what_has_been_hidden_stays_so(text: str) -> None:
    once = without_secrets(text, ("hunter2-of-me",))
    assert without_secrets(once, ("hunter2-of-me",)) == once


@pytest.mark.parametrize(
    "piece",
    ["a", "a=", "x://a:b", "password=a ", "password={", "secret=abcd;", "-eyJ", "Bearer 1 ", "'token':'"],
)
@pytest.mark.parametrize("settings", [8, 490])
def test_the_largest_document_and_its_failures_are_searched_in_a_bounded_time(
    piece: str, settings: int
) -> None:
    size = min(MAX_SETTINGS_CHARS // settings - 20, MAX_SETTING_CHARS)
    made = graph(**{f"spark.x.y{number}": (piece * size)[:size] for number in range(settings)})
    smaller = graph(**{f"spark.x.y{number}": (piece * size)[: size // 10] for number in range(settings)})

    def seconds_of(length: int) -> float:
        graph_of_length = made if length == 100_000 else smaller
        trace = (piece * length)[:length]
        began = time.thread_time()
        masked_document(to_document(graph_of_length))
        without_secrets(trace, secrets_of(graph_of_length))
        return time.thread_time() - began

    assert too_slow(seconds_of, 100_000, 0.5) is None


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("jdbc:oracle:thin:scott/tiger77@//h", "tiger77"),
        ('jdbc:oracle:thin:scott/"tig@er77"@//h', "tig@er77"),
        ("accept=x, Authorization: Basic bWU6aHVudGVyMg==", "bWU6aHVudGVyMg=="),
        ('{"password": 12345678}', "12345678"),
        ("user: me\npassword: hunter2", "hunter2"),
    ],
)
def test_secrets_within_a_setting_are_known(value: str, secret: str) -> None:
    assert secret in known(spark__x__y=value)


# ---- a text that is read in parts

LOG = f"""\
INFO connected to postgresql://me:pw-of-nobody@db:5432/jobs
password='hunter2 hunter2', next
a line with hunter2-of-the-job in it, and s3cr\u00e9t-with-\u00e4ccents
-----BEGIN-----
first line of a key
second line of a key
-----END-----
{{"token": "abcdefgh12345", "user": "me"}}
Authorization: Bearer abcdefgh12345678
{TRACE}
the last one: hunter2-of-the-job"""
KNOWN = (
    "-----BEGIN-----\nfirst line of a key\nsecond line of a key\n-----END-----",
    "s3cr\u00e9t-with-\u00e4ccents",
    "hunter2-of-the-job",
)


@given(st.lists(st.integers(0, len(LOG)), max_size=8), st.sampled_from([80, 200, 10_000]))
def test_parts_make_up_the_whole_without_its_secrets_wherever_it_is_cut(
    places: list[int], around: int
) -> None:
    """``around``: so much is seen before and behind a part; the longest secret is shorter."""
    cuts = sorted({0, *places, len(LOG)})
    parts = [
        part_without_secrets(
            LOG[max(0, begin - around) : begin], LOG[begin:end], LOG[end : end + around], KNOWN
        )
        for begin, end in itertools.pairwise(cuts)
    ]
    assert "".join(parts) == without_secrets(LOG, KNOWN)


@pytest.mark.parametrize("count", [220, 1_001])
def test_a_part_with_too_many_secrets_is_a_line_that_says_so(count: int) -> None:
    known = tuple(f"secret-number-{number}" for number in range(count))
    around = f"{known[7]}\n" * 2_000
    text = "nothing to hide\n" * 4_000
    for before, after in (("", ""), (around, ""), ("", around), (around, around)):
        shown = part_without_secrets(before, text, after, known)
        if count * (len(before) + len(text) + len(after)) > 20_000_000 or count > 1_000:
            assert shown.startswith("The text is hidden: the job has so many secret values")
            assert shown.endswith(".\n") and shown.count("\n") == 1
        else:
            assert shown == text


@given(st.integers(0, len(LOG)))
def test_a_text_that_goes_on_later_ends_in_no_part_of_a_secret_that_is_known(place: int) -> None:
    shown = part_without_secrets("", LOG[:place], "", KNOWN)
    for secret in KNOWN:
        assert not any(shown.endswith(secret[:length]) for length in range(4, len(secret)))
