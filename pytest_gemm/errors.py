"""What can go wrong, each kind with one class; ``str(error)`` is a sentence with the way out."""

from __future__ import annotations


class GemmError(Exception):
    """Base of every error that pytest-gemm raises on purpose, but for ``DeviceBusyError``."""


class DeviceBusyError(Exception):
    """Another run has the device, and this one was told not to wait for it: it ends.

    No ``GemmError``, as nobody may take it for what is wrong with one case, and go on.
    """


class ConfigError(GemmError):
    """An option or ini key has a value that cannot be used."""


class SpecError(GemmError):
    """A kernel's front matter, sidecar table or decorator is wrong.

    ``path`` and ``line`` (from 1; 0 where no line can be named) say where.
    """

    def __init__(self, message: str, *, path: str = "", line: int = 0) -> None:
        self.message = message
        self.path = path
        self.line = line
        where = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
        super().__init__(where + message)


class BackendError(GemmError):
    """A back end cannot be used here: no compiler, no GPU, no memory."""


class CompileError(GemmError):
    """A kernel does not compile, or uses a construct that the back end does not support."""


class KernelFault(GemmError):
    """A kernel did something illegal while it ran.

    ``kind`` is one of ``out-of-bounds``, ``barrier-divergence``, ``timeout``,
    ``division-by-zero``, ``misaligned``, ``assert``, ``trap``, ``stack-overflow``,
    ``shuffle``, ``exit`` (a call that would end the process), ``exception`` (a Python kernel
    raised), ``escaped-stream`` (work outside of the given stream), ``cuda`` (another CUDA error).
    ``block`` and ``thread`` are the (x, y, z) indices at fault where they are known.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
    ) -> None:
        self.kind = kind
        self.block = block
        self.thread = thread
        super().__init__(message)

    def titled(self, title: str) -> KernelFault:
        """The same fault with a title before its text, once."""
        text = str(self)
        if text.startswith(title):
            return self
        return KernelFault(self.kind, f"{title}: {text}", block=self.block, thread=self.thread)


class WrongResultError(GemmError):
    """A kernel ran and computed something else than it should."""


class BaselineError(GemmError):
    """A stored baseline cannot be read, written or used."""


def raised(error: BaseException) -> str:
    """What somebody's function raised: ``ZeroDivisionError: division by zero``."""
    try:
        text = str(error)
    except Exception:  # of its __str__
        text = "(it has no text that can be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
