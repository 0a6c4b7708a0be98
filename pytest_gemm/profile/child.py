"""``python -m pytest_gemm.profile.child WAY WANTED ANSWERS``: launches, while a tool watches.

``WANTED`` is a JSON file with the number of a ``gpu`` and ``cases``. For each case a line of JSON
is added to the file ``ANSWERS``: its ``id``, how many ``launches`` the tool should have seen, the
build's ``facts`` (see ``CudaExecutable``), or the ``error`` that came instead. It is ``left`` where
the process was interrupted, or ``seconds`` of the file, if any, were over before it began.
Nobody keeps the GPU here: who starts the tool does.

``counters``: the case is verified as for timing, and then launched ``LAUNCHES`` times where a
profiler sees it. ``sanitizer``: the kernel is launched on the problems that the check on the CPU
begins with, in memory without guards, where nothing but the tool judges.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_gemm import backends
from pytest_gemm.backends.base import Executable, LaunchConfig
from pytest_gemm.backends.cuda import CudaBackend
from pytest_gemm.backends.cuda.kernel import CudaExecutable
from pytest_gemm.case import Case
from pytest_gemm.checking import FIRST
from pytest_gemm.correctness import exact_suite
from pytest_gemm.device import Workspace
from pytest_gemm.errors import GemmError
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.launching import arguments_of, loaded, program_of
from pytest_gemm.pipeline import TIMED_RECIPE, verified_launcher
from pytest_gemm.reuse import Reuse

LAUNCHES = 3
"""Of each case under a profiler; each counter is the median of as many."""

SECONDS = 300
"""Of a case, after which the process ends itself whatever its kernel does, and its tool with it."""

Way = Callable[[Case, CudaBackend, Reuse], tuple[int, Mapping[str, Any]]]


def counters(case: Case, backend: CudaBackend, reuse: Reuse) -> tuple[int, Mapping[str, Any]]:
    """The launches that were profiled, and the facts of the build. Raises GemmError."""
    launcher = verified_launcher(case, backend, None, reuse)
    data = reuse.operands(case.problem, case.settings.seed, TIMED_RECIPE)
    with loaded(backend, case.problem, data) as workspace:
        launch = _prepared(case.kernel, launcher.executable, workspace)
        launch()
        with backend.profiled():
            for _ in range(LAUNCHES):
                launch()
    return LAUNCHES, launcher.executable.facts


def sanitizer(case: Case, backend: CudaBackend, reuse: Reuse) -> tuple[int, Mapping[str, Any]]:
    """As ``counters``."""
    executable = backend.compile(program_of(case.kernel, None))
    problems = exact_suite(case.kernel)[:FIRST] or (case.problem,)
    for problem in problems:
        with Workspace(backend, problem, guard=0) as workspace:
            workspace.load(reuse.operands(problem, case.settings.seed, TIMED_RECIPE))
            launch = _prepared(case.kernel, executable, workspace)
            with backend.profiled():
                launch()
    return len(problems), executable.facts


WAYS = {way.__name__: way for way in (counters, sanitizer)}


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where the device cannot be used at all."""
    way, wanted, answers = arguments
    plan = json.loads(Path(wanted).read_text(encoding="utf-8"))
    try:
        backend = backends.open_backend("cuda", _say, plan["gpu"])
        assert isinstance(backend, CudaBackend)
        assert backend.device.kind == "cuda"
    except GemmError as error:
        _say(str(error))
        return 1
    with Path(answers).open("a", encoding="utf-8") as file:
        for answer in _answers(WAYS[way], plan["cases"], backend, plan["seconds"] or math.inf):
            file.write(json.dumps(answer) + "\n")
            file.flush()
    return 0


def _answers(
    way: Way, cases: Sequence[Mapping[str, Any]], backend: CudaBackend, seconds: float
) -> Iterator[dict[str, Any]]:
    reuse = Reuse()
    end = time.monotonic() + seconds
    for data in cases:
        case = Case.from_dict(data)
        if time.monotonic() > end:
            yield {"id": case.id, "launches": 0, "left": True}
            continue
        signal.alarm(SECONDS)
        try:
            launches, facts = way(case, backend, reuse)
        except GemmError as error:
            yield {"id": case.id, "launches": 0, "error": str(error).partition("\n")[0]}
        except KeyboardInterrupt:
            end = -math.inf
            yield {"id": case.id, "launches": 0, "left": True}
        else:
            yield {"id": case.id, "launches": launches, "facts": dict(facts)}


def _prepared(kernel: Kernel, executable: Executable, workspace: Workspace) -> Callable[[], None]:
    """What queues one launch; nothing else is launched with it, as when it is timed."""
    assert isinstance(executable, CudaExecutable)
    config = LaunchConfig(*kernel.launch(workspace.problem))
    return executable.prepare(config, arguments_of(kernel, workspace))


def _say(line: str) -> None:
    print(f"pytest-gemm: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
