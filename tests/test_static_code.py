"""What the assembler's log and the disassembly say, read without any toolchain."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gemm.errors import BackendError
from pytest_gemm.static.assembler import Resources, resources
from pytest_gemm.static.sass import Code, assembler_version, read_code, without_inner

# NVRTC 13.5 on a file with two entries; a function of the first one was not inlined.
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4gemmILi48EEvPf' for 'sm_80'
ptxas info    : Function properties for _Z4gemmILi48EEvPf
ptxas         .     256 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 32 registers, used 2 barriers, 320 bytes cumulative stack size, 8192 bytes \
smem, 388 bytes cmem[0]
ptxas info    : Compile time = 71.791 ms
ptxas info    : Function properties for _Z4slowfi
ptxas         .     64 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function '_Z5otherPf' for 'sm_80'
ptxas info    : Function properties for _Z5otherPf
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 360 bytes cmem[0]
ptxas info    : Compile time = 3.176 ms
"""


def test_an_entry_takes_what_it_and_its_functions_take() -> None:
    assert resources(LOG, "_Z4gemmILi48EEvPf") == Resources(
        registers=32,
        stack_bytes=320,
        spill_store_bytes=20,
        spill_load_bytes=32,
        static_shared_bytes=8192,
        barriers=2,
    )


def test_another_entry_of_the_file_has_numbers_of_its_own() -> None:
    assert resources(LOG, "_Z5otherPf") == Resources(10, 0, 0, 0, 0, 0)


def test_the_stack_of_older_assemblers_stands_in_the_first_line_alone() -> None:
    log = LOG.replace(" 320 bytes cumulative stack size,", "")
    assert resources(log, "_Z4gemmILi48EEvPf").stack_bytes == 256


@pytest.mark.parametrize(
    "log",
    ["", LOG.replace("Used", "Uses"), LOG.replace("spill", "spilt"), LOG.replace("Z4g", "Z4h")],
)
def test_what_is_not_said_is_not_taken_for_zero(log: str) -> None:
    with pytest.raises(BackendError, match="log has no lines of ptxas -v about _Z4gemmILi48EEvPf"):
        resources(log, "_Z4gemmILi48EEvPf")


def disassembly(*lines: str, entry: str = "gemm", version: str = "V13.5.37") -> Any:
    """What nvdisasm shows of ``@P0 BRA 0x20`` and so on."""
    instructions = []
    for line in lines:
        words = line.split()
        shown = {"predicate": words.pop(0)} if words[0].startswith("@") else {}
        shown["opcode"] = words[0]
        if len(words) > 1:
            shown["operands"] = words[1]
        instructions.append(shown)
    about = {".note.nv.tkinfo": {"tki_toolVersion": f"Cuda compilation tools, release, {version}"}}
    return [about, [{"function-name": entry, "start": 0, "sass-instructions": instructions}]]


def code(*lines: str) -> Code:
    return read_code(disassembly(*lines), "gemm")


def loops(*lines: str) -> list[list[int]]:
    return [sorted(loop) for loop in code(*lines).loops()]


def test_a_loop_is_what_comes_back() -> None:
    assert loops("MOV R1,RZ", "FFMA R1,R2,R3,R1", "@P0 BRA 0x10", "EXIT") == [[1, 2]]
    assert loops("MOV R1,RZ", "@P0 BRA 0x10", "EXIT") == [[1]]


def test_loops_within_loops() -> None:
    nested = code(
        *("MOV R0,RZ", "LDG R2,[R4]", "FFMA R1,R2,R3,R1", "@P0 BRA 0x20", "@P1 BRA 0x10", "EXIT"),
    )
    assert [sorted(loop) for loop in nested.loops()] == [[1, 2, 3, 4], [2, 3]]
    assert [sorted(loop) for loop in without_inner(nested.loops())] == [[1, 4], [2, 3]]


def test_two_ways_back_are_one_loop() -> None:
    assert loops("NOP", "@P0 BRA 0x0", "MOV R1,R2", "BRA 0x0") == [[0, 1, 2, 3]]


def test_code_that_was_moved_out_of_a_loop_belongs_to_it() -> None:
    # The last two instructions run in some turns only; the jump back from there is no loop.
    found = loops(
        "@P0 BRA 0x40", "FFMA R1,R2,R3,R1", "@P1 BRA 0x0", "EXIT", "MOV R2,R5", "BRA 0x10"
    )
    assert found == [[0, 1, 2, 4, 5]]


@pytest.mark.parametrize("branch", ["@P0 BRA 0x0", "BRA.U !UP0,0x0", "BRA.DIV UR4,0x0"])
def test_a_branch_with_a_condition_of_any_kind_may_go_on(branch: str) -> None:
    found = loops("NOP", branch, "FFMA R1,R2,R3,R1", "BRA 0x20", "EXIT")
    assert found == [[0, 1], [2, 3]]


def test_a_function_that_is_called_may_have_loops() -> None:
    found = loops("CALL.REL.NOINC f", "EXIT", "NOP", "@P0 BRA 0x20", "RET.REL.NODEC R2,gemm")
    assert found == [[2, 3]]


def test_a_jump_past_the_code_or_to_nowhere_known_is_no_loop() -> None:
    assert loops("BRX R2,-0x10", "BRA 0x990", "EXIT") == []
    assert loops() == []


def test_padding_is_no_code() -> None:
    assert len(code("NOP", "EXIT", "BRA 0x20", "NOP", "NOP").instructions) == 2


def test_setting_a_register_multiplies_nothing() -> None:
    found = code("HFMA2.MMA R60,-RZ,RZ,0,0", "FFMA R1,R2,RZ,R1", "FFMA.FTZ R1,R2.reuse,R3,RZ")
    assert [i.multiplies for i in found.instructions] == [False, False, True]


def test_the_digest_is_of_the_instructions() -> None:
    same = code("FFMA R1,R2,R3,R1", "@P0 EXIT").digest
    assert code("FFMA R1,R2,R3,R1", "@P0 EXIT", "NOP").digest == same
    for other in (("FFMA R1,R2,R3,R1", "EXIT"), ("FFMA R1,R2,R3,R4", "@P0 EXIT"), ("@P0 EXIT",)):
        assert code(*other).digest != same


def test_the_version_is_the_one_that_the_code_notes() -> None:
    assert assembler_version(disassembly("EXIT")) == "13.5.37"
    assert assembler_version(disassembly("EXIT", version="unknown")) == ""
    assert assembler_version([{}, []]) == assembler_version(None) == ""


@pytest.mark.parametrize(
    "shown",
    [None, [], [{}, []], [{}, [{"function-name": "gemm"}]], disassembly("EXIT", entry="other")],
)
def test_another_form_is_refused(shown: Any) -> None:
    with pytest.raises(BackendError, match="nvdisasm shows gemm in a form that is not known"):
        read_code(shown, "gemm")
