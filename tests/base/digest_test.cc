// SPDX-License-Identifier: Apache-2.0
#include "engine/base/digest.h"

#include <gtest/gtest.h>

#include <string>

namespace tally {
namespace {

TEST(Digest, OfTheStandardsAndGitsExamples) {
  const auto of = [](Digest digest, const std::string& text) {
    digest.Add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return digest.Hex();
  };
  // FIPS 180-4's examples, as NIST publishes them.
  EXPECT_EQ(of(Digest::Sha256(), "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of(Digest::Sha256(), ""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of(Digest::Sha256(), "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of(Digest::Sha256(), std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(of(Digest::Sha1(), "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(of(Digest::Sha1(), std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  EXPECT_EQ(of(Digest::GitBlob(0), ""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");  // git hash-object /dev/null
  EXPECT_EQ(of(Digest::GitBlob(6), "hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(of(Digest::PortableSha256(), std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (size_t n = 0; n < 300; ++n)
    EXPECT_EQ(of(Digest::PortableSha256(), std::string(n, 'x')), of(Digest::Sha256(), std::string(n, 'x')));
  // Any cutting gives the same.
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (const size_t piece : {1u, 3u, 63u, 64u, 65u, 130u}) {
    Digest a = Digest::Sha256(), b = Digest::Sha1();
    for (size_t at = 0; at < text.size(); at += piece) {
      const std::string part = text.substr(at, piece);
      for (Digest* d : {&a, &b}) d->Add({reinterpret_cast<const uint8_t*>(part.data()), part.size()});
    }
    EXPECT_EQ(a.Hex(), of(Digest::Sha256(), text));
    EXPECT_EQ(b.Hex(), of(Digest::Sha1(), text));
  }
}

}  // namespace
}  // namespace tally
