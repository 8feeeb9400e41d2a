# SPDX-License-Identifier: Apache-2.0
# Which of Highway's targets (instruction sets) kernels are compiled for. Sets TALLY_HWY_DEFINITIONS.
#
# On Arm it is one, NEON: vectors of unknown length are not used (kernels keep arrays of vectors), nothing here is faster by AES, which
# HWY_NEON adds, and g++ 12 has no HWY_NEON_BF16. What Arm's processors have beyond NEON, kernels choose themselves (base/byte_dot.h).
set(TALLY_TARGETS "portable" CACHE STRING
  "Instruction sets of the kernels: portable (all, the best is chosen as they run), native (this processor's alone) or names: AVX2;AVX3_DL")
set(TALLY_HWY_DEFINITIONS "HWY_DISABLED_TARGETS=(HWY_ALL_SVE|HWY_RVV|HWY_NEON|HWY_NEON_BF16)")
# The dot products of bytes that AVX2's kernels have (base/byte_dot.h). AVX-512's encoding is for tests of AVX-VNNI on processors without it.
set(TALLY_DOT_DEFINITIONS TALLY_VEX_DOT=1 TALLY_EVEX_DOT=$<BOOL:${TALLY_BUILD_TESTS}>)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  return()
endif()

# The worst first. SSE4 is for processors without AVX2, of which some were still sold in 2021; all have it since 2009.
set(known SSE2 SSSE3 SSE4 AVX2 AVX3 AVX3_DL AVX3_ZEN4 AVX3_SPR)
set(targets ${TALLY_TARGETS})
if(TALLY_SANITIZE)  # instrumented intrinsics take minutes a file to compile
  set(targets AVX2)
  set(TALLY_DOT_DEFINITIONS TALLY_VEX_DOT=1 TALLY_EVEX_DOT=0)
elseif(TALLY_TARGETS STREQUAL "portable")
  set(targets SSE4 AVX2 AVX3 AVX3_DL AVX3_ZEN4)
elseif(TALLY_TARGETS STREQUAL "native")
  if(NOT TALLY_NATIVE_TARGET)
    set(probe ${CMAKE_CURRENT_LIST_DIR}/native_target.cc)
    if(TARGET hwy::hwy AND hwy_FOUND)
      try_run(ran compiled ${CMAKE_BINARY_DIR}/native_target SOURCES ${probe} CXX_STANDARD 17 LINK_LIBRARIES hwy::hwy
        COMPILE_OUTPUT_VARIABLE why RUN_OUTPUT_VARIABLE best)
    else()  # Highway itself is not built yet
      file(GLOB parts ${hwy_SOURCE_DIR}/hwy/targets.cc ${hwy_SOURCE_DIR}/hwy/abort.cc ${hwy_SOURCE_DIR}/hwy/print.cc)
      try_run(ran compiled ${CMAKE_BINARY_DIR}/native_target SOURCES ${probe} ${parts} CXX_STANDARD 17
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${hwy_SOURCE_DIR}" COMPILE_OUTPUT_VARIABLE why RUN_OUTPUT_VARIABLE best)
    endif()
    if(NOT compiled OR NOT ran EQUAL 0)
      message(FATAL_ERROR "TALLY_TARGETS=native: this processor's instruction set cannot be found (${best}${why}); give its name instead")
    endif()
    set(TALLY_NATIVE_TARGET ${best} CACHE INTERNAL "the best target of the processor that configured, and VNNI if AVX2 has a dot product of bytes")
  endif()
  set(targets ${TALLY_NATIVE_TARGET})
  if(NOT VNNI IN_LIST targets)
    set(TALLY_DOT_DEFINITIONS TALLY_VEX_DOT=0 TALLY_EVEX_DOT=0)
  endif()
  list(REMOVE_ITEM targets VNNI)
endif()

set(disabled ${known})
set(baseline "")
foreach(name ${known})
  if(name IN_LIST targets)
    list(REMOVE_ITEM disabled ${name})
    if(NOT baseline)
      set(baseline ${name})
    endif()
  endif()
endforeach()
foreach(name ${targets})
  if(NOT name MATCHES "^(SSE4|AVX2|AVX3|AVX3_DL|AVX3_ZEN4)$")
    message(FATAL_ERROR "TALLY_TARGETS: '${name}' is not portable, native, SSE4, AVX2, AVX3, AVX3_DL or AVX3_ZEN4")
  endif()
endforeach()
list(TRANSFORM disabled PREPEND HWY_)
list(JOIN disabled "|" disabled)
# Highway compiles each target's code for that target whatever the compiler's options are, so the baseline may be above theirs. The command
# and the library refuse to run where a processor lacks it (machine/instruction_set.h).
set(TALLY_HWY_DEFINITIONS HWY_WANT_AVX3_DL=1 "HWY_DISABLED_TARGETS=(${disabled})" HWY_BASELINE_TARGETS=HWY_${baseline})
list(JOIN targets ", " targets)
message(STATUS "Kernels for: ${targets}")
