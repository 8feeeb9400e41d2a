// SPDX-License-Identifier: Apache-2.0
#include "engine/base/shared_library.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

TEST(SharedLibrary, SaysWhatIsMissing) {
  SharedLibrary mathematics("libm", "libc6", {"", "libnone.so.7", "libm.so.6", "libm.dylib"});
  EXPECT_TRUE(mathematics.status().ok()) << mathematics.status().message();
  double (*const cosine)(double) = mathematics.Find("cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
  void (*const none)() = mathematics.Find("no_such_function");
  EXPECT_EQ(none, nullptr);
  (void)mathematics.Find("nor_this");
  EXPECT_EQ(mathematics.status().code(), StatusCode::kBadInput);
  EXPECT_TRUE(mathematics.status().message().ends_with(" lacks no_such_function")) << mathematics.status().message();
  EXPECT_TRUE(mathematics.status().message().starts_with("libm cannot be used: libm.")) << mathematics.status().message();
}

TEST(SharedLibrary, NamesThePackageAndTheFirstReason) {
  SharedLibrary none("libnone", "libnone7", {"libnone.so.7", "/nowhere/libnone.so"});
  void (*const function)() = none.Find("f");
  EXPECT_EQ(function, nullptr);
  const std::string& message = none.status().message();
  EXPECT_TRUE(message.starts_with("libnone cannot be loaded (Debian, Ubuntu: apt-get install libnone7): ")) << message;
  EXPECT_NE(message.find("libnone.so.7"), std::string::npos) << message;
  EXPECT_EQ(message.find("nowhere"), std::string::npos) << message;
}

}  // namespace
}  // namespace tally
