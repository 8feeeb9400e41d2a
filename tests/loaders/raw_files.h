// SPDX-License-Identifier: Apache-2.0
// GGUF and safetensors bytes put together without the code under test, so that every field may be wrong on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

// Little-endian bytes, appended one after another.
class Bytes {
 public:
  template <class T>
  Bytes& Le(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      unsigned char b = 0;
      std::memcpy(&b, reinterpret_cast<const char*>(&value) + i, 1);
      text_ += static_cast<char>(b);
    }
    return *this;
  }
  Bytes& U8(uint8_t v) { return Le(v); }
  Bytes& U32(uint32_t v) { return Le(v); }
  Bytes& U64(uint64_t v) { return Le(v); }
  Bytes& Raw(std::string_view s) {
    text_ += s;
    return *this;
  }
  Bytes& Str(std::string_view s) { return U64(s.size()).Raw(s); }
  Bytes& Zeros(size_t n) {
    text_.append(n, '\0');
    return *this;
  }
  Bytes& AlignTo(size_t alignment) { return Zeros((alignment - text_.size() % alignment) % alignment); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// One tensor of a RawGguf; every field may be wrong on purpose.
struct RawTensor {
  std::string name = "t";
  std::vector<uint64_t> ne = {4};  // innermost first, as in the file
  uint32_t type = 0;
  uint64_t offset = 0;
};

struct RawGguf {
  uint32_t version = 3;
  std::vector<std::string> keys;  // bytes of key, type and value: see Key
  std::vector<RawTensor> tensors;
  int64_t more_tensors = 0, more_keys = 0;  // added to the counts
  uint64_t alignment = 32;
  uint64_t data_bytes = 0;

  std::string Make() const {
    Bytes b;
    b.Raw("GGUF").U32(version).U64(tensors.size() + static_cast<uint64_t>(more_tensors));
    b.U64(keys.size() + static_cast<uint64_t>(more_keys));
    for (const std::string& k : keys) b.Raw(k);
    for (const RawTensor& t : tensors) {
      b.Str(t.name).U32(static_cast<uint32_t>(t.ne.size()));
      for (const uint64_t n : t.ne) b.U64(n);
      b.U32(t.type).U64(t.offset);
    }
    if (data_bytes > 0) b.AlignTo(alignment).Zeros(data_bytes);
    return b.text();
  }
};

// A metadata entry: its value's bytes are `value`.
inline std::string Key(std::string_view key, uint32_t type, const Bytes& value) {
  return Bytes().Str(key).U32(type).Raw(value.text()).text();
}

// A safetensors file: header length, header, data.
inline std::string Safetensors(std::string_view header, size_t data_bytes) {
  return Bytes().U64(header.size()).Raw(header).Zeros(data_bytes).text();
}

}  // namespace tally
