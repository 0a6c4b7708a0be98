"""What is stored of earlier runs, and how: see docs/baselines.md for the files."""

from pytest_gemm.baselines.records import (
    Fact,
    Series,
    Session,
    differing,
    epoch,
    newest,
    source_hash,
)
from pytest_gemm.baselines.session_file import SESSIONS_KEPT
from pytest_gemm.baselines.store import BaselineStore, Flushed

__all__ = [
    "SESSIONS_KEPT",
    "BaselineStore",
    "Fact",
    "Flushed",
    "Series",
    "Session",
    "differing",
    "epoch",
    "newest",
    "source_hash",
]
