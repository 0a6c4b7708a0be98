from __future__ import annotations

import os
import types
from pathlib import Path

import pytest

import pytest_gemm
from pytest_gemm.errors import ConfigError
from pytest_gemm.registry import Registry, load_registry

CODE = (
    "__global__ void {name}(const float* A, const float* B, float* C, int M, int N, int K) {{}}\n"
)
BLOCK = "// /// gemm\n{keys}// block = [16, 16]\n// grid = ['cdiv(N, 16)', 'cdiv(M, 16)']\n// ///\n"


def write(folder: Path, name: str, keys: str = "", code: str = "") -> Path:
    """A kernel file; ``keys`` are lines that come before the launch."""
    path = folder / name
    lines = "".join(f"// {line}\n" for line in keys.splitlines())
    code = code or CODE.format(name=path.stem)
    path.write_text(BLOCK.format(keys=lines) + code, encoding="utf-8")
    return path


def load(root: Path, *files: Path) -> Registry:
    return load_registry((), root, files=files) if files else load_registry([root], root)


def messages(registry: Registry) -> list[str]:
    assert all(error.path for error in registry.errors)
    assert all("\n" not in str(error) for error in registry.errors)
    return [str(error) for error in registry.errors]


def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    write(folder, "b.cu", "derived_from = 'a'")
    write(folder, "a.cu", "sweep.TILE = [1, 2]\nrequires = ['K % TILE == 0']")
    (folder / "tile.cuh").write_text("not read")
    (folder / "helpers.cu").write_text("__device__ int f() { return 1; }\n")
    (folder / "several.cu").write_text("__global__ void x(int a);\n__global__ void y(int a);\n")
    registry = load_registry([folder], tmp_path)
    assert registry.errors == ()
    assert list(registry.specs) == ["a", "b"]
    assert registry.specs["a"].path == "kernels/a.cu"
    assert [kernel.id for kernel in registry.kernels("host")] == ["a[TILE:1]", "a[TILE:2]", "b"]
    assert load_registry([folder, folder], tmp_path, files=[folder / "a.cu"]) == registry


def test_a_folder_outside_the_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    path = write(tmp_path, "a.cu")
    registry = load_registry([tmp_path], tmp_path / "root")
    assert registry.specs["a"].path == path.as_posix()


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the kernel folder .*nowhere does not exist"):
        load_registry([tmp_path / "nowhere"], tmp_path)


def test_a_bad_file_spoils_no_other(tmp_path: Path) -> None:
    write(tmp_path, "a.cu")
    write(tmp_path, "b.cu", "blok = 1")
    write(tmp_path, "c.cu", "entry = 'x'")
    registry = load(tmp_path)
    assert list(registry.specs) == ["a"]
    first, second = messages(registry)
    assert first.startswith("b.cu:2: unknown key 'blok'")
    assert second.startswith("c.cu:2: entry 'x' is not in c.cu")


def test_several_blocks(tmp_path: Path) -> None:
    text = (
        BLOCK.format(keys="// entry = 'second'\n")
        + BLOCK.format(keys="// entry = 'first'\n")
        + BLOCK.format(keys="// entry = 'first'\n// name = 'third'\n")
        + BLOCK.format(keys="// op = 'gemm'\n")
        + CODE.format(name="first")
        + CODE.format(name="second")
    )
    (tmp_path / "many.cu").write_text(text)
    registry = load(tmp_path)
    assert [(s.name, s.entry, s.line) for s in registry.specs.values()] == [
        ("second", "second", 1),
        ("first", "first", 6),
        ("third", "first", 11),
    ]
    assert messages(registry) == [
        "many.cu:17: many.cu has several blocks: give each its entry or name"
    ]


def test_two_kernels_of_one_name(tmp_path: Path) -> None:
    write(tmp_path, "a.cu")
    write(tmp_path, "b.cu", "name = 'a'")
    registry = load(tmp_path)
    assert registry.specs["a"].path == "a.cu"
    assert messages(registry) == [
        "b.cu:1: the kernel a is declared in a.cu:1 already: give one of them another name"
    ]


def test_derived_from_must_exist(tmp_path: Path) -> None:
    path = write(tmp_path, "a.cu", "name = 'a'\nderived_from = 'x'")
    write(tmp_path, "b.cu")
    assert messages(load(tmp_path)) == [
        "a.cu:3: derived_from names 'x', which is no kernel: there are b"
    ]
    assert messages(load(tmp_path, path)) == []


def test_derived_from_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path, "a.cu", "derived_from = 'b'")
    write(tmp_path, "b.cu", "derived_from = 'c'")
    write(tmp_path, "c.cu", "derived_from = 'b'")
    assert messages(load(tmp_path)) == [
        "b.cu:2: derived_from runs in a circle: b from c from b",
        "c.cu:2: derived_from runs in a circle: c from b from c",
    ]


def test_a_kernel_without_front_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.write_text("\n" + CODE.format(name="mm"))
    (text,) = messages(load(tmp_path))
    assert text.startswith("a.cu:2: the kernel mm has no front matter: add a block before it with")
    assert messages(load(tmp_path, path)) == [text]


def test_a_named_file_must_declare_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.write_text("int x;\n")
    assert messages(load(tmp_path)) == []
    (text,) = messages(load(tmp_path, path))
    assert text.startswith("a.cu:1: has no front matter")
    path.write_text("")
    assert len(messages(load(tmp_path, path))) == 1


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"// /// gemm\n// name = '\xff'\n// ///\n")
    (tmp_path / "b.cu").mkdir()
    (tmp_path / "c.cu").write_bytes(b"\xef\xbb\xbf" + write(tmp_path, "c.cu").read_bytes())
    (tmp_path / "d.gemm.toml").write_bytes(b"\n\xff")
    os.mkfifo(tmp_path / "e.cu")
    registry = load(tmp_path)
    assert list(registry.specs) == ["c"]
    assert messages(registry) == [
        "a.cu:2: is not UTF-8: save the file as UTF-8",
        "b.cu: cannot be read: Is a directory",
        "d.gemm.toml:2: is not UTF-8: save the file as UTF-8",
        "e.cu: cannot be read: it is a pipe",
    ]
    assert messages(load(tmp_path, tmp_path / "c.cu")) == []
    (text,) = messages(load(tmp_path, tmp_path / "missing.cu"))
    assert text == "missing.cu: cannot be read: No such file or directory"


def test_an_undeclared_source_beside_a_broken_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.write_text(CODE.format(name="mm"))
    (tmp_path / "a.gemm.toml").write_text("[[kernel]]\nsource = a.cu")
    assert messages(load(tmp_path, path)) == ["a.gemm.toml:2: not TOML: invalid value"]


def test_crlf_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a.cu")
    unix = load(tmp_path).kernels("host")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load(tmp_path).kernels("host") == unix


SIDECAR = """
[[kernel]]
source = "src/mm.cu"
block = [16, 16]
grid = ["cdiv(N, 16)", "cdiv(M, 16)"]
"""


def test_a_sidecar(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    source = tmp_path / "src" / "mm.cu"
    source.write_text("\n" + CODE.format(name="mul"))
    sidecar = tmp_path / "all.gemm.toml"
    sidecar.write_text(SIDECAR)
    for registry in (load(tmp_path), load(tmp_path, sidecar)):
        assert registry.errors == ()
        spec = registry.specs["mm"]
        assert (spec.path, spec.line, spec.filename) == ("all.gemm.toml", 2, "src/mm.cu")
        assert spec.kernels("host")[0].program_fields[1:] == ("src/mm.cu", "mul", ())


def test_a_source_that_a_sidecar_of_its_folder_declares(tmp_path: Path) -> None:
    source = tmp_path / "mm.cu"
    source.write_text(CODE.format(name="mul"))
    (tmp_path / "all.gemm.toml").write_text(
        SIDECAR.replace("src/", "")
        + "name = 'first'\n"
        + SIDECAR.replace("src/", "")
        + "name = 'second'\n"
        + SIDECAR.replace("src/mm", "other")
    )
    (tmp_path / "other.cu").write_text(CODE.format(name="other"))
    assert list(load(tmp_path).specs) == ["first", "second", "other"]
    assert load(tmp_path).errors == ()
    registry = load(tmp_path, source)
    assert list(registry.specs) == ["first", "second"]
    assert registry.errors == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[kernel]]\nblock = [1]\n", "s.gemm.toml:1: source is missing: name the .cu file"),
        ("[[kernel]]\nsource = 'x.cu'\n", "s.gemm.toml:2: source x.cu does not exist"),
        ("[[kernel]]\nsource = 3\n", "s.gemm.toml:2: source is an integer: it takes the path"),
        (
            '[[kernel]]\nsource = "a\\u0000"\n',
            "s.gemm.toml:2: source holds a line break or control",
        ),
        ("[[kernel]]\nsource = '.'\n", "s.gemm.toml:2: source . does not exist"),
        (f"[[kernel]]\nsource = '{300 * 'x'}.cu'\n", f"s.gemm.toml:2: source {300 * 'x'}.cu does"),
        ("[[kernel]]\nsource = 'mm.cu'\nblok = 1", "s.gemm.toml:3: unknown key 'blok'"),
        (
            "[[kernel]]\nsource = 'mm.cu'\nblock=[2048]\ngrid=[1]",
            "s.gemm.toml:3: mm: a block of 2048",
        ),
        (
            "[[kernel]]\nsource = 'mm.cu'\n[[kernel]]\nsource = 'mm.cu'\n",
            "s.gemm.toml:1: several tables name mm.cu: give each its entry or name",
        ),
        ("kernel = 3", "s.gemm.toml:1: kernel is no table: write [[kernel]]"),
    ],
)
def test_mistakes_in_a_sidecar(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mm.cu").write_text("__global__ void f(float* C, int x);\nvoid __global__ g();")
    (tmp_path / "mm.cu").write_text(CODE.format(name="f"))
    (tmp_path / "s.gemm.toml").write_text(text)
    registry = load(tmp_path, tmp_path / "s.gemm.toml")
    assert messages(registry)[0].startswith(message)
    assert registry.specs == {}


def test_python_kernels_of_modules(tmp_path: Path) -> None:
    @pytest_gemm.kernel(derived_from="a")
    def mul(A: object, B: object, C: object) -> None: ...

    @pytest_gemm.kernel(name="gpu", backend="cuda")
    def other(A: object, B: object, C: object) -> None: ...

    module = types.ModuleType("m")
    vars(module).update(mul=mul, same=mul, other=other, kernel=pytest_gemm.kernel, one=1)
    write(tmp_path, "a.cu")
    registry = load_registry([tmp_path], Path(__file__).parent, modules=[module, module])
    assert registry.errors == ()
    assert sorted(registry.specs) == ["a", "gpu", "mul"]
    spec = registry.specs["mul"]
    assert spec.path == "test_registry.py"
    assert spec.callable == ("test_registry.py::test_python_kernels_of_modules.<locals>.mul")
    assert registry.functions[spec.callable] is mul
    assert sorted(kernel.id for kernel in registry.kernels("host")) == ["a", "mul"]
    assert sorted(kernel.id for kernel in registry.kernels("cuda")) == ["a", "gpu", "mul"]


def test_mistakes_of_python_kernels(tmp_path: Path) -> None:
    @pytest_gemm.kernel(nam="x")
    def wrong(A: object, B: object, C: object) -> None: ...

    @pytest_gemm.kernel
    def right(A: object, B: object, C: object) -> None: ...

    @pytest_gemm.kernel
    class Wrong: ...

    module = types.ModuleType("m")
    vars(module).update(wrong=wrong, same=wrong, right=right, other=Wrong)
    registry = load_registry((), Path(__file__).parent, modules=[module, module])
    assert list(registry.specs) == ["right"]
    line = wrong.__code__.co_firstlineno
    assert messages(registry) == [
        f"test_registry.py:{line}: unknown keyword 'nam': did you mean 'name'?",
        f"test_registry.py:{line + 6}: @pytest_gemm.kernel is for functions, not for the class "
        "Wrong: wrap it in a def",
    ]


def test_one_definition_is_one_kernel(tmp_path: Path) -> None:
    def make(name: str) -> object:
        @pytest_gemm.kernel(name=name)
        def mul(A: object, B: object, C: object) -> None: ...

        return mul

    module = types.ModuleType("m")
    vars(module).update(x=make("x"), y=make("y"))
    registry = load_registry((), tmp_path, modules=[module])
    assert list(registry.specs) == ["x"]
    (text,) = messages(registry)
    assert "give each function a name of its own" in text
