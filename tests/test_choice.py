"""Which back end is used, by what is there; nothing is asked of a device."""

from __future__ import annotations

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
