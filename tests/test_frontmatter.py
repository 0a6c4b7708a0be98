from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_gemm.declaration import read_kernel
from pytest_gemm.errors import SpecError
from pytest_gemm.frontmatter import read_front_matter, read_sidecar, strip_front_matter
from pytest_gemm.kernelspec import KernelSpec
from pytest_gemm.problem import Problem

BLOCK = """// A kernel.
// /// gemm
// block = [16,
//          16]
//
// # a comment
// params.BM = 3
// [sweep]
// BN.host = [1]
// TILE = { host = [1], cuda = [2] }
// ///
__global__ void gemm() {}
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_block_and_the_lines_of_its_keys(newline: str) -> None:
    (table,) = read_front_matter(BLOCK.replace("\n", newline), "k.cu")
    assert table.data == {
        "block": [16, 16],
        "params": {"BM": 3},
        "sweep": {"BN": {"host": [1]}, "TILE": {"host": [1], "cuda": [2]}},
    }
    assert table.line == 2
    assert table.line_of("block") == 3
    assert table.line_of("params", "BM") == 7
    assert table.line_of("sweep") == 8
    assert table.line_of("sweep", "BN", "host") == 9
    assert table.line_of("sweep", "TILE", "cuda") == 10
    assert table.line_of("sweep", "other") == 8
    assert table.line_of("grid") == 2


def test_several_blocks_and_foreign_ones() -> None:
    text = (
        "// /// gemm\n// name = 'a'\n// ///\n"
        "// /// script\n// name = 'x'\n// ///\n"
        "/// GEMM\n// A heading, not a block.\n"
        "// /// gemm  \n// name = 'b'\n// ///  \n"
    )
    tables = read_front_matter(text, "k.cu")
    assert [table.data["name"] for table in tables] == ["a", "b"]
    assert [table.line_of("name") for table in tables] == [2, 10]


def test_no_block() -> None:
    assert read_front_matter("__global__ void gemm() {}\n", "k.cu") == ()


def test_strip_removes_the_blocks_only() -> None:
    assert strip_front_matter(BLOCK) == "// A kernel.\n__global__ void gemm() {}\n"
    assert strip_front_matter("// /// gemm\n") == "// /// gemm\n"
    kept = strip_front_matter(BLOCK, keep_lines=True)
    assert kept == "// A kernel.\n" + 10 * "\n" + "__global__ void gemm() {}\n"


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("// /// gemm\n// a =\n// ///", 2, "not TOML: invalid value"),
        ("x\n// /// gemm\n// a = 1\n// b = [\n// ///", 4, "not TOML"),
        ("// /// gemm\n// a = 1\n// a = 2\n// ///", 3, "a is there twice: drop one"),
        ("// /// gemm\n// p.X = 1\n// p.X = [\n// 2,\n// ]\n// ///", 3, "p.X is there twice"),
        ("// /// gemm\n// a = " + "1" * 5000 + "\n// ///", 2, "too many digits"),
        ("// /// gemm\n// a = " + "[" * 5000 + "\n// ///", 2, "nested too deeply"),
        ("// /// gemm\n// a = 1\n", 1, "not closed before line 3: end it with a line '// ///'"),
        ("// /// gemm\n// a = 1\nint x;\n// ///", 1, "not closed before line 3"),
        ("// /// gemm\n// a = 1\n// /// gemm\n// ///", 1, "not closed before line 3"),
        ("// /// gemm\n// a = 1\n// //\n", 3, "'// //' closes no block"),
        ("// /// gemm\n// a = 1\n// /// end\n", 3, "'// /// end' closes no block"),
        ("// /// gemm\n" + "// \n" * 3000, 1, "more than 2000 lines"),
        ("// /// gemm\n//a = 1\n// ///", 2, "lacks the space after //: write '// a = 1'"),
        ("/// gemm\n// a = 1\n", 1, "'/// gemm' opens no block: write '// /// gemm'"),
        ("\n  // /// gemm\n// a = 1\n", 2, "opens no block"),
        ("// /// gem\n// a = 1\n", 1, "'// /// gem' opens no block"),
        ("// /// GEMM\n// a = 1\n", 1, "opens no block"),
        ("// ///gemm\n// a = 1\n", 1, "opens no block"),
        ("//// gemm\n// a = 1\n", 1, "opens no block"),
    ],
)
def test_mistakes(text: str, line: int, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_front_matter(text, "k.cu")
    assert part in str(caught.value)
    assert (caught.value.path, caught.value.line) == ("k.cu", line)
    assert "\n" not in str(caught.value)
    assert "clang-format" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        # What clang-format (Google style) made of a text of more than 80 columns.
        '// /// gemm\n// change = "this is a long line which exceeds the eighty columns that\n'
        '// clang-format allows" deterministic = true\n// ///\n',
        '// /// gemm\n// change = "a long text that\n// goes on" ///\nint x;\n',
        '// /// gemm\n// grid = ["cdiv(N, 16)", "cdiv(M, 16)", "1"] block = [16]\n// ///\n',
    ],
)
def test_reflowed_blocks_are_recognised(text: str) -> None:
    with pytest.raises(SpecError, match=r"clang-format .*'// clang-format off'.*\*\.gemm\.toml"):
        read_front_matter(text, "k.cu")


def test_sidecar() -> None:
    text = (
        "# two kernels\n[[kernel]]\nsource = 'a.cu'\n[kernel.params]\nBM = 3\n"
        "[[kernel]]\nsource = 'b.cu'\nsweep.BN = [\n1]\n"
    )
    first, second = read_sidecar(text, "s.gemm.toml")
    assert first.data == {"source": "a.cu", "params": {"BM": 3}}
    assert (first.line, first.line_of("source"), first.line_of("params", "BM")) == (2, 3, 5)
    assert (second.line, second.line_of("sweep", "BN")) == (6, 8)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("", 1, "holds no [[kernel]] table"),
        ("\nkernel = 1", 2, "write [[kernel]]"),
        ("kernel = [1]", 1, "write [[kernel]]"),
        ("[kernel]\na = 1", 1, "write [[kernel]]"),
        ("[[kernel]]\n[other]\n", 2, "'other' stands outside [[kernel]]"),
        ("[[kernel]]\na = 1\nb = \n", 3, "not TOML"),
        ("[[kernel]]\n" * 2001, 1, "more than 2000"),
    ],
)
def test_sidecar_mistakes(text: str, line: int, part: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_sidecar(text, "s.gemm.toml")
    assert part in str(caught.value)
    assert (caught.value.path, caught.value.line) == ("s.gemm.toml", line)


VALID = """\
// /// gemm
// name = "k"
// op = "gemm"
// entry = "gemm<BM, 8>"
// args = ["C", "A", "B", "lda", "2 * N", 7]
// block = ["BM", 4]
// grid = ["cdiv(N, BM)", "max(M, 1) // 4 + 1"]
// shared_mem = "4 * BM"
// requires = ["K % 4 == 0", "1 < M <= 4096 or not N"]
// sizes = { host = ["64", "32x48x16"], cuda = [1024] }
// dtype = "float32"
// layout = "row-major"
// derived_from = "other"
// change = "one thing"
// deterministic = true
// params.TILE = 4
//
// [sweep]
// BM = [8, 16]
// WAYS = { host = [1], cuda = [1, 2] }
// ///
"""
CODE = """\
template <int TM, int TN>
__global__ void gemm(float* C, const float* A, const float* B, int lda, int n, long TILES) {
    int x = TILE + WAYS;
}
"""
VALUES = ["1", "-3", "true", "1.5", "'M'", "'gemm'", "[]", "[1]", "['M', 1]", "{}", "{host=[1]}"]
VALUES += ["[1, 1]", "['']", "''", "2020-01-01", "'''a\n// b'''", "[[1]]", "9" * 30, "'K % 2 == 0'"]
KEYS = ["name", "op", "entry", "args", "block", "grid", "shared_mem", "requires", "sizes", "dtype"]
KEYS += ["layout", "derived_from", "change", "deterministic", "params", "params.BM", "params.T"]
KEYS += ["sweep", "sweep.BM", "sweep.host", "sizes.host", "lda", "source", "'a b'", "x.y.z.u.v"]

line_texts = st.one_of(
    st.builds("// {} = {}".format, st.sampled_from(KEYS), st.sampled_from(VALUES)),
    st.sampled_from([*VALID.splitlines(), *CODE.splitlines(), "", "//", "// [sweep]", "// [a.b]"]),
    st.text(max_size=30),
    st.text(alphabet="/ gem=[]{}\"'#.,\n\r\t019MNKABC+-*%()<>_", max_size=30),
)
texts = st.one_of(
    st.lists(line_texts, max_size=12).map("\n".join),
    st.lists(line_texts, max_size=8).map(lambda x: "\n".join(["// /// gemm", *x, "// ///", CODE])),
)


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """The valid declaration with a few lines or characters changed."""
    file_lines = (VALID + CODE).split("\n")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(file_lines) - 1))
        line = file_lines[at]
        column = draw(st.integers(0, len(line)))
        match draw(st.integers(0, 4)):
            case 0:
                del file_lines[at]
            case 1:
                file_lines.insert(at, draw(line_texts))
            case 2:
                file_lines[at] = line[:column] + line[column + 1 :]
            case 3:
                file_lines[at] = line[:column] + draw(st.text(max_size=3)) + line[column:]
            case 4:
                key = line.partition("=")[0]
                file_lines[at] = f"{key}= {draw(st.sampled_from(VALUES))}"
        file_lines = file_lines or [""]
    return draw(st.sampled_from(["\n", "\r\n"])).join(file_lines)


def outcome(text: str) -> list[KernelSpec] | SpecError:
    """What comes of a file: its declarations, with everything that they say evaluated."""
    specs = []
    try:
        for table in read_front_matter(text, "k.cu"):
            spec = read_kernel(table, path="k.cu", source=text, filename="k.cu", default_name="k")
            for kernel in (*spec.kernels("host"), *spec.kernels("cuda")):
                assert kernel.id
                assert len(kernel.source_hash) == 64
                for size in spec.sizes("host") or ("100x70x33",):
                    problem = Problem.parse(size, spec.op)
                    if not kernel.skip_reason(problem):
                        assert len(kernel.arguments(problem)) == len(spec.args)
                        assert min(*kernel.launch(problem).grid) >= 1
            specs.append(spec)
    except SpecError as error:
        return error
    return specs


def check(text: str) -> None:
    result = outcome(text)
    if isinstance(result, SpecError):
        assert result.path == "k.cu"
        assert 1 <= result.line <= text.count("\n") + 2
        assert "\n" not in str(result)
        assert len(str(result)) < 600


def test_the_text_that_is_mutated_is_valid() -> None:
    result = outcome(VALID + CODE)
    assert isinstance(result, list), str(result)
    assert len(result[0].kernels("cuda")) == 4


FUZZ = settings(
    max_examples=5000, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@FUZZ
@given(texts)
def test_any_text_is_a_declaration_or_one_sentence(text: str) -> None:
    check(text)


@FUZZ
@given(mutants())
def test_any_mutant_is_a_declaration_or_one_sentence(text: str) -> None:
    check(text)
