# SPDX-License-Identifier: Apache-2.0
# Manual pages and completions of bash, zsh and fish: the built tally writes them, `cmake --install` puts them where man and the shells
# look. When cross-compiling without an emulator it cannot be run here, and there are none.
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "cross-compiling without an emulator: no manual pages and completions, which the built tally writes")
  return()
endif()
set(shell_files ${PROJECT_BINARY_DIR}/shell_files)
set(completions ${shell_files}/tally.bash ${shell_files}/_tally ${shell_files}/tally.fish)
add_custom_command(OUTPUT ${completions} ${shell_files}/man1/tally.1 VERBATIM
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${shell_files}  # the page of a command that is no more
  COMMAND ${CMAKE_COMMAND} -E make_directory ${shell_files}
  COMMAND tally man --out ${shell_files}/man1
  COMMAND tally completion bash > ${shell_files}/tally.bash
  COMMAND tally completion zsh > ${shell_files}/_tally
  COMMAND tally completion fish > ${shell_files}/tally.fish
  DEPENDS tally)
add_custom_target(tally_shell_files ALL DEPENDS ${completions} ${shell_files}/man1/tally.1)
add_dependencies(install_tree tally_shell_files)
install(DIRECTORY ${shell_files}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT command FILES_MATCHING PATTERN *.1)
install(FILES ${shell_files}/tally.bash DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions RENAME tally COMPONENT command)
install(FILES ${shell_files}/_tally DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/site-functions COMPONENT command)
install(FILES ${shell_files}/tally.fish DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d COMPONENT command)
