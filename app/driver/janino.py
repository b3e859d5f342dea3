"""Java of ours, compiled in the JVM of this process by Janino, with which Spark compiles its own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def compiled(jvm: Any, source: str, loader: Any) -> Any:
    """Janino's ``SimpleCompiler`` after it has compiled the file ``source`` of this package, which sees what the class
    loader ``loader`` has."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(Path(__file__).with_name(source).read_text(encoding="ascii"))
    return compiler
