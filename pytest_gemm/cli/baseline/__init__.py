"""``pytest-gemm baseline``: look at what is stored, and look after it."""

from __future__ import annotations

from pytest_gemm.cli.baseline import diff, listing, pin, prune, show
from pytest_gemm.cli.commands import Commands

__all__ = ["ACTIONS", "add", "diff", "listing", "pin", "prune", "show"]

ACTIONS = (listing, show, diff, prune, pin)


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "baseline",
        help="list, show, compare, prune and pin what is stored",
        description="Look at what is stored, and look after it. Nothing here stores a time: that "
        "is what pytest --gemm-bench --gemm-baseline=update does.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for action in ACTIONS:
        action.add(actions)
