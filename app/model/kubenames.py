"""The formats of Kubernetes for names, quantities and the address of its API server; the labels of Slotwise's
pods.
"""

from __future__ import annotations

import re
from fractions import Fraction

from app.model.addresses import LAST_PORT

JOB_LABEL = "slotwise/job"
ATTEMPT_LABEL = "slotwise/attempt"

MASTER_PREFIX = "k8s://"

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVER = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?(?:/[A-Za-z0-9/._-]*)?")
# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(r"([+-]?(?:\d++(?:\.\d*+)?+|\.\d++))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?\d{1,2}))?")
_FACTORS: dict[str, Fraction] = {
    "": Fraction(1),
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)},
}


def parse_quantity(text: str) -> Fraction:
    """``500m`` is 1/2, ``2Gi`` is 2 * 1024 ** 3.

    Raises:
        ValueError: it is not a quantity.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity of Kubernetes, such as 1, 500m or 2Gi.")
    number, binary, decimal, exponent = found.groups()
    value = Fraction(number)
    if exponent:
        power = int(exponent)
        return value * Fraction(10) ** power if power >= 0 else value / Fraction(10) ** -power
    return value * _FACTORS[binary or decimal or ""]


def is_label(text: str) -> bool:
    """Whether ``text`` can be the name of a namespace."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether ``text`` can be the name of a pod or a service account."""
    return _SUBDOMAIN.fullmatch(text) is not None


def api_server(master: str) -> str:
    """The address of the API server in a master URL ``k8s://https://host:port``; without a scheme it is https.

    Raises:
        ValueError: it is not such a URL, or says more, such as credentials.
    """
    rest = master.removeprefix(MASTER_PREFIX)
    url = rest if "://" in rest else f"https://{rest}"
    found = _SERVER.fullmatch(url) if master.startswith(MASTER_PREFIX) else None
    if found is None or not 1 <= int(found[1] or 1) <= LAST_PORT:
        # It may have credentials in it.
        shown = "what it says" if "@" in master else repr(master)
        raise ValueError(f"{shown} is not of the form k8s://https://host:port.")
    return url.rstrip("/")
