"""A client of the HTTP service of enrich_by_http.py, one for each Python worker."""

import os
from functools import lru_cache

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry


class CatalogClient:
    def __init__(self, url: str, token: str):
        self.url = url.rstrip("/")
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {token}"
        retry = Retry(total=8, backoff_factor=0.05, status_forcelist=[429, 500, 502, 503])
        self.session.mount("http://", HTTPAdapter(max_retries=retry, pool_maxsize=4))

    @lru_cache(maxsize=256)  # noqa: B019
    def category(self, page: str) -> str:
        answer = self.session.get(f"{self.url}/pages/{page}", timeout=10)
        answer.raise_for_status()
        return answer.json()["category"]


@lru_cache(maxsize=1)
def client() -> CatalogClient:
    """One for each worker; the secret is never part of the program."""
    return CatalogClient(os.environ["CATALOG_URL"], os.environ["CATALOG_TOKEN"])
