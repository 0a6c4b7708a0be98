"""What a test gets from the ``gemm`` fixture."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from pytest_gemm.case import Case
from pytest_gemm.collection import Collection
from pytest_gemm.kernelspec import Kernel
from pytest_gemm.problem import Problem
from pytest_gemm.publish import publish
from pytest_gemm.recorder import RECORD
from pytest_gemm.session import GemmSession
from pytest_gemm.shared import busy_ends_pytest


@dataclass
class GemmCase:
    """One kernel on one problem, inside one test."""

    _request: pytest.FixtureRequest
    _session: GemmSession
    _collection: Collection
    id: str
    _checked: bool = False

    @property
    def case(self) -> Case:
        """The plain record of what is run."""
        return self._collection.cases[self.id]

    @property
    def kernel(self) -> Kernel:
        """The kernel, with every parameter bound."""
        return self.case.kernel

    @property
    def problem(self) -> Problem:
        """The sizes, alpha, beta and dtype."""
        return self.case.problem

    def check(self) -> None:
        """Verify the kernel; in a ``--gemm-bench`` run also time it and judge the times.

        Fails the test, in a sentence, for a wrong result, a fault or a regression; skips it
        where the kernel's ``requires`` does not hold. A test can call it once.
        """
        if self._checked:
            pytest.fail(f"{self.id}: a test can call gemm.check() only once", pytrace=False)
        self._checked = True
        function = self._collection.registry.functions.get(self.kernel.callable)
        with busy_ends_pytest():
            record = self._session.check(self.case, function, self._target())
        self._request.node.stash[RECORD] = record.to_dict()
        for name, value in record.properties().items():
            self._request.node.user_properties.append((name, value))
        publish(self._request, record.group, record.result.samples, record.extra_info())
        if record.outcome == "skipped":
            pytest.skip(record.message)
        if record.outcome == "failed":
            pytest.fail(record.message, pytrace=False)

    def _target(self) -> str:
        """The node id, as it must be written in the folder where pytest was started."""
        node = self._request.node
        path = os.path.relpath(node.path, node.config.invocation_params.dir)
        return "::".join([path, *node.nodeid.split("::")[1:]])
