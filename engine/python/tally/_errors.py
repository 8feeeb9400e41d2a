# SPDX-License-Identifier: Apache-2.0
"""What calls raise: one class for each kind of error of the library.

An interrupted call raises KeyboardInterrupt; an argument of a wrong type, or an unknown one, TypeError.
"""


class Error(Exception):
    """Any error of the library."""


class BadInput(Error, ValueError):
    """A file, text, option or request that cannot be honoured. The message names it, in one line."""


class NoRoom(Error, MemoryError):
    """Memory, threads, disk or places are missing now: less, or the same later, may work."""


class NotFinite(Error, ArithmeticError):
    """A computation gave NaN or infinity; the message names layer and op."""


class Disagreement(Error):
    """Accounts that must agree do not."""


class InternalError(Error, RuntimeError):
    """A defect of the library."""


class ForkedError(Error, RuntimeError):
    """The engine was used in a child of fork(), where its threads do not live."""
