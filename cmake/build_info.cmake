# SPDX-License-Identifier: Apache-2.0
# Writes OUT, a source of the command, from TEMPLATE: the commit of the tree SOURCE, and what the other variables say of the build.
# Runs at every build; OUT changes only where what it says does.
#
# The commit is a clone's own, "-dirty" where files differ from it, or that which `git archive` wrote into the next line.
set(archived "$Format:%H$")
set(commit unknown)
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=12
    OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    set(commit ${said})
  endif()
elseif(NOT archived MATCHES "Format")
  string(SUBSTRING "${archived}" 0 12 commit)
endif()
configure_file(${TEMPLATE} ${OUT} @ONLY)
