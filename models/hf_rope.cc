// SPDX-License-Identifier: Apache-2.0
// Hugging Face's rope_theta, rope_scaling (old) and rope_parameters (new). The rules are those of transformers 5
// (modeling_rope_utils.py); what it ignores, or what its versions read differently, is refused.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "engine/base/format.h"
#include "engine/recipe/rope_freqs.h"
#include "models/readings.h"

namespace tally {
namespace {

// Divisors of the frequencies, one for each pair that rotates.
std::vector<double> ReadDivisors(Config& c, const std::string& key, const Recipe& r) {
  std::vector<double> divisors = c.Doubles(key);
  const size_t pairs = static_cast<size_t>(r.rope.dim / 2);
  if (c.ok() && divisors.size() != pairs) {
    c.Fail(key + " lists " + std::to_string(divisors.size()) + " divisors for " + std::to_string(pairs) + " frequencies");
  }
  return divisors;
}

// The context before it was extended: a key of the configuration, or of the scaling. `otherwise` 0: none.
double ReadOriginalContext(Config& c, const std::string& p, double otherwise) {
  const std::string key = "original_max_position_embeddings", keys = key + "|" + p + key;
  const double original = otherwise > 0 ? c.Positive(keys, otherwise) : c.Positive(keys);
  if (c.Has(key) && c.Has(p + key) && c.Positive(p + key) != original) c.Unsupported(p + key, "other than " + key);
  return original;
}

// LongRoPE. Without attention_factor cos and sin are multiplied by sqrt(1 + ln(s) / ln(original)), where s is the context over the
// original one. Versions of the published code differ in whether `factor` takes the place of s.
void ReadLongRope(Config& c, const std::string& p, Recipe& r, const DecoderDefaults& d) {
  RopeScaling& s = r.rope.scaling;
  s.kind = RopeScalingKind::kLongRope;
  s.short_factors = ReadDivisors(c, p + "short_factor", r);
  s.long_factors = ReadDivisors(c, p + "long_factor", r);
  s.original_context = ReadOriginalContext(c, p, d.original_context > 0 ? d.original_context : r.context);
  const double stretch = r.context / s.original_context;
  s.attention_factor = stretch > 1 ? std::sqrt(1 + std::log(stretch) / std::log(s.original_context)) : 1;
  const bool given = c.Has(p + "attention_factor");
  if (given) s.attention_factor = c.Positive(p + "attention_factor");
  if (c.Has(p + "factor") && std::fabs(c.Positive(p + "factor") / stretch - 1) > 1e-6 && !given) {
    c.Unsupported(p + "factor", "other than max_position_embeddings / original_max_position_embeddings, with longrope,");
  }
}

// YaRN's factor of cos and sin: attention_factor; else, if mscale and mscale_all_dim are both present, the quotient of their magnitudes;
// else 0.1 ln(factor) + 1. With latent attention the published codes disagree about an mscale alone, about a 0 for either, and about
// attention_factor, which is transformers' only. A missing mscale is 1, as in DeepSeek's code.
double ReadYarnMagnitude(Config& c, const std::string& p, double factor, bool latent, bool lone_mscale) {
  const std::string mscale_key = p + "mscale", all_key = p + "mscale_all_dim", given_key = p + "attention_factor";
  const double all = c.Has(all_key) ? c.Double(all_key, 0) : 0;
  const double mscale = c.Has(mscale_key) ? c.Double(mscale_key, 0) : latent && all > 0 ? 1 : 0;
  const bool given = c.Has(given_key), zero = latent && (c.Has(mscale_key) || c.Has(all_key));
  if (lone_mscale && !c.Has(all_key)) return given ? c.Positive(given_key) : YarnMagnitude(factor);
  if (!given && (mscale > 0) != (all > 0)) c.Unsupported(mscale > 0 ? mscale_key : all_key, "without the other magnitude");
  if (mscale < 0 || (mscale == 0 && zero)) c.Unsupported(mscale_key, NumberText(mscale));
  if (all < 0 || (all == 0 && zero)) c.Unsupported(all_key, NumberText(all));
  const double usual = mscale > 0 && all > 0 ? YarnMagnitude(factor, mscale) / YarnMagnitude(factor, all) : YarnMagnitude(factor);
  if (!given) return usual;
  const double told = c.Positive(given_key);
  if (latent && std::fabs(told / usual - 1) > 1e-6) c.Unsupported(given_key, "with latent attention");
  return told;
}

// Reads factor and what else a kind of scaling needs; `p` stands before the keys.
void ReadScaling(Config& c, const std::string& p, Recipe& r, const std::string& type, const DecoderDefaults& d) {
  RopeScaling& s = r.rope.scaling;
  if (type == "linear") {
    s.factor = c.Positive(p + "factor");
    if (s.factor != 1) s.kind = RopeScalingKind::kLinear;
  } else if (type == "llama3") {
    s.kind = RopeScalingKind::kLlama3;
    s.factor = c.Positive(p + "factor");
    s.low_freq_factor = c.Positive(p + "low_freq_factor");
    s.high_freq_factor = c.Positive(p + "high_freq_factor");
    s.original_context = ReadOriginalContext(c, p, 0);
    if (c.ok() && s.low_freq_factor > s.high_freq_factor) c.Fail(p + "low_freq_factor is above high_freq_factor");
  } else if (type == "yarn") {
    s.kind = RopeScalingKind::kYarn;
    const bool extended = c.Has("original_max_position_embeddings|" + p + "original_max_position_embeddings");
    s.original_context = ReadOriginalContext(c, p, r.context);
    s.factor = extended ? c.Positive(p + "factor", r.context / s.original_context) : c.Positive(p + "factor");
    s.beta_fast = c.Positive(p + "beta_fast", 32);
    s.beta_slow = c.Positive(p + "beta_slow", 1);
    s.truncate = c.Bool(p + "truncate", true);
    s.attention_factor = ReadYarnMagnitude(c, p, s.factor, r.all.latent.kv_rank > 0, d.lone_mscale);
  } else if (type == "dynamic" && d.dynamic_alpha && c.Has(p + "alpha")) {  // the other keys have no effect
    for (const char* key : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) c.Has(p + key);
    if (r.rope.dim < 4) return c.Unsupported(p + "alpha", "with " + std::to_string(r.rope.dim) + " rotated dimensions");
    r.rope.theta *= std::pow(c.Positive(p + "alpha"), r.rope.dim / (r.rope.dim - 2.0));
  } else if (type == "dynamic") {
    s.kind = RopeScalingKind::kDynamic;
    s.factor = c.Positive(p + "factor");
    s.original_context = r.context;
  } else if (type == "longrope" || type == "su") {
    ReadLongRope(c, p, r, d);
  } else if (type != "default" && type != "none") {
    c.Unsupported(p + "rope_type", Quote(type));
  }
}

// True for keys that the kinds of scaling share, or that change nothing.
bool IsShared(std::string_view key) {
  constexpr std::string_view kShared[] = {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings", "finetuned"};
  return std::ranges::find(kShared, key) != std::end(kShared);
}

// Refuses keys that the kind of scaling does not have. Without a scaling, and for `type` beside rope_type, it only notes them.
void RefuseUnread(Config& c, const std::string& p, const std::string& type) {
  for (const std::string& key : c.Below(p)) {
    if (IsShared(key) || !c.Unread(p + key)) continue;
    const std::string with = "rope_type " + Quote(type);
    if (type == "default" || type == "none" || key == "type") {
      if (key != "type" || c.String(p + key, "") != type) c.Note("its " + p + Printable(key) + " is not used with " + with);
    } else {
      c.Unsupported(p + key, "with " + with);
    }
  }
}

// A number is the same as an integer or as a fraction.
bool SameValue(const MetaValue& a, const MetaValue& b) {
  const auto number = [](const MetaValue& value) {
    return std::visit(
        [](const auto& x) -> std::optional<double> {
          using T = std::decay_t<decltype(x)>;
          if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) return static_cast<double>(x);
          return std::nullopt;
        },
        value);
  };
  return a == b || (number(a) && number(a) == number(b));
}

// Refuses rope_parameters that differ from rope_scaling. transformers uses the latter if both are present.
void ExpectAgreement(Config& c, const Rope& rope, const std::string& p) {
  for (const std::string& key : c.Below(p)) {
    if (key == "rope_theta" && c.Positive(p + key) == rope.theta) continue;
    const bool kind = key == "rope_type" || key == "type";
    const MetaValue* const other = c.Find(kind ? "rope_scaling.rope_type|rope_scaling.type" : "rope_scaling." + key);
    const MetaValue* const value = c.Find(p + key);
    if (other == nullptr || value == nullptr || !SameValue(*other, *value)) {
      return c.Fail("rope_scaling and " + p.substr(0, p.size() - 1) + " differ in " + key);
    }
  }
}

}  // namespace

void ReadHfRope(Config& c, Recipe& r, const DecoderDefaults& d) {
  const std::string old = "rope_scaling.", flat = "rope_parameters.", full = "rope_parameters.full_attention.";
  for (const char* key : {"rope_scaling", "rope_parameters", "rope_parameters.full_attention"}) c.ExpectObject(key);
  const bool scaling = !c.Below(old).empty();
  // A rope_theta within either comes before one outside of them.
  r.rope.theta = c.Positive((scaling ? old + "rope_theta|" + full + "rope_theta" : flat + "rope_theta|" + full + "rope_theta") +
                                "|rope_theta|rotary_emb_base",
                            d.rope_theta);
  for (const std::string& p : {old, flat, full}) {
    const std::vector<std::string> keys = c.Below(p);
    const std::string type = c.String(p + "rope_type|" + p + "type", "");
    if (type.empty() && std::ranges::all_of(keys, IsShared)) continue;
    if (type.empty()) return c.Fail("required key " + p + "rope_type is missing");
    ReadScaling(c, p, r, type, d);
    RefuseUnread(c, p, type);
    break;
  }
  if (scaling) {
    ExpectAgreement(c, r.rope, flat);
    ExpectAgreement(c, r.rope, full);
  }
}

}  // namespace tally
