# SPDX-License-Identifier: Apache-2.0
# Homebrew's formula, for Linux. `scripts/package.sh source` fills in $RELEASE_URL, $HOMEPAGE and the checksum, in build/packages.
class Tally < Formula
  desc "Runs transformer language models on CPUs, and says exactly what that cost"
  homepage "@HOMEPAGE@"
  url "@URL@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :build
  depends_on "curl"
  depends_on "highway"
  depends_on "libedit"
  depends_on :linux
  depends_on "pcre2"
  depends_on "utf8proc"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DTALLY_BUILD_TESTS=OFF", "-DTALLY_BUILD_BENCH=OFF", "-DTALLY_MPI=OFF",
                    "-DTALLY_PULL=ON", "-DTALLY_LINE_EDITING=ON", *std_cmake_args
    system "cmake", "--build", "build", "--target", "install_tree"
    system "cmake", "--install", "build"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/tally --version")
    assert_match(/[a-z]/, shell_output("#{bin}/tally run demo -q -n 8 -p hello"))
  end
end
