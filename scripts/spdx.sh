#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gives every source of ours that has none the line that names its licence: first in the file, or second after "#!". tests/layering
# fails where one is missing.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tag="SPDX-License-Identifier: Apache-2.0"
list=$(sources '*.h' '*.cc' '*.inc' '*.mjs' '*.js' '*.css' '*.cc.in' '*.sh' '*.py' '*.cmake' '*.cmake.in' '*CMakeLists.txt' '.ci/run')
changed=0
while read -r file; do
  if head -n 2 "$file" | grep -qF "$tag"; then continue; fi
  case $file in
    *.h | *.cc | *.cc.in | *.inc | *.mjs | *.js) line="// $tag" ;;
    *.css) line="/* $tag */" ;;
    *) line="# $tag" ;;
  esac
  if [ "$(head -c 2 "$file")" = '#!' ]; then sed -i "1a $line" "$file"; else sed -i "1i $line" "$file"; fi
  changed=$((changed + 1))
done <<<"$list"
say "$changed of $(wc -l <<<"$list") files had no licence line"
