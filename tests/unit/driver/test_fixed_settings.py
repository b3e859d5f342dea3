"""What every driver of a STREAMING job sets is not changed by a job, also not by one that is stored."""

from __future__ import annotations

import pytest

from app.driver.failures import DriverError
from app.driver.session import check_conf
from app.model.graphdoc import GraphErrors, parse_document
from app.model.ownsettings import FIXED_SETTINGS
from tests.unit.model.documents import COUNTS, FLIGHTS, STORE, document


@pytest.mark.parametrize("name", sorted(FIXED_SETTINGS))
def test_a_driver_refuses_it_in_the_words_of_the_submission(name: str) -> None:
    with pytest.raises(GraphErrors) as submitted:
        parse_document(document(FLIGHTS, COUNTS, STORE, config={name: "other"}))
    with pytest.raises(DriverError) as started:
        check_conf({name: "other"})
    assert f"config: {started.value}" == str(submitted.value)


@pytest.mark.parametrize("name", ["spark.jars", "spark.driver.cores", "spark.local.dir"])
def test_a_stored_job_with_what_older_versions_allowed_is_run(name: str) -> None:
    graph = parse_document(document(FLIGHTS, COUNTS, STORE, config={name: "1"}), stored=True)
    check_conf({**dict(graph.config), **FIXED_SETTINGS})
