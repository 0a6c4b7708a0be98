from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import pytest_gemm
from pytest_gemm.backends.base import LaunchConfig, Matrix, PythonProgram
from pytest_gemm.backends.host import HostBackend
from pytest_gemm.binding import bindable
from pytest_gemm.errors import SpecError
from pytest_gemm.kernelspec import STREAM, Kernel, KernelSpec
from pytest_gemm.limits import Limits
from pytest_gemm.problem import Problem
from pytest_gemm.python_kernel import declared as attached
from tests.conftest import KERNELS, Project


def declared(function: Any) -> KernelSpec:
    spec = attached(function)
    assert isinstance(spec, KernelSpec)
    return spec


def mistake(function: Any) -> SpecError:
    error = attached(function)
    assert isinstance(error, SpecError)
    return error


def test_without_parentheses() -> None:
    @pytest_gemm.kernel
    def mul(A: list[float], B: list[float], C: list[float]) -> None:
        C[0] = A[0] * B[0]

    C = [0.0]
    mul([2.0], [3.0], C)
    assert C == [6.0]
    spec = declared(mul)
    assert (spec.name, spec.op, spec.args, spec.deterministic) == (
        "mul",
        "gemm",
        ("A", "B", "C"),
        False,
    )
    assert spec.path == __file__
    assert spec.line == mul.__code__.co_firstlineno
    assert spec.callable == f"{__file__}::test_without_parentheses.<locals>.mul"
    assert spec.is_python
    (kernel,) = spec.kernels("cuda")
    assert kernel.arguments(Problem.parse("4x5x6")) == ("A", "B", "C")
    assert kernel.launch(Problem.parse("4x5x6")) == ((1, 1, 1), (1, 1, 1), 0, False)
    assert Kernel.from_dict(kernel.to_dict()) == kernel


def test_with_everything() -> None:
    @pytest_gemm.kernel(
        name="blocked",
        sizes={"host": ["64"], "cuda": [1024]},
        requires=["K % tile == 0"],
        params={"depth": 2},
        sweep={"tile": [8, 16]},
        derived_from="mul",
        change="blocks",
        deterministic=True,
        finite_c=True,
        backend="host",
    )
    def f(
        stream: object,
        tile: int,
        K: int,
        C: object,
        alpha: float,
        beta: float,
        ldc: int,
        depth: int,
    ) -> None: ...

    spec = declared(f)
    assert (spec.name, spec.derived_from, spec.change) == ("blocked", "mul", "blocks")
    assert spec.deterministic
    assert spec.finite_c
    assert spec.sizes("cuda") == ("1024",)
    assert spec.kernels("cuda") == ()
    first, second = spec.kernels("host")
    assert (first.id, second.id) == ("blocked[tile:8]", "blocked[tile:16]")
    assert second.arguments(Problem("gemm", 4, 5, 6, alpha=2, beta=-1)) == (
        *("stream", 16, 6, "C", 2, -1, 5, 2),
    )
    assert second.scalars == ("alpha", "beta")
    assert second.uses_ld == ("ldc",)
    assert second.defines == ()
    assert second.skip_reason(Problem.parse("24")) == "requires K % tile == 0"
    assert len({first.source_hash, second.source_hash}) == 2


def test_add() -> None:
    @pytest_gemm.kernel(op="add")
    def add(A: object, B: object, C: object, M: int, N: int) -> None: ...

    assert declared(add).kernels("host")[0].arguments(Problem.parse("3x4", "add"))[3:] == (3, 4)


def test_margin_and_limits() -> None:
    @pytest_gemm.kernel(
        sizes=[64], margin={"host": 5}, max_us={64: 9}, min_gflops=2, backend="host"
    )
    def f(A: object, B: object, C: object) -> None: ...

    (bound,) = declared(f).kernels("host")
    assert bound.margin_on("host") == 0.05
    assert bound.limits_on("host", Problem.parse("64")) == Limits(max_us=9, min_gflops=2)
    assert bound.limits_on("host", Problem.parse("65")) == Limits(min_gflops=2)


def test_the_hash_is_of_the_function_not_of_its_declaration() -> None:
    def body(A: object, C: object) -> None: ...

    def hash_of(**keys: Any) -> str:
        return declared(pytest_gemm.kernel(**keys)(body)).kernels("host")[0].source_hash

    assert hash_of(sizes=[64]) == hash_of(sizes=[32], name="other")
    assert declared(body).source.lstrip().startswith("def body")

    @pytest_gemm.kernel(sizes=[8])
    def decorated(A: object, C: object) -> None: ...

    assert declared(decorated).source.lstrip().startswith("def decorated")


def test_the_docs_name_all_that_a_function_is_given() -> None:
    text = (Path(__file__).parent.parent / "docs" / "python-kernels.md").read_text("utf-8")
    table = text.partition("| parameter |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert sorted(named) == sorted((*bindable("gemm"), STREAM))


def test_on_a_cpu_it_is_given_numpy_arrays_and_no_stream() -> None:
    given: list[Any] = []

    def kernel(C: Any, stream: Any, M: Any) -> None:
        given.append((type(C), C.shape, C.strides, stream, M))

    backend = HostBackend()
    buffer = backend.allocate(4 * 24)
    executable = backend.compile(PythonProgram(kernel, ("C", "stream", "M")))
    matrix = Matrix(buffer, 0, 3, 5, 8, "float32")
    backend.time(executable, LaunchConfig((1, 1, 1), (1, 1, 1)), [matrix, None, 3])
    assert given == [(np.ndarray, (3, 5), (32, 4), None, 3)]


def plain(A: object, B: object, C: object) -> None: ...
def odd(A: object, wA: int, C: object) -> None: ...
def no_c(A: object, B: object) -> None: ...
def variadic(C: object, *rest: object) -> None: ...
def keywords(C: object, **rest: object) -> None: ...
def keyword_only(C: object, *, A: object) -> None: ...
def tiled(C: object, tile: int) -> None: ...
def takes_k(C: object, K: int) -> None: ...
def generator(C: object) -> object:
    yield C


async def coroutine(C: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "keys", "part"),
    [
        (odd, {}, "parameter 'wA' of odd is none of A, B, C, M, N, K, alpha, beta, lda, ldb, ldc"),
        (tiled, {}, "parameter 'tile' of tiled is none of"),
        (no_c, {}, "no_c takes no C, so it cannot write a result: add the parameter C"),
        (variadic, {}, "variadic takes *rest: a kernel's"),
        (keywords, {}, "keywords takes **rest: a kernel's"),
        (keyword_only, {}, "keyword_only takes A: a kernel's parameters are plain names"),
        (generator, {}, "generator is async or a generator"),
        (coroutine, {}, "coroutine is async or a generator"),
        (takes_k, {"op": "add"}, "parameter 'K' of takes_k is none of A, B, C, M, N, lda"),
        (plain, {"nam": "x"}, "unknown keyword 'nam': did you mean 'name'?"),
        (plain, {"block": [1]}, "unknown keyword 'block'"),
        (plain, {"name": "a b"}, "'a b' cannot name a kernel"),
        (plain, {"name": 3}, "name is an integer"),
        (plain, {"op": "axpy"}, "op = 'axpy' is not supported"),
        (
            plain,
            {"backend": "gpu"},
            "backend = 'gpu' is not supported: it is 'host', 'cuda' or None",
        ),
        (plain, {"sizes": "64"}, "sizes is a text: it takes a list"),
        (plain, {"sizes": ["64x"]}, "'64x' is not a size"),
        (plain, {"requires": "K > 1"}, "requires is a text"),
        (plain, {"requires": ["K"]}, "'K' is a number: write a condition"),
        (plain, {"params": {"tile": 8}}, "plain takes no tile: drop params.tile or take it"),
        (tiled, {"params": {"tile": 1.5}}, "params.tile holds a float"),
        (tiled, {"sweep": {"tile": []}}, "sweep.tile is empty"),
        (tiled, {"sweep": {"tile": list(range(257))}}, "the sweeps make 257 kernels"),
        (tiled, {"sweep": [1]}, "sweep is a list: it takes a table"),
        (takes_k, {"params": {"K": 1}}, "params.K hides the problem's own K"),
        (plain, {"params": {3: 1}}, "params: 3 cannot name a parameter"),
        (plain, {"change": "x"}, "give derived_from too"),
        (plain, {"deterministic": "yes"}, "deterministic is a text"),
        (plain, {"margin": "2"}, "margin is a text: it takes a number of percent"),
        (plain, {"max_us": {None: 3}}, "max_us: 'None' is not a size"),
        (plain, {"sizes": [64], "min_gflops": {64: 0}}, "min_gflops.64 = 0 cannot be"),
    ],
)
def test_mistakes(function: Callable[..., object], keys: dict[str, Any], part: str) -> None:
    assert pytest_gemm.kernel(**keys)(function) is function
    error = mistake(function)
    line = inspect.unwrap(function).__code__.co_firstlineno
    assert part in str(error)
    assert (error.path, error.line) == (__file__, line)
    assert "\n" not in str(error)


def test_a_function_that_takes_the_place_of_a_kernel_is_a_mistake() -> None:
    module = {"kernel": pytest_gemm.kernel, "__name__": "m"}
    code = compile("@kernel\ndef mul(A, B, C): ...\n" * 2, "twice.py", "exec")
    exec(code, module)
    error = mistake(module["mul"])
    assert (error.path, error.line) == ("twice.py", 3)
    assert error.message == (
        "mul takes the place of the kernel in line 1: give each function a name of its own"
    )
    # As when a module is loaded again.
    del module["mul"]
    for _ in range(2):
        exec(compile("@kernel\ndef mul(A, B, C): ...\n", "once.py", "exec"), module)
    assert isinstance(declared(module["mul"]), KernelSpec)


def test_a_mistake_that_is_corrected_is_gone() -> None:
    assert "unknown keyword" in mistake(pytest_gemm.kernel(nam="x")(plain)).message
    assert declared(pytest_gemm.kernel(name="x")(plain)).name == "x"


@pytest_gemm.kernel(name="callable")
class Multiply:
    def __call__(self, A: object, C: object) -> None: ...


HERE = inspect.getsourcelines(Multiply)[1]


def test_only_functions() -> None:
    error = mistake(Multiply)
    assert (error.path, error.line) == (__file__, HERE)
    assert error.message == (
        "@pytest_gemm.kernel is for functions, not for the class Multiply: wrap it in a def"
    )
    assert attached(type("Derived", (Multiply,), {})) is None
    assert "not for a partial" in mistake(pytest_gemm.kernel(partial(plain, 1))).message
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(SpecError, match="not for a builtin_function_or_method: wrap") as caught:
        pytest_gemm.kernel(print)
    assert (caught.value.path, caught.value.line) == (__file__, line)
    with pytest.raises(SpecError, match="not for the class int"):
        pytest_gemm.kernel(name="x")(int)
    with pytest.raises(AttributeError, match="no attribute 'kernels'"):
        pytest_gemm.kernels  # noqa: B018


def test_objects_that_keep_no_attributes_declare_nothing() -> None:
    class Proxy:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("not bound")

    assert [attached(value) for value in (Proxy(), 3, None, pytest_gemm, Mock())] == [None] * 5


def test_a_mistake_in_conftest_is_an_error_of_that_file_alone(project: Project) -> None:
    wrong = "\n\n@pytest_gemm.kernel(sizes=[16], nam='x')\ndef wrong(A, B, C): pass\n"
    project.script({}, kernels=dedent(KERNELS) + wrong)
    line = (
        project.path.joinpath("conftest.py")
        .read_text()
        .splitlines()
        .index("@pytest_gemm.kernel(sizes=[16], nam='x')")
    )
    sentence = f"conftest.py:{line + 1}: unknown keyword 'nam': did you mean 'name'?"
    stopped = project.run()
    assert stopped.parseoutcomes() == {"errors": 1}
    assert sentence in stopped.outlines
    assert not any("Traceback" in text for text in (*stopped.outlines, *stopped.errlines))
    result = project.run("--continue-on-collection-errors")
    assert result.parseoutcomes() == {"passed": 5, "errors": 1}
    assert sentence in result.outlines
