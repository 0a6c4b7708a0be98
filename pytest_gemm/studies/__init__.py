"""What is measured once and published, not gated: how kernels compare, and where they pay.

A study measures cases as a timed run of pytest does and keeps what it measured in a versioned JSON
document (``document``); its findings and its report are made from that alone.
"""

NAMES = ("ladder", "cpu-vs-gpu", "block-size")
"""Of the studies that there are."""
