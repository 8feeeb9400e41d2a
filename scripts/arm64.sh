#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Tally for AArch64 with Debian's cross compiler and runs it under qemu-user, on a machine of another kind; on an Arm machine use
# scripts/test.sh. Debian 12 and 13. --quick (the default): the demo model and the tests of kernels, golden checkpoints and audits that tell
# most, each with plain NEON, with SDOT, and with all of Armv8.6's products. --all: every fast and golden test that starts no other program,
# on the same three; hours. --build: builds alone.
#
# The arm64 packages are unpacked into build/arm64_root (scripts/arm64_root.sh).
. "$(dirname "${BASH_SOURCE[0]}")/build.sh"

root=$PWD/build/arm64_root
packages=(libc6-dev libstdc++6 libgomp1 libhwy-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev libcli11-dev
  libgtest-dev libopenblas0-pthread)
# Without dot products; with SDOT; with SMMLA, BFDOT and BFMMLA too.
processors=(cortex-a72 neoverse-n1 max)
quick_targets=(tally kernels_tests reference_tests goldens_tests)

unpack_root() {
  scripts/arm64_root.sh "$root" "${packages[@]}"
  # The name that Debian's alternatives give it.
  ln -sfn openblas-pthread/libopenblas.so.0 "$root/usr/lib/aarch64-linux-gnu/libopenblas.so.0"
}

emulated() {  # PROCESSOR COMMAND...
  OMP_WAIT_POLICY=passive QEMU_CPU=$1 qemu-aarch64 -L "$root" "${@:2}"
}

# The text is that of every other machine's int8 kernels.
demo_text() {
  local text
  text=$(emulated "$1" build/arm64/engine/tally run demo -p "The ledger" -n 24 --temp 0 --threads 2 2>/dev/null)
  say "$text"
  [ "$text" = "$demo_expected" ] || die "arm64.sh: another text than on x86: '$demo_expected'"
}

quick_tests() {
  demo_text "$1"
  emulated "$1" build/arm64/tests/kernels/kernels_tests --gtest_filter="$kernel_filter"
  emulated "$1" build/arm64/tests/goldens/reference_tests --gtest_filter="$reference_filter"
  emulated "$1" build/arm64/tests/goldens/goldens_tests --gtest_filter="$golden_filter"
}

all_tests() {
  QEMU_CPU=$1 ctest --preset arm64 --no-tests=error -L '^(fast|goldens)$' -E '^(layering|symbols|kneser_ney|package|demo_build)$' --timeout 7200
  skipped arm64
}

demo_expected=$' of the king\'s sons,\nAnd, by the king, the king, the king of York,\nAnd'
kernel_filter='*MatMul*:PackAct*:Kernels.*:Attention.*-Attention.*Batch:Attention.*Charged'
reference_filter='Cases/QuantisedTest.*gptoss_a*:Cases/QuantisedTest.*llama_a*:Cases/Bf16Test.*:Cases/GoldenTest.*gptoss_a*:Cases/GoldenTest.*llama_b*'
golden_filter='PageProofOf.*:All/AuditOf.*llama_a*:All/AuditOf.*gptoss_a*:All/PagesOf.*llama_a*'

what=${1:---quick}
case $what in
  --quick | --all | --build) ;;
  *) die "arm64.sh: '$what': --quick, --all or --build" ;;
esac
stage "install what is missing" scripts/install_deps.sh --arm64
stage "arm64 packages" unpack_root
stage "configure (arm64)" configure arm64 -DTALLY_BUILD_TESTS=ON
if [ "$what" = --all ]; then
  stage "build (arm64)" cmake --build --preset arm64
else
  stage "build (arm64)" cmake --build --preset arm64 --target "${quick_targets[@]}"
fi
case $what in
  --quick) for p in "${processors[@]}"; do stage "quick tests on $p" quick_tests "$p"; done ;;
  --all) for p in "${processors[@]}"; do stage "tests on $p" all_tests "$p"; done ;;
esac
stage_summary
