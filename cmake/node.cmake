# SPDX-License-Identifier: Apache-2.0
# tally_unity(TARGET): its files are compiled several at a time, as if they were one, so that JSON's and CLI11's headers, and what comes of
# their templates, are compiled less often.
function(tally_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TALLY_UNITY_BATCH})
endfunction()

# tally_kernel_groups(VARIABLE): of the sources in the list VARIABLE, those that Highway compiles for each target become a few, each of
# which includes several: Highway's headers are most of what one takes. Those that take long stay as they are.
function(tally_kernel_groups variable)
  set(kernels)
  set(others)
  foreach(source ${${variable}})
    file(STRINGS ${source} found REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
    if(found AND NOT source MATCHES "(attention_hwy|products_hwy).*[.]cc$")
      list(APPEND kernels ${source})
    else()
      list(APPEND others ${source})
    endif()
  endforeach()
  list(LENGTH kernels last)
  math(EXPR last "${last} - 1")
  set(group 0)
  set(most 6)
  if(TALLY_SANITIZE)  # instrumented intrinsics take minutes a file
    set(most 2)
  endif()
  foreach(first RANGE 0 ${last} ${most})
    list(SUBLIST kernels ${first} ${most} some)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/kernels_${group}.cc)
    set(text "// Made by CMake.\n#undef HWY_TARGET_INCLUDE\n#define HWY_TARGET_INCLUDE \"${file}\"\n#include \"hwy/foreach_target.h\"\n")
    foreach(source ${some})
      string(APPEND text "#include \"${source}\"\n")
    endforeach()
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    list(APPEND others ${file})
    math(EXPR group "${group} + 1")
  endforeach()
  set(${variable} ${others} PARENT_SCOPE)
endfunction()

# tally_node(NAME base DIRS folder... FILES pattern... DEPS target...): one node of the design's graph
# (CONTRIBUTING.md, "The house"), made of every .cc of its folders and the files that match its patterns.
function(tally_node)
  cmake_parse_arguments(N "" "NAME" "DIRS;DEPS;FILES" ${ARGN})
  list(TRANSFORM N_DIRS APPEND /*.cc)
  set(sources)
  foreach(pattern ${N_DIRS} ${N_FILES})
    file(GLOB found CONFIGURE_DEPENDS ${pattern})
    list(APPEND sources ${found})
  endforeach()
  set(target tally_${N_NAME})
  if(NOT sources)  # header only so far: an empty file keeps it an ordinary library, whatever is linked to it
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/${target}_headers_only.cc)
    file(CONFIGURE OUTPUT ${sources} CONTENT "")
  endif()
  if(TALLY_UNITY AND N_NAME STREQUAL "kernels")
    tally_kernel_groups(sources)
  endif()
  add_library(${target} STATIC ${sources})
  target_link_libraries(${target} PUBLIC ${N_DEPS})
  # The families are alike, down to the names of their parts, and so are the pictures of a report.
  if(TALLY_UNITY AND NOT N_NAME MATCHES "^(machine|models|page)$")
    tally_unity(${target})
  endif()
  if(TALLY_UNITY AND N_NAME STREQUAL "models")
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/models/family.h)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # or ccache would keep none of them
  endif()
  # These run before or after generation, not for each token: -O1 saves a third of their time to compile. Reading a configuration into a
  # recipe is quick in any case: -Og saves a fifth of what is left.
  if(N_NAME MATCHES "^(recipe|books|chat|hub|render|page|serve|studies|loaders|inventory)$")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  elseif(N_NAME MATCHES "^(models|catalog|reports)$")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  endif()
  # Instrumented, the optimiser takes half of a file's time. What runs for every op and every weight keeps it.
  if(TALLY_SANITIZE AND NOT N_NAME MATCHES "^(base|machine|kernels|ledger|weights|exec|graph)$")
    target_compile_options(${target} PRIVATE -O0)
    if(TALLY_SANITIZE MATCHES "undefined" AND NOT N_NAME MATCHES "^(loaders|inventory)$")  # these read files, whose parts may lie anywhere
      target_compile_options(${target} PRIVATE -fno-sanitize=alignment)
    endif()
    set_source_files_properties(${PROJECT_SOURCE_DIR}/engine/studies/synth_noise.cc ${PROJECT_SOURCE_DIR}/engine/base/digest.cc PROPERTIES COMPILE_OPTIONS -O1)
  endif()
  # What the fuzz targets are made of tells them which of its branches ran.
  if(TALLY_FUZZ AND N_NAME MATCHES "^(base|recipe|inventory|loaders|catalog|models|books|text|chat|grammar)$")
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# tally_tests(PROGRAM kernels_tests [COMPUTES] [STARTS_TALLY] [PLAIN] [FAST name...] [GOLDENS name...] [SLOW name...] [AVX2_TOO name...]
#   SOURCES file... DEPS target...):
# one program of several <name>_test.cc, each of which is a test of ctest's of that name and group. COMPUTES: what they compare with takes
# time, so that it is worth optimising. STARTS_TALLY: they start the command. PLAIN: sanitizers would find nothing in them. AVX2_TOO: of
# those, the ones that run once more as <name>_avx2, as on a processor without AVX-512, where this one has more than AVX2.
# Label `sanitized`: what .ci/run runs with the address sanitizer too: the fast tests of the library, and whole models.
function(tally_tests)
  cmake_parse_arguments(T "COMPUTES;STARTS_TALLY;PLAIN" "PROGRAM" "FAST;GOLDENS;SLOW;AVX2_TOO;SOURCES;DEPS" ${ARGN})
  set(threads parallel concurrent golden http_server serving serving_models)  # what threads meet in: the team, engines side by side, whole models, servers
  set(models golden families_golden checkpoint loaders_goldens)
  if(T_STARTS_TALLY AND CMAKE_CROSSCOMPILING)  # an emulated program cannot start another
    return()
  endif()
  set(files)
  set(sanitized OFF)
  foreach(group FAST GOLDENS SLOW)
    foreach(name ${T_${group}})
      # Every other test is one caller on one thread or the team's.
      if(TALLY_SANITIZE STREQUAL "thread" AND NOT name IN_LIST threads)
        continue()
      endif()
      list(APPEND files ${name}_test.cc)
      add_test(NAME ${name} COMMAND ${T_PROGRAM} --file=${name}_test.cc)
      # Tests run beside one another: a team that spins while it waits would take the cores from the next test.
      string(TOLOWER ${group} labels)
      if(NOT T_STARTS_TALLY AND NOT T_PLAIN AND (group STREQUAL FAST OR name IN_LIST models))
        list(APPEND labels sanitized)
        set(sanitized ON)
      endif()
      set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 600 ENVIRONMENT OMP_WAIT_POLICY=passive)
      if(T_STARTS_TALLY)  # what commands remember of tests is nobody's
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT XDG_STATE_HOME=${CMAKE_CURRENT_BINARY_DIR}/state)
      endif()
      if(group STREQUAL SLOW)
        set_tests_properties(${name} PROPERTIES COST 100)  # begins early
      endif()
      # Instrumented kernels have no more than AVX2 anyway.
      if(name IN_LIST T_AVX2_TOO AND NOT TALLY_SANITIZE AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
        add_test(NAME ${name}_avx2 COMMAND ${T_PROGRAM} --file=${name}_test.cc --again)
        string(TOLOWER ${group} labels)
        set_tests_properties(${name}_avx2 PROPERTIES LABELS ${labels} TIMEOUT 600
          ENVIRONMENT "OMP_WAIT_POLICY=passive;TALLY_TEST_TARGET=AVX2")
      endif()
    endforeach()
  endforeach()
  if(NOT files)
    return()
  endif()
  add_executable(${T_PROGRAM} ${files} ${T_SOURCES})
  target_link_libraries(${T_PROGRAM} PRIVATE test_main ${T_DEPS})
  if(T_COMPUTES)
    target_compile_options(${T_PROGRAM} PRIVATE -O1)
  endif()
  if(TALLY_UNITY)
    tally_unity(${T_PROGRAM})
    set_target_properties(${T_PROGRAM} PROPERTIES UNITY_BUILD_BATCH_SIZE 6)  # more have names in common
    if(NOT T_COMPUTES)
      target_precompile_headers(${T_PROGRAM} REUSE_FROM test_headers)
      target_compile_options(${T_PROGRAM} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # or ccache would keep none of them
    endif()
  endif()
  if(T_STARTS_TALLY)
    target_compile_definitions(${T_PROGRAM} PRIVATE TALLY_BINARY="$<TARGET_FILE:tally>")
    add_dependencies(${T_PROGRAM} tally)
  endif()
  if(sanitized)
    add_dependencies(library_tests ${T_PROGRAM})
  endif()
endfunction()
