"""What is computed: names, sizes in memory, work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_gemm.closing import _kernel_of
from pytest_gemm.problem import Problem

PLAIN = Problem("gemm", 5, 7, 3)


@pytest.mark.parametrize(
    ("words", "label"),
    [
        ({}, "5x7x3-float32"),
        ({"dtype": "float16", "out_dtype": ""}, "5x7x3-float16"),
        ({"dtype": "float16", "out_dtype": "float32"}, "5x7x3-float16+out:float32"),
        ({"dtype": "int8", "out_dtype": "int32", "acc_dtype": "int32"}, "5x7x3-int8"),
        ({"transb": "T", "layout": "column-major"}, "5x7x3-float32+NT+column"),
        ({"alpha": 2.0, "beta": 0.5}, "5x7x3-float32+alpha:2+beta:0.5"),
        ({"ldb": 9, "batch": 4, "strideC": 48}, "5x7x3-float32+ldb:9+batch:4+strideC:48"),
        # What is asked of the result is not what is computed.
        ({"reference": "/refs.py:relu", "reference_reads_c": True}, "5x7x3-float32"),
        ({"dtype": "float16", "out_dtype": "", "acc_dtype": "float16"}, "5x7x3-float16"),
    ],
)
def test_the_label_says_what_makes_another_benchmark(words: dict, label: str) -> None:
    assert replace(PLAIN, **words).label == label


def test_types_follow_the_operands() -> None:
    assert (PLAIN.out_dtype, PLAIN.acc_dtype) == ("float32", "float32")
    half = Problem("gemm", 5, 7, 3, dtype="float16")
    assert (half.out_dtype, half.acc_dtype) == ("float16", "float32")
    int8 = Problem("gemm", 5, 7, 3, dtype="int8")
    assert [int8.types[name].name for name in "ABC"] == ["int8", "int8", "int32"]


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        ({}, [(5, 3), (3, 7), (5, 7)]),
        ({"transa": "T"}, [(3, 5), (3, 7), (5, 7)]),
        ({"transb": "T"}, [(5, 3), (7, 3), (5, 7)]),
        ({"layout": "column-major"}, [(3, 5), (7, 3), (7, 5)]),
        ({"layout": "column-major", "transa": "T", "transb": "T"}, [(5, 3), (3, 7), (7, 5)]),
    ],
)
def test_what_lies_in_memory(words: dict, stored: list[tuple[int, int]]) -> None:
    problem = replace(PLAIN, **words)
    assert [problem.stored(name) for name in "ABC"] == stored
    assert [problem.ld(name) for name in "ABC"] == [length for _, length in stored]
    assert problem.shapes == PLAIN.shapes


def test_a_batch_counts_whole() -> None:
    batch = replace(PLAIN, batch=4, ldb=9)
    assert batch.flops == 4 * PLAIN.flops == 4 * 2 * 5 * 7 * 3
    assert batch.bytes == 4 * PLAIN.bytes == 4 * 4 * (15 + 21 + 35)
    assert (batch.stride("A"), batch.stride("B"), batch.stride("C")) == (15, 27, 35)
    assert batch.sizes["strideB"] == 27
    assert batch.single == replace(PLAIN, ldb=9)


def test_the_least_traffic_knows_types_and_whether_c_is_read() -> None:
    int8 = Problem("gemm", 5, 7, 3, dtype="int8")
    assert int8.bytes == 15 + 21 + 4 * 35
    assert replace(int8, beta=1.0).bytes == 15 + 21 + 8 * 35
    assert replace(PLAIN, reference="r.py:f", reference_reads_c=True).bytes == 4 * (15 + 21 + 70)


def test_gaps_are_between_rows_or_matrices() -> None:
    assert not PLAIN.has_gaps
    assert not replace(PLAIN, batch=3).has_gaps
    assert replace(PLAIN, ldb=8).has_gaps
    assert not replace(PLAIN, transb="T", ldb=3).has_gaps
    assert replace(PLAIN, batch=3, strideC=36).has_gaps


@pytest.mark.parametrize("kernel", ["tiled", "a-b", "k[BM:32+ROWS:1]"])
@pytest.mark.parametrize(
    "words", [{}, {"dtype": "bfloat16", "out_dtype": ""}, {"alpha": -1e-5, "transa": "T"}]
)
def test_a_kernel_is_found_in_the_name_of_its_benchmark(kernel: str, words: dict) -> None:
    for name in (f"{kernel}-{replace(PLAIN, **words).label}", f"{kernel}-5x7-float32"):
        assert _kernel_of(name) == _kernel_of(f"{name}-cold") == kernel
