from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pytest_gemm
from pytest_gemm.errors import SpecError
from pytest_gemm.kernelspec import Kernel, KernelSpec
from pytest_gemm.problem import Problem
from pytest_gemm.python_kernel import spec_of


def declared(function: Any) -> KernelSpec:
    spec = spec_of(function)
    assert spec is not None
    return spec


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
    assert kernel.launch(Problem.parse("4x5x6")) == ((1, 1, 1), (1, 1, 1), 0)
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
    assert spec.sizes("cuda") == ("1024",)
    assert spec.kernels("cuda") == ()
    first, second = spec.kernels("host")
    assert (first.id, second.id) == ("blocked[tile:8]", "blocked[tile:16]")
    assert second.arguments(Problem("gemm", 4, 5, 6, alpha=2, beta=-1)) == (
        *("stream", 16, 6, "C", 2, -1, 5, 2),
    )
    assert second.takes_alpha_beta
    assert second.uses_ld == ("ldc",)
    assert second.defines == ()
    assert second.skip_reason(Problem.parse("24")) == "requires K % tile == 0"
    assert len({first.source_hash, second.source_hash}) == 2


def test_add() -> None:
    @pytest_gemm.kernel(op="add")
    def add(A: object, B: object, C: object, M: int, N: int) -> None: ...

    assert declared(add).kernels("host")[0].arguments(Problem.parse("3x4", "add"))[3:] == (3, 4)


def test_the_hash_is_of_the_function_not_of_its_declaration() -> None:
    def body(A: object, C: object) -> None: ...

    def hash_of(**keys: Any) -> str:
        return declared(pytest_gemm.kernel(**keys)(body)).kernels("host")[0].source_hash

    assert hash_of(sizes=[64]) == hash_of(sizes=[32], name="other")
    assert declared(body).source.lstrip().startswith("def body")

    @pytest_gemm.kernel(sizes=[8])
    def decorated(A: object, C: object) -> None: ...

    assert declared(decorated).source.lstrip().startswith("def decorated")


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
    ],
)
def test_mistakes(function: Callable[..., object], keys: dict[str, Any], part: str) -> None:
    with pytest.raises(SpecError) as caught:
        pytest_gemm.kernel(**keys)(function)
    line = inspect.unwrap(function).__code__.co_firstlineno
    assert part in str(caught.value)
    assert (caught.value.path, caught.value.line) == (__file__, line)
    assert "\n" not in str(caught.value)
    assert spec_of(function) is None  # type: ignore[arg-type]


def test_only_functions() -> None:
    with pytest.raises(SpecError, match="is for functions, not for <built-in function print>"):
        pytest_gemm.kernel(print)
    with pytest.raises(AttributeError, match="no attribute 'kernels'"):
        pytest_gemm.kernels  # noqa: B018
