# SPDX-License-Identifier: Apache-2.0
# Copies the public HEADERS (paths from FROM) into TO, flat, where they include one another as "tally/NAME.h". One that includes a
# header of ours that is not among them is an error, as is one that names Highway or OpenMP, and one whose comments send a reader to a
# file that is not installed (docs/ is, as share/doc/tally/).
foreach(header ${HEADERS})
  file(READ ${FROM}/${header} text)
  foreach(other ${HEADERS})
    get_filename_component(name ${other} NAME)
    string(REPLACE "${other}" "tally/${name}" text "${text}")
  endforeach()
  string(REGEX REPLACE "docs/([a-z_]+\\.(md|json))" "share/doc/tally/\\1" text "${text}")
  if(text MATCHES "(^|[^A-Za-z_./])((engine|counters|loaders|models|tests|bench|scripts|cmake|docs)/[A-Za-z_]+[A-Za-z_/.]*|README|CONTRIBUTING|DESIGN)")
    message(FATAL_ERROR "${header}: ${CMAKE_MATCH_2} is cited and not installed")
  endif()
  string(REGEX MATCHALL "#include *[\"<][^\n]*" includes "${text}")
  foreach(include ${includes})
    if(include MATCHES "#include *\"" AND NOT include MATCHES "\"tally/" OR include MATCHES "hwy/|omp\\.h")
      message(FATAL_ERROR "${header}: a public header may not have ${include}")
    endif()
  endforeach()
  get_filename_component(name ${header} NAME)
  file(WRITE ${TO}/${name} "${text}")
endforeach()
