"""The one exception of the package."""

from __future__ import annotations


class TpuError(RuntimeError):
    """What the board, its driver or the compiler refused; `code` says what kind of failure it is.

    Codes: InvalidArgument, FailedPrecondition, Unimplemented, ResourceExhausted, Cancelled, Unavailable, DeviceFault,
    Timeout, Internal, DataLoss (meanings: docs/host_driver.md).
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
