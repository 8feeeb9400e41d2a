# SPDX-License-Identifier: Apache-2.0
# Toolchain file: Debian's cross compiler for AArch64, a root of arm64 packages, and qemu-user, which runs what is built (scripts/arm64.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)  # Highway's release names it
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
if(NOT TALLY_ARM64_ROOT)
  get_filename_component(TALLY_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64_root ABSOLUTE)
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TALLY_ARM64_ROOT)
set(CMAKE_SYSROOT ${TALLY_ARM64_ROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TALLY_ARM64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${TALLY_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${TALLY_ARM64_ROOT}/usr/share/pkgconfig)
# The processor is the environment variable QEMU_CPU's: cortex-a72, neoverse-n1, max, ... (qemu-aarch64 -cpu help).
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${TALLY_ARM64_ROOT})
