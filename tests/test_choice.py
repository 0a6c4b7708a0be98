"""Which back end is used, by what is there; nothing is asked of a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gemm.backends import choice
from pytest_gemm.errors import ConfigError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    gpu, cupy = request.param
    monkeypatch.setattr(choice, "_gpu_is_there", lambda: gpu)
    monkeypatch.setattr(choice, "_cupy_is_there", lambda: cupy)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("machine", "device", "kind", "hint"),
    [
        ((False, False), "auto", "host", ""),
        ((False, True), "auto", "host", ""),
        ((True, False), "auto", "host", "pytest-gemm[cuda13]"),
        ((True, True), "auto", "cuda", ""),
        ((True, True), "host", "host", ""),
        ((True, True), "cuda", "cuda", ""),
    ],
    indirect=["machine"],
)
def test_the_choice(device: str, kind: str, hint: str) -> None:
    chosen = choice.choose_backend(device)
    assert chosen.kind == kind
    assert hint in chosen.hint
    assert bool(hint) == bool(chosen.hint)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("machine", "device", "cold", "words"),
    [
        ((False, True), "cuda", False, "no NVIDIA GPU"),
        ((True, False), "cuda", False, "pip install 'pytest-gemm[cuda13]'"),
        ((True, True), "host", True, "--gemm-cache=cold"),
        ((False, False), "auto", True, "--gemm-cache=cold"),
    ],
    indirect=["machine"],
)
def test_what_cannot_be_had_is_an_error_with_the_way_out(
    device: str, cold: bool, words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        choice.choose_backend(device, cold=cold)
    assert words in str(error.value)


@pytest.fixture
def with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_gpu_is_there", lambda: True)
    monkeypatch.setattr(choice, "_cupy_is_there", lambda: True)


@pytest.fixture
def without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_gpu_is_there", lambda: False)
    monkeypatch.setattr(choice, "_cupy_is_there", lambda: False)


@pytest.mark.usefixtures("with_gpus")
@pytest.mark.parametrize(
    ("device", "gpus"),
    [
        ("auto", (0,)),
        ("cuda", (0,)),
        ("cuda:0", (0,)),
        ("cuda:3", (3,)),
        ("cuda:0,2", (0, 2)),
        ("cuda:2,0,2", (0, 2)),
        ("cuda:all", None),
    ],
)
def test_which_gpus(device: str, gpus: tuple[int, ...] | None) -> None:
    assert choice.choose_backend(device) == choice.Choice("cuda", gpus=gpus)


@pytest.mark.usefixtures("without_gpus")
@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("ssh=lab", choice.Choice("cuda", ssh=(("ssh", "lab"),))),
        (
            "ssh=me@lab.example//device=host",
            choice.Choice("host", ssh=(("ssh", "me@lab.example"),)),
        ),
        ("ssh=lab//device=cuda:0,1", choice.Choice("cuda", gpus=(0, 1), ssh=(("ssh", "lab"),))),
        ("ssh=lab//device=cuda:all", choice.Choice("cuda", gpus=None, ssh=(("ssh", "lab"),))),
        (
            "ssh=lab//python=/opt/venv/bin/python//ssh_config=my/config",
            choice.Choice(
                "cuda",
                ssh=(
                    ("ssh", "lab"),
                    ("python", "/opt/venv/bin/python"),
                    ("ssh_config", "my/config"),
                ),
            ),
        ),
        (
            "ssh=-p 2222 lab//device=host",
            choice.Choice("host", ssh=(("ssh", "-p 2222 lab"),)),
        ),
    ],
)
def test_another_machine_is_not_asked_what_it_has(device: str, expected: choice.Choice) -> None:
    assert choice.choose_backend(device) == expected


BAD = {
    "gpu": choice.FORMS,
    "": choice.FORMS,
    "CUDA": choice.FORMS,
    "cuda:": choice.FORMS,
    "cuda:0,": choice.FORMS,
    "cuda:,0": choice.FORMS,
    "cuda:-1": choice.FORMS,
    "cuda:0-3": choice.FORMS,
    "cuda:1.5": choice.FORMS,
    "cuda:0 ,1": choice.FORMS,
    "cuda:0,all": choice.FORMS,
    "cuda:ALL": choice.FORMS,
    "cuda:²": choice.FORMS,
    "cuda:1234": choice.FORMS,
    "host:0": choice.FORMS,
    "socket=lab:8888": choice.FORMS,
    "popen": choice.FORMS,
    "ssh": choice.FORMS,
    "ssh:lab": choice.FORMS,
    "lab": choice.FORMS,
    "ssh=": ": it is ssh=HOST//python=PATH//device=cuda",
    "ssh= ": ": it is ssh=HOST//python=PATH//device=cuda",
    "ssh=lab//": ": it is ssh=HOST//python=PATH//device=cuda",
    "ssh=lab//ssh=lab": ": it is ssh=HOST//python=PATH//device=cuda",
    "ssh=lab//python=": ": it is ssh=HOST//python=PATH//device=cuda",
    "ssh=lab//python": ": it is ssh=HOST//python=PATH//device=cuda",
    "ssh=lab//pyhton=python3": "no key 'pyhton'",
    "ssh=lab//chdir=/tmp": "no key 'chdir'",
    "ssh=lab//env:A=b": "no key 'env:A'",
    "ssh=lab//device=gpu": "--gemm-device=ssh=lab//device=gpu",
    "ssh=lab//device=auto": "host, cuda, cuda:0,2 or cuda:all",
    "ssh=lab//device=ssh=lab2": "host, cuda, cuda:0,2 or cuda:all",
}


@pytest.mark.usefixtures("with_gpus")
@pytest.mark.parametrize("device", BAD)
def test_what_is_no_device_is_one_sentence(device: str) -> None:
    with pytest.raises(ConfigError) as error:
        choice.choose_backend(device)
    text = str(error.value)
    assert text.startswith(f"--gemm-device={device}")
    assert BAD[device] in text
    assert "\n" not in text


@pytest.mark.usefixtures("without_gpus")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:0,2", "cuda:all"])
def test_gpus_that_are_not_here(device: str) -> None:
    with pytest.raises(ConfigError, match=f"--gemm-device={device}: there is no NVIDIA GPU here"):
        choice.choose_backend(device)


@pytest.mark.usefixtures("without_gpus")
def test_a_bad_form_is_told_first_where_there_is_no_gpu() -> None:
    with pytest.raises(ConfigError, match="it is one of"):
        choice.choose_backend("cuda:x")


@pytest.mark.usefixtures("without_gpus")
def test_cold_on_another_machines_cpu() -> None:
    with pytest.raises(ConfigError, match="--gemm-cache=cold"):
        choice.choose_backend("ssh=lab//device=host", cold=True)
    assert choice.choose_backend("ssh=lab", cold=True).kind == "cuda"


@pytest.mark.parametrize(
    ("visible", "files", "expected"),
    [
        (None, (), 1),
        (None, ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"), 3),
        ("", ("nvidia0",), 1),
        ("1", ("nvidia0", "nvidia1"), 1),
        ("GPU-a,GPU-b", ("nvidia0",), 2),
    ],
)
def test_gpus_are_counted_without_cuda(
    visible: str | None,
    files: tuple[str, ...],
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    for name in files:
        (tmp_path / name).touch()
    assert choice.likely_gpus(tmp_path) == expected
