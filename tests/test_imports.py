"""Imports go one way, and loading the plugin loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pytest_gemm"

ORDER = [
    *("errors", "scratch", "versioned"),
    *("dtypes", "problem", "expressions", "cuda_source", "cuda_items"),
    *("slicing", "frontmatter", "includes"),
    *("limits", "kernelspec", "binding"),
    *("schema", "operation", "epilogue", "declaration", "python_kernel", "registry"),
    *("stats", "fits", "bits", "matrices", "baselines"),
    *("margin", "calibration", "tolerance", "screen", "duet", "verdict", "conditions"),
    *("backends.base", "backends.choice", "backends.host", "backends.serial"),
    *("backends.cuda", "backends"),
    *("device", "comparison", "regions", "causes", "diagnosis", "correctness", "timing"),
    *("launching", "overheads", "traffic", "checking", "static"),
    *("revision", "report.formats", "options", "case", "result", "reuse", "pipeline", "references"),
    *("apart", "function", "dueling", "runner"),
    *("workers.turns", "workers.output", "workers.state"),
    *("workers.serve", "workers.worker", "workers.pool", "workers"),
    *("executor", "exact", "revival", "against", "judging"),
    *("record", "static.gate", "limiting", "collection", "calibrating"),
    *("markdown", "report", "session", "closing", "studies", "doctor"),
    *("profile", "adopt", "cli"),
    *("publish", "selection", "recorder", "shared", "fixture", "plugin"),
]
"""A module imports only from those named before it, or from its own package."""

HEAVY = ("numpy", "scipy", "cupy", "hypothesis", "subprocess", "ctypes", "tomllib")
"""What ``import pytest_gemm.plugin`` must not bring in beyond what pytest has."""


def modules() -> list[Path]:
    return sorted(
        p
        for p in PACKAGE.rglob("*.py")
        if p.relative_to(PACKAGE).name != "__init__.py" or p.parent != PACKAGE
    )


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def rank(name: str) -> int:
    """The place in ORDER of the longest prefix of the name that stands there."""
    while name:
        if name in ORDER:
            return ORDER.index(name)
        name = name.rpartition(".")[0]
    raise AssertionError("a module is missing from ORDER")


def imports(path: Path) -> set[str]:
    """The modules of pytest_gemm that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_gemm"):
            base = (node.module or "").removeprefix("pytest_gemm").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                is_module = (PACKAGE / (inner.replace(".", "/") + ".py")).exists()
                found.add(inner if is_module or not base else base)
        elif isinstance(node, ast.Import):
            found |= {
                a.name.removeprefix("pytest_gemm.")
                for a in node.names
                if a.name.startswith("pytest_gemm.")
            }
    return {
        name
        for name in found
        if (PACKAGE / name.replace(".", "/")).exists()
        or (PACKAGE / (name.replace(".", "/") + ".py")).exists()
    }


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_from_those_before_it(path: Path) -> None:
    own = rank(name_of(path))
    late = {name for name in imports(path) if rank(name) > own}
    assert not late, f"{name_of(path)} imports {sorted(late)}, which come later in ORDER"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_pytest_is_imported_by_the_plugins_own_modules_alone(path: Path) -> None:
    allowed = {"options", "publish", "selection", "recorder", "shared", "fixture", "plugin"}
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert name_of(path) in allowed or "pytest" not in names
    assert "_pytest" not in {n.partition(".")[0] for n in names}
    assert "from _pytest" not in text


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import pytest_gemm.plugin;"
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pytest_gemm" in run.stdout.split()
    assert not set(HEAVY) & set(run.stdout.split())
