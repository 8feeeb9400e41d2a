# SPDX-License-Identifier: Apache-2.0
include(FetchContent)
if(TALLY_TEAM STREQUAL "openmp")
  find_package(OpenMP COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no OpenMP (clang on Debian, Ubuntu: apt-get install libomp-dev). "
      "-DTALLY_TEAM=std does without: its threads are the standard library's")
  endif()
endif()
# OpenBLAS is loaded when `--impl blas` first asks for it (engine/kernels/matmul/openblas.cc), by the name that the system's loader
# knows; a library that is elsewhere is remembered. Nothing of it is needed to build.
find_library(TALLY_OPENBLAS openblas)
set(TALLY_OPENBLAS_PATH "")
if(TALLY_OPENBLAS AND NOT TALLY_OPENBLAS MATCHES "[.]a$")
  set(TALLY_OPENBLAS_PATH ${TALLY_OPENBLAS})
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# Highway 1.2 or newer; older distributions do not have it, so there the upstream release is fetched.
find_package(hwy 1.2.0 QUIET)
set(TALLY_HWY_FETCHED OFF)
if(NOT hwy_FOUND)
  set(TALLY_HWY_FETCHED ON)
  set(HWY_ENABLE_TESTS OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_EXAMPLES OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_CONTRIB OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_INSTALL OFF CACHE BOOL "" FORCE)
  if(POLICY CMP0135)
    cmake_policy(SET CMP0135 NEW)  # the files' times are those of their unpacking
  endif()
  FetchContent_Declare(highway URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
    URL_HASH SHA256=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)  # that of Debian's highway_1.2.0.orig.tar.gz
  FetchContent_MakeAvailable(highway)
  target_compile_options(hwy PRIVATE -w)  # our warnings are for us
  if(NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
endif()

# Parts with a dependency of their own are on where it is found, and say so where it is not.
# libcurl is loaded when `tally pull` first asks for it (engine/hub/transport_curl.cc): its header, and where it is here.
find_path(TALLY_CURL_INCLUDE curl/curl.h)
find_library(TALLY_CURL_LIBRARY NAMES curl curl-gnutls)
set(found OFF)
if(TALLY_CURL_INCLUDE AND TALLY_CURL_LIBRARY)
  set(found ON)
endif()
# AUTO is decided at every configuration: scripts/test.sh installs what scripts/demo.sh did without.
set(TALLY_PULL AUTO CACHE STRING "Fetch models from the Hugging Face hub (libcurl): ON, OFF, or AUTO, where libcurl is found")
set(TALLY_WITH_PULL ${TALLY_PULL})
if(TALLY_PULL STREQUAL AUTO)
  set(TALLY_WITH_PULL ${found})
elseif(TALLY_PULL AND NOT found)
  message(FATAL_ERROR "TALLY_PULL is on and libcurl was not found (Debian, Ubuntu: apt-get install libcurl4-openssl-dev)")
endif()

# libedit is loaded when a conversation begins (engine/app/libedit.cc), likewise.
find_path(TALLY_LIBEDIT_INCLUDE histedit.h)
find_library(TALLY_LIBEDIT_LIBRARY NAMES edit)
set(found OFF)
if(TALLY_LIBEDIT_INCLUDE AND TALLY_LIBEDIT_LIBRARY)
  set(found ON)
endif()
set(TALLY_LINE_EDITING AUTO CACHE STRING "Line editing in `tally chat` (libedit): ON, OFF, or AUTO, where libedit is found")
set(TALLY_WITH_LINE_EDITING ${TALLY_LINE_EDITING})
if(TALLY_LINE_EDITING STREQUAL AUTO)
  set(TALLY_WITH_LINE_EDITING ${found})
elseif(TALLY_LINE_EDITING AND NOT found)
  message(FATAL_ERROR "TALLY_LINE_EDITING is on and libedit was not found (Debian, Ubuntu: apt-get install libedit-dev)")
endif()

# scripts/demo.sh builds without either.
if(TALLY_BUILD_TESTS)
  find_package(GTest)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "the tests want GoogleTest (Debian, Ubuntu: scripts/install_deps.sh --tests); -DTALLY_BUILD_TESTS=OFF does without")
  endif()
endif()
if(TALLY_BUILD_BENCH)
  find_package(benchmark)
  if(NOT benchmark_FOUND)
    message(FATAL_ERROR "bench/ wants Google Benchmark (Debian, Ubuntu: scripts/install_deps.sh --tests); -DTALLY_BUILD_BENCH=OFF does without")
  endif()
endif()
