# SPDX-License-Identifier: Apache-2.0
# Which of Highway's targets (instruction sets) kernels are compiled for. Sets TALLY_HWY_DEFINITIONS and TALLY_DOT_DEFINITIONS, what
# kernels are compiled with, and TALLY_KERNEL_TARGETS, their names.
#
# On Arm it is one, NEON: vectors of unknown length are not used (kernels keep arrays of vectors), nothing here is faster by AES, which
# HWY_NEON adds, and g++ 12 has no HWY_NEON_BF16. What Arm's processors have beyond NEON, kernels choose themselves (base/byte_dot.h).
set(TALLY_TARGETS "portable" CACHE STRING
  "Instruction sets of the kernels: portable (all, the best is chosen as they run), native (this processor's alone) or names: AVX2;AVX3_DL")
set(TALLY_KERNEL_TARGETS NEON)
set(TALLY_HWY_DEFINITIONS "HWY_DISABLED_TARGETS=(HWY_ALL_SVE|HWY_RVV|HWY_NEON|HWY_NEON_BF16)")
# The dot products of bytes that AVX2's kernels have (base/byte_dot.h). AVX-512's encoding is for tests of AVX-VNNI on processors without it.
set(TALLY_DOT_DEFINITIONS TALLY_VEX_DOT=1 TALLY_EVEX_DOT=$<BOOL:${TALLY_BUILD_TESTS}>)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  return()
endif()

# The worst first. SSE4 is for processors without AVX2.
set(known SSE2 SSSE3 SSE4 AVX2 AVX3 AVX3_DL AVX3_ZEN4 AVX3_SPR)
set(targets ${TALLY_TARGETS})
if(TALLY_SANITIZE)  # instrumented intrinsics take minutes a file to compile
  set(targets AVX2)
  set(TALLY_DOT_DEFINITIONS TALLY_VEX_DOT=1 TALLY_EVEX_DOT=0)
elseif(TALLY_TARGETS STREQUAL "portable")
  set(targets SSE4 AVX2 AVX3 AVX3_DL AVX3_ZEN4)
elseif(TALLY_TARGETS STREQUAL "native")
  # Asked at every configuration: a build folder may have been made on another machine.
  set(probe ${CMAKE_CURRENT_LIST_DIR}/native_target.cc)
  if(TALLY_HWY_FETCHED)  # it is not built yet: what the probe needs of it becomes part of the probe
    set(text "")
    foreach(part ${probe} ${highway_SOURCE_DIR}/hwy/targets.cc ${highway_SOURCE_DIR}/hwy/abort.cc)
      string(APPEND text "#include \"${part}\"\n")
    endforeach()
    file(WRITE ${CMAKE_BINARY_DIR}/native_target.cc "${text}")
    try_run(ran compiled ${CMAKE_BINARY_DIR}/native_target ${CMAKE_BINARY_DIR}/native_target.cc
      CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${highway_SOURCE_DIR} -DCMAKE_CXX_STANDARD=17 COMPILE_OUTPUT_VARIABLE why RUN_OUTPUT_VARIABLE best)
  else()
    try_run(ran compiled ${CMAKE_BINARY_DIR}/native_target ${probe}
      CMAKE_FLAGS -DCMAKE_CXX_STANDARD=17 LINK_LIBRARIES hwy::hwy COMPILE_OUTPUT_VARIABLE why RUN_OUTPUT_VARIABLE best)
  endif()
  if(NOT compiled OR NOT ran EQUAL 0)
    message(FATAL_ERROR "TALLY_TARGETS=native: this processor's instruction set cannot be found; give its name instead\n${best}${why}")
  endif()
  unset(ran CACHE)
  unset(compiled CACHE)
  set(targets ${best})
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
list(JOIN targets ", " TALLY_KERNEL_TARGETS)
message(STATUS "Kernels for: ${TALLY_KERNEL_TARGETS}")
