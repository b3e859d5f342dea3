"""Where results lie: which texts are a folder of this host, which a directory of a Hadoop file system, and which no
place at all."""

from __future__ import annotations

import pytest

from app.model.resultsurl import below, is_local, results_root


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("/var/results", "/var/results"),
        ("/var//results/", "/var/results"),
        ("file:/var/results", "/var/results"),
        ("FILE:///var/a b%20[c]", "/var/a b%20[c]"),
        ("hdfs://name:8020/slotwise/results/", "hdfs://name:8020/slotwise/results"),
        ("hdfs:///results", "hdfs:///results"),
        ("S3A://bucket", "s3a://bucket/"),
        ("s3a://bucket/", "s3a://bucket/"),
        (
            "abfss://container@account.dfs.core.windows.net/r",
            "abfss://container@account.dfs.core.windows.net/r",
        ),
        ("viewfs://cluster/a{b}", "viewfs://cluster/a{b}"),
    ],
)
def test_a_place_is_a_path_or_a_uri(text: str, root: str) -> None:
    assert results_root(text) == root
    assert is_local(root) == root.startswith("/")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a place for results: allowed are"),
        ("results", "an absolute path on this host"),
        ("file:results", "is not a place for results"),
        ("file://host/results", "is not a place for results"),
        ("hdfs:/results", "is not a place for results"),
        ("hdfs://", "is not a place for results"),
        ("https://host/results", "is not a place for results"),
        ("/", "is the root of this host's files"),
        ("file:///", "is the root of this host's files"),
        ("/var/../etc", "the part . or .."),
        ("hdfs://name/a/./b", "the part . or .."),
        (" /var/results", "begins or ends with a blank"),
        ("/var/re\nsults", "not printable"),
        ("s3a://key:secret@bucket/results", "it has a password"),
    ],
)
def test_what_is_no_place_is_refused_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".*") as refused:
        results_root(text)
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_place_below_another_has_one_slash_between_them() -> None:
    assert below("s3a://bucket/", "job", "1") == "s3a://bucket/job/1"
    assert below("/var/results", "job") == "/var/results/job"
    # For Hadoop hdfs:/job is a path of the default file system of that scheme, as hdfs:///job is.
    assert below("hdfs:///", "job") == "hdfs:/job"
