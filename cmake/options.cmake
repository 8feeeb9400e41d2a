# SPDX-License-Identifier: Apache-2.0
option(TALLY_BUILD_TESTS "Build the tests" ON)
option(TALLY_BUILD_BENCH "Build the benchmarks" ON)
option(TALLY_WERROR "Treat warnings as errors" OFF)
set(TALLY_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined or thread")
option(TALLY_FUZZ "Build the libFuzzer targets (clang; the preset asan-ubsan-clang)" OFF)
# Headers, and what comes of their templates, are much of the time. Off where files are edited one by one.
option(TALLY_UNITY "Compile several files of a node as one, and precompile what tests include" ON)
set(TALLY_UNITY_BATCH 12 CACHE STRING "Files compiled as one")
# The command of an archive and the Python module of a wheel (scripts/package.sh). libtally.so cannot be linked with it.
option(TALLY_STATIC "Link the command, and the Python module, with nothing shared but the C library" OFF)
set(TALLY_TEAM "openmp" CACHE STRING "What the team of threads is made of: openmp, or std (for the thread sanitizer)")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# The nodes are compiled once; libtally.so and libtally.a are both made of their objects, and give out what TALLY_API marks.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(TALLY_CCACHE ccache)
if(TALLY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT TALLY_CCACHE_WORKS)
  # It stops every compilation where it cannot write its cache (a HOME that is read-only or is not there).
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/ccache_probe.cc)
  file(WRITE ${probe} "int ccache_probe;\n")
  execute_process(COMMAND ${TALLY_CCACHE} ${CMAKE_CXX_COMPILER} -c ${probe} -o ${probe}.o RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE why)
  if(failed)
    message(STATUS "ccache is not used: ${why}")
  else()
    set(TALLY_CCACHE_WORKS ON CACHE INTERNAL "ccache has compiled a file")
  endif()
endif()
if(TALLY_CCACHE_WORKS AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # It asks for the first where headers are precompiled. With the others every clone of the repository shares what was compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_NOHASHDIR=1 ${TALLY_CCACHE})
endif()

# Multiply-adds that are meant are written as such (hn::MulAdd, std::fma), so that results do not depend on the optimiser.
add_compile_options(-ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)  # g++ 12 warns of "text" + std::string (its bug 105651)
endif()
if(TALLY_WERROR)
  add_compile_options(-Werror)
endif()
if(TALLY_SANITIZE)
  add_compile_options(-fsanitize=${TALLY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TALLY_SANITIZE})
  # A quarter of what is compiled would be checks for what the address sanitizer, or the processor, finds itself.
  if(TALLY_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=null,object-size,pointer-overflow,vptr)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # g++ warns of <regex> where it is instrumented
  endif()
  find_program(TALLY_LLD ld.lld)
  if(TALLY_LLD)  # quicker than the system's, for each of some eighty tests
    add_link_options(-fuse-ld=lld)
  endif()
endif()
include_directories(${PROJECT_SOURCE_DIR})
