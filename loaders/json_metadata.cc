// SPDX-License-Identifier: Apache-2.0
#include "loaders/json_metadata.h"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/json.h"
#include "loaders/checks.h"
#include "loaders/inventory/file_reader.h"
#include "loaders/inventory/message.h"

namespace tally::internal {
namespace {

constexpr int kMaxConfigDepth = 32;
constexpr uint64_t kMaxConfigBytes = uint64_t{8} << 20;
constexpr size_t kMaxConfigKeyBytes = 512;  // flattened

// Flattens objects into metadata keys.
class Flattener : public JsonHandler {
 public:
  Flattener(std::string_view prefix, std::string_view skip, Metadata* metadata)
      : prefix_(prefix), skip_(skip), metadata_(metadata) {}

  Status Key(std::string key) override {
    if (array_depth_ > 0) return {};
    key_.resize(lengths_.back());
    if (key_.size() + key.size() > kMaxConfigKeyBytes) {
      return BadInput("the key " + Quote(key_ + key) + " is longer than " + std::to_string(kMaxConfigKeyBytes) + " bytes");
    }
    key_ += key;
    return {};
  }

  Status Begin(bool object) override {
    if (array_depth_ > 0) {  // something in an array
      ++array_depth_;
      plain_ = false;
      array_.clear();
    } else if (!object) {
      array_depth_ = 1;
      plain_ = true;
      array_.clear();
    } else {
      if (!lengths_.empty()) {
        TALLY_RETURN_IF_ERROR(Keep([](Metadata& m, std::string key) { m.SetOther(std::move(key), Metadata::kObject); }));
        key_ += '.';
      }
      lengths_.push_back(key_.size());
    }
    return {};
  }

  Status End() override {
    if (array_depth_ > 0) {
      if (--array_depth_ > 0) return {};
      if (std::optional<MetaValue> value = plain_ ? ArrayValue() : std::nullopt) return Set(std::move(*value));
      return Keep([this](Metadata& m, std::string key) {
        m.SetOther(std::move(key), plain_ ? "an array of several kinds or of null" : "an array of arrays or objects");
      });
    }
    lengths_.pop_back();
    return {};
  }

  Status Scalar(JsonScalar value) override {
    if (array_depth_ > 0) {
      if (plain_) array_.push_back(std::move(value));
      return {};
    }
    if (const auto* u = std::get_if<uint64_t>(&value)) {
      return *u <= INT64_MAX ? Set(static_cast<int64_t>(*u)) : Set(*u);
    }
    if (const auto* b = std::get_if<bool>(&value)) return Set(*b);
    if (const auto* i = std::get_if<int64_t>(&value)) return Set(*i);
    if (const auto* d = std::get_if<double>(&value)) return Set(*d);
    if (auto* s = std::get_if<std::string>(&value)) return Set(std::move(*s));
    return Keep([](Metadata& m, std::string key) { m.SetNull(std::move(key)); });
  }

 private:
  Status Set(MetaValue value) {
    return Keep([&value](Metadata& m, std::string key) { m.Set(std::move(key), std::move(value)); });
  }

  // Calls set(metadata, key) with the full name of key_, unless it is one to skip.
  template <class Setter>
  Status Keep(Setter set) {
    if (!skip_.empty() && key_.starts_with(skip_) && (key_.size() == skip_.size() || key_[skip_.size()] == '.')) return {};
    std::string key = std::string(prefix_) + key_;
    if (metadata_->Has(key) || metadata_->IsNull(key) || metadata_->IsOther(key)) {
      return BadInput("the key " + Quote(key_) + " appears twice, once nested and once with dots");
    }
    if (metadata_->size() == kMaxMetadataKeys) return BadInput("more than " + std::to_string(kMaxMetadataKeys) + " values");
    set(*metadata_, std::move(key));
    return {};
  }

  // The value of array_, nullopt if it is not of one kind.
  std::optional<MetaValue> ArrayValue() {
    bool bools = true, strings = true, integers = true, numbers = true;
    for (const JsonScalar& e : array_) {
      const auto* u = std::get_if<uint64_t>(&e);
      const bool integer = std::holds_alternative<int64_t>(e) || (u != nullptr && *u <= INT64_MAX);
      integers = integers && integer;
      numbers = numbers && (integer || u != nullptr || std::holds_alternative<double>(e));
      bools = bools && std::holds_alternative<bool>(e);
      strings = strings && std::holds_alternative<std::string>(e);
    }
    if (integers) return Convert<int64_t>();  // the empty array too
    if (numbers) return Convert<double>();
    if (bools) return Convert<bool>();
    if (strings) return Convert<std::string>();
    return std::nullopt;
  }

  template <class T>
  MetaValue Convert() {
    std::vector<T> out;
    out.reserve(array_.size());
    for (JsonScalar& e : array_) {
      std::visit(
          [&](auto& v) {
            using V = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<V, T>) {
              out.push_back(std::move(v));
            } else if constexpr (std::is_arithmetic_v<V> && std::is_arithmetic_v<T>) {
              out.push_back(static_cast<T>(v));
            }
          },
          e);
    }
    return out;
  }

  const std::string_view prefix_, skip_;
  Metadata* metadata_;
  std::string key_;                // of the value that comes next
  std::vector<size_t> lengths_;    // of key_'s part that belongs to each open object
  int array_depth_ = 0;            // open arrays and what is open in them
  bool plain_ = true;              // the open array holds scalars only
  std::vector<JsonScalar> array_;  // its elements
};

}  // namespace

Status ReadJsonMetadata(const std::string& path, std::string_view prefix, std::string_view skip, Metadata* metadata) {
  TALLY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConfigBytes));
  return ParseJsonMetadata(Printable(path), text, prefix, skip, metadata);
}

Status ParseJsonMetadata(const std::string& place, std::string_view text, std::string_view prefix, std::string_view skip,
                         Metadata* metadata) {
  Flattener flattener(prefix, skip, metadata);
  return ParseJson(place, text, {.depth = kMaxConfigDepth, .non_finite = true}, flattener);
}

}  // namespace tally::internal
