"""The rules of the house that no linter knows: sizes, places, links, and what must not be in a file."""

from __future__ import annotations

import ast
import functools
import json
import re
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MODULE_LINES_MAX = 400
# A class that is one thought is not cut in two for the sake of a number.
CLASS_MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
TOP_LEVEL = {
    "CHANGELOG.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "app", "benchmarks", "conftest.py",
    "docker-compose.yml", "docs", "examples", "migrations", "pyproject.toml", "tests", "uv.lock",
}  # fmt: skip
DEFINITION = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Written so that this file does not contain what it forbids.
LEFT_BEHIND = re.compile(r"/work[/]|/root[/]|/home/(?!me\b)\w+|[.]pyenv[/]|^(<{7}|>{7}) ")


@functools.cache
def files() -> tuple[Path, ...]:
    """What is, or would be, committed; relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout: what belongs to the project cannot be told")
    return tuple(
        path for name in listed.stdout.split("\0") if name and (ROOT / (path := Path(name))).is_file()
    )


def python_files() -> list[Path]:
    return [path for path in files() if path.suffix == ".py"]


def pages() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


def lines(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length of every function of a module, docstring included and decorators left out."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def most_lines(path: Path) -> int:
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    defined = [type(node) for node in body if isinstance(node, DEFINITION)]
    return CLASS_MODULE_LINES_MAX if defined == [ast.ClassDef] else MODULE_LINES_MAX


def test_the_files_of_the_project_are_found() -> None:
    assert Path("app/model/jobgraph.py") in files()
    assert len(python_files()) > 100


def limits(module: ast.Module) -> Iterator[tuple[int, ast.stmt]]:
    """Numbers that a module has a name for: large ones that are not round, which are hardly the same by chance."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, int) and value > 10_000 and value % 1_000:
                yield value, node


def test_a_limit_goes_by_its_name() -> None:
    modules = {
        path: ast.parse((ROOT / path).read_text(encoding="utf-8"))
        for path in python_files()
        if path.parts[0] == "app"
    }
    named = {value for module in modules.values() for value, _ in limits(module)}
    assert 32768 in named and 65535 in named
    again = []
    for path, module in modules.items():
        own = {id(part) for _, node in limits(module) for part in ast.walk(node)}
        again += [
            f"{path}:{node.lineno}: {node.value}"
            for node in ast.walk(module)
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value in named
            if id(node) not in own
        ]
    assert again == []


def test_modules_are_short() -> None:
    lengths = {path: length for path in python_files() if (length := lines(path)) > MODULE_LINES_MAX}
    long = {str(path): length for path, length in lengths.items() if length > most_lines(path)}
    assert long == {}, f"longer than {MODULE_LINES_MAX} lines, or {CLASS_MODULE_LINES_MAX} of one class"


def test_functions_are_short() -> None:
    long = {
        f"{path}: {name}": length
        for path in python_files()
        for name, length in functions(path)
        if length > FUNCTION_LINES_MAX
    }
    assert long == {}, f"longer than {FUNCTION_LINES_MAX} lines"


def test_nothing_names_a_path_of_a_development_machine_or_is_a_conflict_of_git() -> None:
    found = []
    for path in files():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if LEFT_BEHIND.search(line)
        ]
    assert found == []


def test_the_root_holds_only_what_belongs_there() -> None:
    found = {path.parts[0] for path in files()}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            place = (ROOT / page.parent / name) if name else ROOT / page
            if not place.exists() or (anchor and anchor not in anchors(place)):
                broken.append(f"{page}: {target}")
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_commands_of_the_pages_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z ]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    used = {
        (str(page), name)
        for page in pages()
        for name in re.findall(
            r"(?:^|`)make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert ("README.md", "test") in used
    assert {(page, name) for page, name in used if name not in known} == set()


def test_scripts_of_ci_can_be_run() -> None:
    scripts = [path for path in files() if path.parts[0] == ".ci"]
    assert Path(".ci/run") in scripts
    for script in scripts:
        assert (ROOT / script).stat().st_mode & stat.S_IXUSR, script
        checked = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


def test_the_lock_names_public_hosts_only() -> None:
    hosts = set(re.findall(r"[a-z]+://([^/\"]+)", (ROOT / "uv.lock").read_text(encoding="utf-8")))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


def test_the_locked_spark_is_the_one_that_the_project_names() -> None:
    """Drivers and checkpoints depend on it, so it is exact, and changes in one place on purpose."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    locked = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    (spark,) = (package["version"] for package in locked if package["name"] == "pyspark")
    assert f"pyspark=={spark}" in project["project"]["dependencies"]


# What cannot be built here is at least read.


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    kept = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in kept)]


def test_the_image_is_built_from_files_that_exist_and_are_sent() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            *sources, _target = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source in sent, source


def test_the_image_names_versions_and_does_not_run_as_root() -> None:
    stages = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert stages and all(re.search(r":\d+[.]\d+", stage) for stage in stages)
    users = [rest for word, rest in instructions() if word == "USER"]
    assert users and users[-1] not in ("root", "0")
    assert json.loads(next(rest for word, rest in instructions() if word == "ENTRYPOINT"))


def test_the_compose_file_is_consistent() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert set(compose) <= {"services", "volumes", "secrets"}
    server = compose["services"]["slotwise"]
    for service in compose["services"].values():
        for mount in service.get("volumes", []):
            assert mount.split(":")[0] in compose["volumes"], mount
        assert set(service.get("secrets", [])) <= set(compose.get("secrets", {}))
    assert set(server["depends_on"]) <= set(compose["services"])
    # Only loopback of the host is published: who wants more puts a proxy with TLS before it.
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])


def test_the_settings_of_the_compose_file_are_settings_of_the_server() -> None:
    from app.settings import ENV_PREFIX, Settings

    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    image = [rest.split("=")[0] for word, rest in instructions() if word == "ENV"]
    names = [*compose["services"]["slotwise"]["environment"], *image]
    ours = {name for name in names if name.startswith(ENV_PREFIX)}
    assert ours
    assert {name for name in ours if name[len(ENV_PREFIX) :].lower() not in Settings.model_fields} == set()


def test_what_ci_leaves_out_is_said() -> None:
    """The files with tests that are marked `long` are those of the list."""
    page = (ROOT / "docs/development.md").read_text(encoding="utf-8")
    said = page.partition("### What CI leaves out")[2]
    rows = [line.split("|")[1] for line in said.splitlines() if line.startswith("| `test_")]
    tests = [path for path in python_files() if path.name.startswith("test_") and path.parts[1] != "unit"]
    marked = [path.name for path in tests if "mark.long" in (ROOT / path).read_text(encoding="utf-8")]
    assert sorted(re.findall(r"`(test_\w+[.]py)`", "".join(rows))) == sorted(marked)


def test_the_files_that_the_page_on_development_names_exist() -> None:
    """docs/development.md names files, and in the table of changes also what to look for in them."""
    page = (ROOT / "docs/development.md").read_text(encoding="utf-8")

    def found(name: str) -> list[str]:
        places = [root / name for root in (ROOT, ROOT / "app", ROOT / "app/scheduler")]
        return [place.read_text(encoding="utf-8") for place in places if place.is_file()]

    named = re.findall(r"`(\w+(?:/\w+)+[.]py)`", page)
    assert len(named) > 40
    assert sorted({name for name in named if not found(name)}) == []
    missing = []
    for row in page.partition("Where to go to change")[2].partition("## Tests")[0].splitlines():
        text = "".join(text for name in re.findall(r"`([\w/]+[.]py)`", row) for text in found(name))
        names = re.findall(r"`(\w+(?:[.]\w+)?)`", row) if text else []
        missing += [name for name in names if name.rpartition(".")[2] not in text]
    assert missing == []
