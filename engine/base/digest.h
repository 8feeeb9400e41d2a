// SPDX-License-Identifier: Apache-2.0
// SHA-1 and SHA-256, and the digests by which git and the Hugging Face hub name files.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tally {

// SHA-1 and SHA-256 of FIPS 180-4: both take blocks of 64 bytes and pad alike.
class Digest {
 public:
  static Digest Sha256();          // with the processor's instructions, if it has them
  static Digest PortableSha256();  // without such instructions
  static Digest Sha1();
  static Digest GitBlob(uint64_t size);  // SHA-1 of "blob SIZE", a zero byte and the file
  // A digest of the kind of `digest`: SHA-256 for 64 digits, GitBlob(size) for 40.
  static Digest Like(std::string_view digest, uint64_t size);

  void Add(std::span<const uint8_t> bytes);
  std::string Hex() const;  // of what was added so far

 private:
  explicit Digest(bool sha256);
  bool sha256_;
  void (*block_)(std::array<uint32_t, 8>& state, const uint8_t* bytes);
  std::array<uint32_t, 8> state_{};
  std::array<uint8_t, 64> rest_{};  // less than a block
  uint64_t bytes_ = 0;
};

}  // namespace tally
