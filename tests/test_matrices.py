import hashlib

import numpy as np
import pytest

from pytest_gemm.bits import decode, encode
from pytest_gemm.errors import ConfigError
from pytest_gemm.matrices import RECIPES, integer_range, operands, raw_words, reference
from pytest_gemm.problem import Problem

RECTANGLE = Problem.parse("37x35x33")


def gemm(*sizes, **rest):
    return Problem("gemm", *sizes, **rest)


@pytest.mark.parametrize(
    ("recipe", "name", "digest"),
    [
        ("uniform", "A", "04ce38b0521532a5"),
        ("uniform", "B", "35232f241b97aca6"),
        ("uniform", "C", "0757c631e419d94d"),
        ("integers", "A", "dac56407fedf3a91"),
        ("integers", "B", "b34c9243a9524a92"),
        ("integers", "C", "37bd7d9d0133c8e1"),
    ],
)
def test_operands_have_the_same_bits_everywhere(recipe, name, digest):
    matrix = getattr(operands(RECTANGLE, 0, recipe), name)
    assert hashlib.sha256(matrix.astype("<f4").tobytes()).hexdigest()[:16] == digest


def test_the_first_elements():
    steps = operands(RECTANGLE).A[0, :3].astype(np.float64) * 2**23
    assert steps.tolist() == [-7213342, 1023778, -821990]
    assert operands(RECTANGLE, 0, "integers").A[0, :8].tolist() == [2, -5, 6, 4, -4, 3, 8, 3]


@pytest.mark.parametrize("recipe", RECIPES)
def test_operands_are_contiguous_float32_of_the_problems_shapes(recipe):
    for problem in (RECTANGLE, Problem.parse("5x7", "add"), gemm(2, 3, 4, lda=9, ldb=9, ldc=9)):
        data = operands(problem, 1, recipe)
        for name, shape in problem.shapes.items():
            matrix = getattr(data, name)
            assert (matrix.shape, matrix.dtype) == (shape, np.float32)
            assert matrix.flags.c_contiguous


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_stream_is_its_own(recipe):
    square = Problem.parse("16")
    matrices = [
        getattr(operands(square, seed, recipe), name) for seed in (0, 1, -1) for name in "ABC"
    ]
    assert len({m.tobytes() for m in matrices}) == len(matrices)


def test_uniform_values_are_exact_multiples_in_the_half_open_interval():
    A = operands(Problem.parse("200"), 3).A.astype(np.float64)
    steps = A * 2**23
    assert np.array_equal(steps, np.rint(steps))
    assert A.min() >= -1
    assert A.max() < 1
    # 40,000 values: the mean and the mean square are within five standard deviations.
    assert abs(A.mean()) < 5 * (1 / 3 / A.size) ** 0.5
    assert abs((A**2).mean() - 1 / 3) < 5 * (4 / 45 / A.size) ** 0.5


def test_integers_take_every_value_but_zero():
    A = operands(Problem.parse("64"), 0, "integers").A
    assert np.unique(A).tolist() == [*range(-8, 0), *range(1, 9)]


@pytest.mark.parametrize(
    ("problem", "r"),
    [
        (gemm(8, 8, 1000), 8),
        (gemm(8, 8, 2**18 - 1), 8),
        (gemm(8, 8, 2**18), 7),
        (gemm(8, 8, 2**17, 2.0, -1.0), 7),
        (gemm(8, 8, 2**22), 1),
        (gemm(8, 8, 2**24 - 1), 1),
        (gemm(8, 8, 100, 1.0, 2.0**21), 7),
        (Problem.parse("64x64", "add"), 8),
    ],
)
def test_integers_are_narrowed_so_that_sums_stay_exact(problem, r):
    assert integer_range(problem) == r

    def limit(r):
        return r * r * problem.K * abs(problem.alpha) + r * abs(problem.beta)

    assert limit(r) < 2**24
    assert r == 8 or limit(r + 1) >= 2**24


def test_narrowed_integers_keep_to_their_range():
    data = operands(gemm(1, 1, 2**20), 0, "integers")
    assert np.unique(data.A).tolist() == [-3, -2, -1, 1, 2, 3]


def test_a_k_beyond_every_exact_sum_is_one_sentence():
    with pytest.raises(ConfigError, match="1x1x16777216 has no exact check"):
        integer_range(gemm(1, 1, 2**24))


def test_an_unknown_recipe_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'normal'.*uniform, integers"):
        operands(RECTANGLE, 0, "normal")


@pytest.mark.parametrize("recipe", RECIPES)
def test_more_than_can_be_counted_does_not_fit_into_memory(recipe: str) -> None:
    problem = Problem.parse("999999999999x999999999999x1")
    with pytest.raises(ConfigError, match=r"no memory for operands of 3.73e.15 GiB"):
        operands(problem, recipe=recipe)


def test_the_reference_is_the_float64_product():
    problem = gemm(2, 2, 2, 2.0, -1.0)
    data = operands(problem, 0, "integers")
    A, B, C = (getattr(data, n).astype(int).tolist() for n in "ABC")
    by_hand = [
        [2 * sum(A[i][k] * B[k][j] for k in range(2)) - C[i][j] for j in range(2)] for i in range(2)
    ]
    assert reference(problem, data).tolist() == by_hand


def test_the_reference_ignores_c_when_beta_is_zero():
    data = operands(RECTANGLE)
    data.C[...] = np.nan
    assert np.isfinite(reference(RECTANGLE, data)).all()


def test_the_reference_of_an_addition():
    problem = Problem.parse("3x4", "add")
    data = operands(problem)
    assert np.array_equal(reference(problem, data), data.A.astype(float) + data.B)


TYPED = {
    "float64": ("float64", 2.0**-52),
    "float16": ("float32", 2.0**-10),
    "bfloat16": ("float32", 2.0**-7),
}


@pytest.mark.parametrize("dtype", TYPED)
def test_timed_operands_have_all_digits_of_their_type(dtype):
    carrier, step = TYPED[dtype]
    data = operands(Problem("gemm", 64, 64, 64, dtype=dtype))
    for matrix in (data.A, data.B, data.C):
        assert matrix.dtype == carrier
        values = matrix.astype(np.float64)
        assert np.array_equal(values, np.round(values / step) * step)
        assert (np.round(values / step) % 2 == 1).mean() > 0.4  # the last digit too
        assert values.min() >= -1
        assert values.max() < 1
        assert abs(values.mean()) < 0.05
        assert np.array_equal(decode(encode(matrix, dtype), dtype), matrix)


def test_the_operands_of_other_types_are_pinned():
    """Raw words of a stream that never changes, by hand."""
    first = raw_words("pytest-gemm 1 0 uniform A 37x33", 2)
    whole = int(first[0]) | int(first[1]) << 32
    for dtype, bits in (("float16", 11), ("bfloat16", 8)):
        A = operands(Problem("gemm", 37, 35, 33, dtype=dtype)).A
        assert A[0, 0] == ((int(first[0]) >> 32 - bits) - 2 ** (bits - 1)) / 2 ** (bits - 1)
    A = operands(Problem("gemm", 37, 35, 33, dtype="float64")).A
    assert A[0, 0] == ((whole >> 11) - 2**52) / 2**52


@pytest.mark.parametrize(
    ("problem", "r"),
    [
        (Problem("gemm", 8, 8, 37, dtype="float64"), 2**20),
        (Problem("gemm", 8, 8, 2**20, dtype="float64"), 92681),
        (Problem("gemm", 8, 8, 192, dtype="int8"), 127),
        (Problem("gemm", 8, 8, 2**18, dtype="int8"), 90),
        (Problem("gemm", 8, 8, 192, dtype="float16", out_dtype="float32"), 8),
        (Problem("gemm", 8, 8, 37, dtype="float16"), 7),
        (Problem("gemm", 8, 8, 192, dtype="float16"), 3),
        (Problem("gemm", 8, 8, 192, 2.0, -1.0, "float16"), 2),
        (Problem("gemm", 8, 8, 192, dtype="bfloat16"), 1),
        (Problem("gemm", 8, 8, 256, dtype="bfloat16"), 8),  # rounded once from exact sums
    ],
)
def test_whole_numbers_of_other_types_stay_exact(problem, r):
    assert integer_range(problem) == r


def test_sums_of_float16_have_an_end():
    with pytest.raises(ConfigError, match=r"sums of K = 2048 products pass 2\^11"):
        integer_range(Problem("gemm", 8, 8, 2048, dtype="float16", acc_dtype="float16"))


def test_timed_integers_are_never_zero_and_cannot_overflow():
    data = operands(Problem("gemm", 64, 64, 64, dtype="int8"))
    assert (data.A.dtype, data.C.dtype) == (np.int8, np.int32)
    assert data.A.all()
    assert (data.A.min(), data.A.max()) == (-127, 127)


def test_the_products_of_a_batch_differ():
    problem = Problem("gemm", 9, 8, 7, batch=3)
    data = operands(problem)
    assert data.A.shape == (3, 9, 7)
    assert not np.array_equal(data.A[0], data.A[1])
    assert np.array_equal(reference(problem, data)[2], reference(problem.single, data[2]))
