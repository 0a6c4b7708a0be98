"""What one launch of a reading did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ENDED = "the kernel ended its process"

_STRAYS = ("out-of-bounds", "array-index", "stray")


@dataclass(frozen=True)
class Seen:
    """A mistake that was seen: its kind, its sentence with file and line, the argument it hit."""

    kind: str
    text: str
    line: int
    argument: int = 0


@dataclass(frozen=True)
class Extent:
    """Where C was written: rows and columns that enclose it, each from first to past the last.

    ``filled`` is which part of what lies between is written; ``run`` is how many elements from the
    first one on are, row after row, where that is all (else 0), ``column_run`` column after column.
    """

    rows: tuple[int, int] = (0, 0)
    columns: tuple[int, int] = (0, 0)
    filled: float = 0.0
    run: int = 0
    column_run: int = 0

    @property
    def is_empty(self) -> bool:
        return self.rows[1] == 0

    @property
    def is_block(self) -> bool:
        return self.filled == 1


@dataclass(frozen=True)
class Attempt:
    """What one launch did.

    ``impossible`` says why there was none. ``wrong`` counts elements of C that are not what they
    should be, ``wrong_written`` those among them that the launch wrote, unless all of these are
    ``alpha`` times that and ``beta`` times the old C. ``fault`` is what ended the launch early.
    """

    impossible: str = ""
    does_not_compile: bool = False
    fault: str = ""
    seen: tuple[Seen, ...] = ()
    wrong: int = 0
    wrong_written: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    extent: Extent = Extent()

    @property
    def scalars(self) -> tuple[tuple[str, float], ...]:
        """``alpha`` and ``beta`` that the kernel computes with unasked, as far as it does."""
        found = (("alpha", self.alpha, 1), ("beta", self.beta, 0))
        return tuple((n, int(v) if v.is_integer() else v) for n, v, usual in found if v != usual)

    @property
    def is_right(self) -> bool:
        """Whether everything that was written is right, and something was."""
        ran = not (self.impossible or self.fault or self.extent.is_empty)
        return ran and (not self.wrong_written or bool(self.scalars))

    @property
    def is_exact(self) -> bool:
        """Whether all of C is right, and nothing was seen."""
        return self.is_right and not (self.wrong or self.seen)

    @property
    def is_slow(self) -> bool:
        """Whether it was ended because it did not end."""
        return any(seen.kind in ("timeout", "block-wait") for seen in self.seen)

    @property
    def diverges(self) -> bool:
        """Whether threads waited at different barriers."""
        return any(seen.kind == "barrier-divergence" for seen in self.seen)

    @property
    def is_misfit(self) -> bool:
        """Whether the kernel's own arrays were missed, or all of its process went wrong."""
        own = any(seen.kind in _STRAYS and not seen.argument for seen in self.seen)
        return own or self.fault == ENDED

    @property
    def strays(self) -> int:
        """How many different accesses missed their matrix, or their array."""
        return sum(seen.kind in _STRAYS for seen in self.seen)

    @property
    def races(self) -> bool:
        """Whether threads of one block race: no other reading mends that."""
        return any(seen.kind == "race" and "race in block" in seen.text for seen in self.seen)

    @property
    def first_fault(self) -> str:
        """What went wrong first, in a sentence with its line; empty where nothing did."""
        return next(self._faults(), "")

    def _faults(self) -> Iterator[str]:
        if self.impossible:
            yield self.impossible
        if self.scalars:
            of_c = f"{self.beta:g} times " * (self.beta != 1)
            added = f"{of_c}what C held before is added to the result" if self.beta else ""
            times = f"the result is {self.alpha:g} times the product" if self.alpha != 1 else ""
            yield " and ".join(filter(None, (times, added)))
        # An access beside a matrix says more than what follows from it.
        ordered = sorted(self.seen, key=lambda seen: (not seen.argument, seen.kind != "race"))
        yield from (seen.text for seen in ordered)
        if self.fault:
            yield self.fault
        if self.wrong:
            what = "wrong" if self.wrong_written else "not written"
            yield f"{self.wrong} elements of C are {what}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Attempt:
        """The reverse of ``asdict``, also after a trip through JSON."""
        own = {**data, "seen": tuple(Seen(**seen) for seen in data["seen"])}
        extent: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data["extent"].items()
        }
        return cls(**{**own, "extent": Extent(**extent)})
