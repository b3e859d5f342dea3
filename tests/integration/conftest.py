from __future__ import annotations

import os

from tests.environments import QUICK_JAVA

# Of the JVM that PySpark starts in the process of the tests.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-XX:+UseSerialGC {QUICK_JAVA}")
