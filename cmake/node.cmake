# SPDX-License-Identifier: Apache-2.0
# tally_unity(TARGET): its files are compiled several at a time, as if they were one, so that JSON's and CLI11's headers, and what comes of
# their templates, are compiled less often.
function(tally_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TALLY_UNITY_BATCH})
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
  add_library(${target} STATIC ${sources})
  target_link_libraries(${target} PUBLIC ${N_DEPS})
  # Kernels include themselves for each instruction set; the families are alike, down to the names of their parts, and so are the
  # pictures of a report.
  if(TALLY_UNITY AND NOT N_NAME MATCHES "^(machine|kernels|models|page)$")
    tally_unity(${target})
  endif()
  # These run before or after generation, not for each token: -O1 saves a third of their time to compile.
  if(N_NAME MATCHES "^(recipe|books|chat|hub|page|models|catalog)$")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  # Instrumented, the optimiser takes half of a file's time. What runs for every op and every weight keeps it.
  if(TALLY_SANITIZE AND NOT N_NAME MATCHES "^(base|machine|kernels|ledger|weights|exec|graph)$")
    target_compile_options(${target} PRIVATE -O0)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/engine/studies/synth_noise.cc ${PROJECT_SOURCE_DIR}/engine/hub/digest.cc PROPERTIES COMPILE_OPTIONS -O1)
  endif()
  # Left out: checks of pointers, whose errors the address sanitizer finds too. With them kernels take three times as long to compile.
  if(TALLY_SANITIZE MATCHES "address,undefined" AND N_NAME STREQUAL kernels)
    target_compile_options(${target} PRIVATE -fno-sanitize=null,object-size,pointer-overflow)
  endif()
endfunction()

# tally_test(NAME norm GROUP fast [COMPUTES] DEPS ...): builds <NAME>_test.cc and registers its cases with ctest. COMPUTES: what it
# compares with takes time, so that it is worth optimising.
function(tally_test)
  cmake_parse_arguments(T "COMPUTES" "NAME;GROUP" "DEPS" ${ARGN})
  string(REPLACE "/" "_" target ${T_NAME}_test)
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${T_NAME}_test.cc)
    message(WARNING "${CMAKE_CURRENT_SOURCE_DIR}/${T_NAME}_test.cc is registered and does not exist")
    return()
  endif()
  add_executable(${target} ${T_NAME}_test.cc)
  target_link_libraries(${target} PRIVATE ${T_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE TALLY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(T_COMPUTES)
    target_compile_options(${target} PRIVATE -O1)
  elseif(TARGET test_headers)
    target_precompile_headers(${target} REUSE_FROM test_headers)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # or ccache would keep none of them
  endif()
  if(T_GROUP MATCHES "^(fast|goldens)$" AND NOT T_NAME MATCHES "^cli_")
    add_dependencies(library_tests ${target})
  endif()
  add_test(NAME ${T_NAME} COMMAND ${target})
  # Tests run beside one another: a team that spins while it waits would take the cores from the next test.
  set_tests_properties(${T_NAME} PROPERTIES LABELS ${T_GROUP} TIMEOUT 600 ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()
