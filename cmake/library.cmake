# SPDX-License-Identifier: Apache-2.0
# libtally.so and libtally.a, made of the nodes' objects; the public headers; and what `cmake --install` puts where others find it:
#   find_package(tally 0.2 CONFIG REQUIRED)                     tally::tally, the shared library
#   find_package(tally 0.2 CONFIG REQUIRED COMPONENTS static)   tally::tally_static too, with the libraries it needs
#   pkg-config --cflags --libs tally
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# What a program may include: tally.h and what it includes. FOLDER/NAME.h is installed
# as tally/NAME.h.
set(public_headers
  engine/api/tally.h
  engine/base/dtype.h engine/base/export.h engine/base/formats.inc engine/base/kinds.h engine/base/mat.h engine/base/rows.h engine/base/stack.h engine/base/status.h
  engine/base/stored_types.inc
  engine/chat/chat_format.h engine/chat/message.h engine/chat/output.h
  engine/grammar/call_notation.h engine/grammar/grammar.h engine/grammar/grammar_cache.h engine/grammar/vocabulary.h
  engine/hub/hub.h engine/machine/peaks.h engine/page/page.h engine/page/report_data.h
  engine/recipe/sizes.h engine/render/json.h engine/render/table.h engine/render/value.h
  engine/reports/audit_report.h engine/reports/bill_report.h engine/reports/claims_report.h engine/reports/count_report.h engine/reports/fit_report.h engine/reports/ledger_report.h engine/reports/training_report.h
  engine/text/tokenizer.h
  engine/session/answer_calls.h engine/session/batch.h engine/session/conversation.h engine/session/engine.h engine/session/generate.h engine/session/held_calls.h engine/session/logprobs.h engine/session/model.h engine/session/output_stream.h engine/session/probe.h engine/session/request.h engine/session/sampling.h engine/session/scheduler.h engine/session/sequences.h engine/session/token_rules.h
  engine/studies/audit.h engine/studies/claims.h engine/studies/count.h engine/studies/count_figures.h engine/studies/draft_speed.h engine/studies/fit.h engine/studies/fit_models.h engine/studies/grammar_speed.h engine/studies/inspect.h engine/studies/kept_bench.h engine/studies/logits.h engine/studies/packed_model.h engine/studies/perplexity.h engine/studies/quantize.h engine/studies/report.h engine/studies/run_hits.h engine/studies/run_info.h engine/studies/speed.h engine/studies/streaming_forecast.h
  engine/studies/summary.h engine/studies/synth.h
  counters/books/books.h counters/books/closed_form.h counters/books/communication.h counters/books/figure.h counters/books/form.h counters/books/model_count.h counters/books/parts.h counters/books/published.h
  counters/books/step_audit.h counters/books/streaming.h counters/books/training.h
  counters/cost/cost.h counters/cost/op_description.h counters/cost/site.h
  counters/ledger/bill.h counters/ledger/ledger.h counters/ledger/process_books.h counters/ledger/record.h counters/ledger/touch_set.h counters/ledger/weight_slices.h
  loaders/inventory/inventory.h loaders/inventory/packed_header.h loaders/npy.h)
set(public_root ${PROJECT_BINARY_DIR}/include)
set(public_sources)
set(public_copies)
foreach(header ${public_headers})
  get_filename_component(name ${header} NAME)
  list(APPEND public_sources ${PROJECT_SOURCE_DIR}/${header})
  list(APPEND public_copies ${public_root}/tally/${name})
endforeach()
add_custom_command(OUTPUT ${public_copies} VERBATIM
  COMMAND ${CMAKE_COMMAND} "-DHEADERS=${public_headers}" -DFROM=${PROJECT_SOURCE_DIR} -DTO=${public_root}/tally
          -P ${PROJECT_SOURCE_DIR}/cmake/public_headers.cmake
  DEPENDS ${public_sources} ${PROJECT_SOURCE_DIR}/cmake/public_headers.cmake)
add_custom_target(tally_public_headers ALL DEPENDS ${public_copies})

set(nodes base cost recipe inventory machine kernels ledger weights exec books graph models text chat grammar loaders catalog render page session studies reports hub)
set(objects)
foreach(node ${nodes})
  list(APPEND objects $<TARGET_OBJECTS:tally_${node}>)
endforeach()
if(TALLY_HWY_FETCHED)  # nobody else has it: it becomes part of both
  list(APPEND objects $<TARGET_OBJECTS:hwy>)
endif()

add_library(tally_shared SHARED ${objects})
add_library(tally_static STATIC ${objects})
add_library(tally::tally ALIAS tally_shared)
add_library(tally::tally_static ALIAS tally_static)
foreach(library tally_shared tally_static)
  add_dependencies(${library} tally_public_headers)
  target_compile_features(${library} INTERFACE cxx_std_20)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${public_root}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${library} PRIVATE PkgConfig::PCRE2 PkgConfig::UTF8PROC ${CMAKE_DL_LIBS})
  set_target_properties(${library} PROPERTIES OUTPUT_NAME tally LINKER_LANGUAGE CXX)
endforeach()
if(NOT TALLY_HWY_FETCHED)
  target_link_libraries(tally_shared PRIVATE $<BUILD_INTERFACE:hwy::hwy>)
  target_link_libraries(tally_static PRIVATE hwy::hwy)
endif()
# The team's runtime is the one that the objects were compiled for, whatever compiler a user has: by name, and found by its driver.
set(runtime pthread)
if(TALLY_TEAM STREQUAL "openmp")
  set(runtime ${OpenMP_CXX_LIB_NAMES})
  target_link_libraries(tally_shared PRIVATE OpenMP::OpenMP_CXX)
  target_link_libraries(tally_static PRIVATE $<BUILD_INTERFACE:OpenMP::OpenMP_CXX>)
endif()
foreach(name ${runtime})
  target_link_libraries(tally_static PRIVATE $<INSTALL_INTERFACE:${name}>)
endforeach()

# Before 1.0 a minor version may change the interface.
set(abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(tally_shared PROPERTIES EXPORT_NAME tally VERSION ${PROJECT_VERSION} SOVERSION ${abi})
if(NOT APPLE)
  configure_file(cmake/libtally.map.in libtally.map @ONLY)
  target_link_options(tally_shared PRIVATE -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/libtally.map)
  set_target_properties(tally_shared PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/libtally.map)
  if(NOT TALLY_SANITIZE)
    target_link_options(tally_shared PRIVATE -Wl,--no-undefined)
  endif()
endif()

# All that `cmake --install` puts somewhere, and nothing else. `--component command` is the command and what it reads: an archive's files.
add_custom_target(install_tree DEPENDS tally tally_shared tally_static tally_public_headers)
install(FILES ${public_copies} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tally)
install(TARGETS tally_shared EXPORT tallyTargets)
install(TARGETS tally_static EXPORT tallyStaticTargets)
install(TARGETS tally COMPONENT command)
if(TALLY_WITH_MPI)
  add_dependencies(install_tree tally_mpi)
  install(TARGETS tally_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES LICENSE NOTICE THIRD_PARTY.md CHANGELOG.md docs/accounting.md docs/claims.md docs/ledger.schema.json
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/tally COMPONENT command)
install(FILES models/demo/demo.gguf DESTINATION share/tally COMPONENT command)  # where DemoModelPath looks, whatever the data folder's name
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tally)
install(EXPORT tallyTargets NAMESPACE tally:: DESTINATION ${package_dir})
install(EXPORT tallyStaticTargets NAMESPACE tally:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tallyConfig.cmake.in tallyConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(tallyConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tallyConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/tallyConfigVersion.cmake
        DESTINATION ${package_dir})

# What only the static library needs stands in Libs.private: as Requires.private, pkg-config would want the packages' own files of
# those who link the shared one too, and hand them their flags.
set(pc_libs ${runtime} ${CMAKE_DL_LIBS})
if(NOT TALLY_HWY_FETCHED)
  list(APPEND pc_libs hwy)
endif()
list(TRANSFORM pc_libs PREPEND -l)
list(JOIN pc_libs " " pc_libs)
list(JOIN PCRE2_LDFLAGS " " pcre2)
list(JOIN UTF8PROC_LDFLAGS " " utf8proc)
string(PREPEND pc_libs "${pcre2} ${utf8proc} ")
set(pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_prefix ${pc_dir} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH pc_libdir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH pc_includedir ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(cmake/tally.pc.in tally.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tally.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
