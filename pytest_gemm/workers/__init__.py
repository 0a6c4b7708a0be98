"""Cases in worker processes: what a kernel does to its process ends there.

``pool`` deals cases to ``worker``s, each of which talks to ``serve`` in its process; ``turns``
lets one run at a time have a device.
"""
