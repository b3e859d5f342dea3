"""What is hidden from readers, and what is not."""

from __future__ import annotations

import pytest

from app.documents.graph import parse_document
from app.model.graphdoc import to_document
from app.model.jobgraph import MAX_SETTING_CHARS
from app.model.masking import HIDDEN, masked, masked_document, masked_java_options, masked_text
from tests.unit.model.documents import document

SECRET = "hunter2"


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.store.blob.core.windows.net",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.google.cloud.auth.service.account.private.key",
        "spark.hadoop.fs.azure.sas.token",
        "spark.ssl.keyPassword",
        "spark.io.encryption.key",
        "kafka.sasl.jaas.config",
        "accountKey",
        "privateKey",
        "connectionString",
        "apiKey",
        "PWD",
        "spark.executorEnv.DB_PASS",
        "spark.executorEnv.PGPASS",
        "dbpass",
        "kafka.ssl.keystore.key",
        "spark.redis.auth",
        "requirepass",
        "spark.x.bearer",
    ],
)
def test_names_that_speak_of_secrets(name: str) -> None:
    assert masked(name, SECRET) == HIDDEN


@pytest.mark.parametrize(
    "name",
    [
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
        "restart-strategy.type",
        "kafka.sasl.mechanism",
        "keys",
        "spark.hadoop.fs.s3a.endpoint",
        "disaster.saslike",
        "spark.hadoop.google.cloud.auth.type",
        "spark.x.oauth",
        "compass",
    ],
)
def test_other_names(name: str) -> None:
    assert masked(name, SECRET) == SECRET


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hunter2@db:5432/jobs", "postgresql://me:******@db:5432/jobs"),
        ("postgresql://me:hunt/er@2@db/jobs", "postgresql://me:******@db/jobs"),
        ("postgresql://me@db/jobs?password=hunter2&sslmode=require",
         "postgresql://me@db/jobs?password=******&sslmode=require"),
        ("jdbc:postgresql://db/jobs?user=me&sslpassword=hunter2",
         "jdbc:postgresql://db/jobs?user=me&sslpassword=******"),
        ("s3a://key:hunter2@bucket/x", "s3a://key:******@bucket/x"),
        ("AccountName=a;AccountKey=hunter2==;Suffix=x", "AccountName=a;AccountKey=******;Suffix=x"),
        ('module required username="me" password="hunter2 x";',
         'module required username="me" password=******;'),
        ("https://host/x?sv=a&sas=hunter2", "https://host/x?sv=a&sas=******"),
        ("https://host/x?sv=a&sig=hunter2", "https://host/x?sv=a&sig=******"),
        ("https://host/x?X-Amz-Signature=hunter2", "https://host/x?X-Amz-Signature=******"),
        ("jdbc:sqlserver://h;password={hun;t}}er2};encrypt=true",
         "jdbc:sqlserver://h;password=******;encrypt=true"),
        ("password={hunter2", "password=******"),
        # As libpq has it.
        ("host=db password='hunt \\'er2' user=me", "host=db password=****** user=me"),
        (r"host=db password=hunt\ er\'2 user=me", "host=db password=****** user=me"),
        ("host=db password = hunter2 user=me", "host=db password = ****** user=me"),
        ("host=db password='hunter2 of", "host=db password=******"),
        # A pair within the value of another.
        ("options='-c x=1 password=hunter2 y'", "options='-c x=1 password=****** y'"),
        ("Bearer hunter2", "Bearer ******"),
        ("accept=x, Authorization: bearer hunter2, y=1", "accept=x, Authorization: bearer ******, y=1"),
        ('{"user": "me", "password": "hunter2"}', '{"user": "me", "password": "******"}'),
        ('{"password": 12345678, "port": 5432}', '{"password": ******, "port": 5432}'),
        ("user: me\npassword: hunter2\nport: 1", "user: me\npassword: ******\nport: 1"),
        ("jdbc:oracle:thin:scott/hunter2@//h:1521/x", "jdbc:oracle:thin:scott/******@//h:1521/x"),
        ('jdbc:oracle:thin:scott/"hunt@er2"@h', "jdbc:oracle:thin:scott/******@h"),
        ("accept=x, Authorization: Basic bWU6aHVudGVyMg==, y=1", "accept=x, Authorization: Basic ******, y=1"),
        ("Authorization=Basic bWU6aHVudGVyMg==", "Authorization=****** ******"),
        ("Authorization: hunter2", "Authorization: ******"),
        ("the token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.hunter2", "the token ******"),
    ],
)  # fmt: skip
def test_passwords_in_texts(text: str, shown: str) -> None:
    assert masked_text(text) == shown
    assert masked("url", text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me@db:5432/jobs?sslmode=require",
        "http://one:8080,http://two:8080",
        "SELECT a FROM t WHERE k = 1",
        "-XX:+UseZGC -Da='b c'",
        "/data/token",
        "jdbc:oracle:thin:@//h:1521/x",
        "port: 5432 user: me",
    ],
)
def test_other_texts_are_shown_as_they_are(text: str) -> None:
    assert masked_text(text) == text
    assert masked_java_options(text) == text


def test_options_of_a_jvm() -> None:
    text = "-Djavax.net.ssl.keyStorePassword=hunter2&x;y -Xss4m -Da='b c' '-Dtoken=hunter2 x' -Du=http://a:hunter2@b"
    shown = "-Djavax.net.ssl.keyStorePassword=****** -Xss4m '-Da=b c' -Dtoken=****** -Du=http://a:******@b"
    assert masked_java_options(text) == shown
    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        assert masked(name, text) == shown
    assert masked_java_options("-Dpassword='hunter2") == HIDDEN


def test_a_value_that_is_too_long_to_be_searched_is_hidden() -> None:
    assert masked("spark.x.y", "a" * MAX_SETTING_CHARS) == "a" * MAX_SETTING_CHARS
    assert masked("spark.x.y", "a" * (MAX_SETTING_CHARS + 1)) == HIDDEN


def test_a_graph_is_shown_without_the_secrets_of_its_ends() -> None:
    vertices = [
        {"name": "in", "source": {"format": "parquet", "path": "s3a://k:hunter2@in/x", "static": False}},
        {
            "name": "out",
            "inputs": ["in"],
            "sink": {
                "format": "postgresql",
                "options": {"url": "postgresql://me:hunter2@db/jobs", "table": "t", "mode": "upsert"},
            },
        },
    ]
    made = document(*vertices, config={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    shown = masked_document(made)
    assert SECRET not in str(shown)
    assert shown["vertices"][1]["sink"]["options"] == {
        "url": f"postgresql://me:{HIDDEN}@db/jobs",
        "table": "t",
        "mode": "upsert",
    }
    assert made["vertices"] == vertices
    plain = to_document(parse_document(document()))
    assert masked_document(plain) == plain
