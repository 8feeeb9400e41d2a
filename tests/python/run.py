# SPDX-License-Identifier: Apache-2.0
"""Runs pytest over files; exit code 77, which ctest takes for skipped, where pytest or numpy is missing."""

import sys

try:
    import numpy  # noqa: F401
    import pytest
except ImportError as error:
    print(f"skipped: {error} (Debian, Ubuntu: scripts/install_deps.sh --tests)")
    sys.exit(77)

sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]]))
