// SPDX-License-Identifier: Apache-2.0
#include "engine/session/candidates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "engine/session/sampling.h"

namespace tally {
namespace {

constexpr size_t kBlock = MaskedLogits::kBlock;
constexpr size_t kHeapLimit = 2048;  // top-k up to this keeps a heap of k
constexpr size_t kBuckets = 1024;
constexpr size_t kSortLimit = 1024;  // places that are sorted
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();
constexpr float kLeastFinite = std::numeric_limits<float>::lowest();

// The greatest, or the least, of `start` and the logits, in lanes that the compiler vectorises. NaN is ignored.
template <bool kGreatest>
float Extreme(std::span<const float> logits, float start) {
  constexpr size_t kLanes = 16;
  const auto better = [](float a, float b) { return kGreatest ? a > b : a < b; };  // false for NaN
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, start);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = better(logits[i + j], lanes[j]) ? logits[i + j] : lanes[j];
  }
  for (; i < logits.size(); ++i) lanes[0] = better(logits[i], lanes[0]) ? logits[i] : lanes[0];
  for (const float lane : lanes) start = better(lane, start) ? lane : start;
  return start;
}

// The first token with the greatest logit, and that logit; {0, minus infinity} if none is greater than that. Calls
// each(b, greatest) for each block.
template <class Each>
std::pair<size_t, float> FindGreatest(const MaskedLogits& logits, MaskedLogits::Buffer& buffer, Each each) {
  size_t best_block = 0;
  float best = kNoLogit;
  for (size_t b = 0; b < logits.blocks(); ++b) {
    const float greatest = Extreme<true>(logits.MaskedBlock(b, buffer), kNoLogit);
    each(b, greatest);
    if (greatest > best) best = greatest, best_block = b;
  }
  if (best == kNoLogit) return {0, best};
  const std::span<const float> block = logits.MaskedBlock(best_block, buffer);
  return {best_block * kBlock + static_cast<size_t>(std::find(block.begin(), block.end(), best) - block.begin()), best};
}

// Bit i: logits[i] is in [low, high]. Without branches, so that the compiler vectorises it.
uint32_t Within32(const float* logits, float low, float high) {
  uint32_t bits = 0;
  for (size_t i = 0; i < 32; ++i) {
    const uint32_t from = 0u - static_cast<uint32_t>(logits[i] >= low), to = 0u - static_cast<uint32_t>(logits[i] <= high);
    bits |= from & to & MaskedLogits::kBits[i];
  }
  return bits;
}

// The same of at most 64 logits.
uint64_t Within(std::span<const float> logits, float low, float high) {
  if (logits.size() == 64) {
    return Within32(logits.data(), low, high) | static_cast<uint64_t>(Within32(logits.data() + 32, low, high)) << 32;
  }
  uint64_t bits = 0;
  for (size_t i = 0; i < logits.size(); ++i) bits |= static_cast<uint64_t>(logits[i] >= low && logits[i] <= high) << i;
  return bits;
}

}  // namespace

int32_t Argmax(std::span<const float> logits) {
  MaskedLogits::Buffer unused;
  return static_cast<int32_t>(FindGreatest(MaskedLogits(logits), unused, [](size_t, float) {}).first);
}

std::optional<size_t> Candidates::Begin(const MaskedLogits& logits) {
  logits_ = logits;
  ids_.clear();
  last_ = {kLeastFinite, kAny};
  greatest_.resize(logits_.blocks());
  const auto [best, max] = FindGreatest(logits_, buffer_, [&](size_t b, float greatest) { greatest_[b] = greatest; });
  max_ = max;
  if (max > kNoLogit) return best;
  const size_t first = logits_.FirstAllowed();
  return first < logits_.size() ? std::optional(first) : std::nullopt;
}

// A lower bound of the tokens' logits, minus infinity aside.
float Candidates::Least() {
  float least = max_;
  for (size_t b = 0; b < logits_.blocks(); ++b) least = Extreme<false>(logits_.Block(b, buffer_), least);
  return least;
}

// The candidates among the block's word with logits in [low, high], a bit each.
uint64_t Candidates::Chosen(size_t word, std::span<const float> logits, float low, float high) const {
  const uint64_t allowed = logits_.Allowed(word);
  if (allowed == 0) return 0;
  const size_t begin = word * MaskedLogits::kWord;
  const uint64_t least = Within(logits, std::max(low, last_.logit), high) & allowed;
  if (last_.index >= begin + logits.size() - 1) return least;
  // Tokens with the logit of the last candidate, but behind it, are not candidates.
  const float above = std::nextafter(last_.logit, std::numeric_limits<float>::infinity());
  const uint64_t behind = last_.index < begin ? ~uint64_t{0} : ~uint64_t{1} << (last_.index - begin);
  return least & (Within(logits, above, high) | ~behind);
}

// The candidates of block b with logits in [low, high]. Valid until the next call. With `filler`, that logit may stand between them, and
// offsets are not to be asked for.
const Candidates::Few& Candidates::Look(size_t b, float low, float high, std::optional<float> filler) {
  constexpr size_t kWord = MaskedLogits::kWord, kWords = kBlock / kWord;
  few_.size = 0;
  if (greatest_[b] < low) return few_;
  const std::span<const float> block = logits_.Block(b, buffer_);
  const auto word_of = [&](size_t i) { return block.subspan(i * kWord, std::min(kWord, block.size() - i * kWord)); };
  const size_t words = DivCeil(block.size(), kWord);
  std::array<uint64_t, kWords> chosen;
  uint64_t all = ~uint64_t{0};
  for (size_t i = 0; i < words; ++i) all &= chosen[i] = Chosen(b * kWords + i, word_of(i), low, high);
  few_.whole = all == ~uint64_t{0};
  if (few_.whole) {
    few_.logits = block.data();
    few_.size = block.size();
    return few_;
  }
  size_t n = 0;
  for (size_t i = 0; i < words; ++i) {
    if (filler && std::popcount(chosen[i]) > 24 && word_of(i).size() == kWord) {  // one by one takes longer
      MaskedLogits::Select(word_of(i).data(), chosen[i], *filler, few_.copies.data() + n);
      n += kWord;
      continue;
    }
    for (uint64_t rest = chosen[i]; rest != 0; rest &= rest - 1) {
      const size_t at = i * kWord + static_cast<size_t>(std::countr_zero(rest));
      few_.copies[n] = block[at];
      few_.offsets[n++] = static_cast<uint32_t>(at);
    }
  }
  few_.logits = few_.copies.data();
  few_.size = n;
  return few_;
}

void Candidates::KeepTopK(size_t k) {
  if (k == 0 || k >= logits_.size()) return;
  if (k <= kHeapLimit) return KeepBest(k);
  KeepFrom(Least());
  if (const std::optional<Place> last = LastUpTo(k, By::kNumber)) last_ = *last;
}

// Copies the best k tokens into a vocabulary of their own.
void Candidates::KeepBest(size_t k) {
  float least = kLeastFinite;
  if (greatest_.size() >= k) {  // as many tokens as blocks are at least as good as their block's greatest
    top_logits_ = greatest_;
    std::nth_element(top_logits_.begin(), top_logits_.begin() + static_cast<ptrdiff_t>(k - 1), top_logits_.end(), std::greater());
    least = std::max(least, top_logits_[k - 1]);
  }
  places_.clear();  // a heap of the best so far, the worst on top
  for (size_t b = 0; b < logits_.blocks(); ++b) {
    const Few& few = Look(b, least, max_);
    for (size_t i = 0; i < few.size; ++i) {
      const Place place = {few.logits[i], b * kBlock + few.Offset(i)};
      if (places_.size() == k) {
        if (!(place < places_.front())) continue;
        std::pop_heap(places_.begin(), places_.end());
        places_.pop_back();
      }
      places_.push_back(place);
      std::push_heap(places_.begin(), places_.end());
    }
    // Later tokens must be greater.
    if (places_.size() == k) least = std::nextafter(places_.front().logit, std::numeric_limits<float>::infinity());
  }
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return a.index < b.index; });
  top_logits_.clear();
  ids_.clear();
  for (const Place& place : places_) {
    top_logits_.push_back(place.logit);
    ids_.push_back(static_cast<int32_t>(place.index));
  }
  logits_ = MaskedLogits(top_logits_);
  greatest_.resize(logits_.blocks());
  FindGreatest(logits_, buffer_, [&](size_t b, float greatest) { greatest_[b] = greatest; });
}

void Candidates::SetTemperature(double temperature) { weights_ = TokenWeights(max_, temperature); }

void Candidates::KeepFrom(float least) {
  if (least > last_.logit) last_ = {least, kAny};
}

void Candidates::KeepTopPAndMinP(double top_p, double log2_min_p) {
  KeepFrom(weights_.LeastLogit());
  if (top_p >= 1) return KeepFrom(weights_.LogitAt(log2_min_p));
  const uint64_t total = Weigh();
  const uint64_t target = std::clamp<uint64_t>(static_cast<uint64_t>(std::ceil(top_p * static_cast<double>(total))), 1, total);
  // Both filters keep the best tokens, so the stricter one alone decides: the last token of top-p is looked for among those of min-p.
  KeepFrom(weights_.LogitAt(log2_min_p));
  if (total / logits_.size() > kUnitWeight >> 8) KeepFrom(Least());  // close together: buckets then cover their range only
  const auto found = [&] {
    const std::optional<Place> last = LastUpTo(target, By::kWeight);
    if (last) last_ = *last;
    return last.has_value();
  };
  const Place of_min_p = last_;
  KeepFrom(weights_.LogitAt(-8));  // the last token is mostly among the best, which are few
  if (found() || last_.logit == of_min_p.logit) return;
  last_ = of_min_p;
  // Tokens lighter than `rest` together weigh less than what top-p leaves out, so its last token is heavier. The margin exceeds the errors
  // of weights and rounding.
  const double rest = static_cast<double>(total - target) / static_cast<double>(logits_.size());
  if (rest >= 64) KeepFrom(weights_.LogitAt(ExactLog2(rest / static_cast<double>(kUnitWeight)) - 0.02));
  found();
}

uint64_t Candidates::Weigh() {
  sums_.resize(logits_.blocks());
  const float least = weights_.LeastLogit();
  const std::optional<float> filler = weights_.Of(least) == 0 ? std::optional(least) : std::nullopt;
  uint64_t total = 0;
  for (size_t b = 0; b < sums_.size(); ++b) {
    const Few& few = Look(b, last_.logit, max_, filler);
    total += sums_[b] = weights_.Sum(few.logits, few.size);
  }
  return total;
}

// The candidate at which the weights (or the number) of those before it, itself included, reach `target`; nothing if all together do
// not. Sums weights by logit in buckets, and goes on in the bucket where the target is reached, until that is small.
std::optional<Candidates::Place> Candidates::LastUpTo(uint64_t target, By by) {
  float low = last_.logit, high = max_;
  uint64_t before = 0;  // of what is above `high`
  while (low < high) {
    const double width = static_cast<double>(high) - low, per_logit = static_cast<double>(kBuckets - 1) / width;
    const auto bucket_of = [=](float logit) { return static_cast<int32_t>((static_cast<double>(high) - logit) * per_logit); };
    buckets_.assign(kBuckets, 0);
    std::array<int32_t, kBlock> buckets;
    std::array<uint64_t, kBlock> weights;
    weights.fill(1);
    for (size_t b = 0; b < logits_.blocks(); ++b) {
      const Few& few = Look(b, low, high);
      if (by == By::kWeight) weights_.Of(few.logits, few.size, weights.data());
      for (size_t i = 0; i < few.size; ++i) buckets[i] = bucket_of(few.logits[i]);
      for (size_t i = 0; i < few.size; ++i) buckets_[static_cast<size_t>(buckets[i])] += weights[i];
    }
    size_t found = 0;
    while (found < kBuckets && before + buckets_[found] < target) before += buckets_[found++];
    if (found == kBuckets) return std::nullopt;
    const int32_t bucket = static_cast<int32_t>(found);

    // Bounds of the bucket, or a little wider.
    const double top = high - bucket / per_logit, margin = width * 1e-9;
    const float to = std::nextafter(static_cast<float>(std::min<double>(high, top + margin)), high);
    const float from = std::nextafter(static_cast<float>(std::max<double>(low, top - 1 / per_logit - margin)), low);
    places_.clear();
    size_t n = 0;
    float least = high, greatest = low;
    for (size_t b = 0; b < logits_.blocks(); ++b) {
      const Few& few = Look(b, from, to);
      for (size_t i = 0; i < few.size; ++i) {
        const float logit = few.logits[i];
        if (bucket_of(logit) != bucket) continue;
        least = std::min(least, logit);
        greatest = std::max(greatest, logit);
        if (++n <= kSortLimit) places_.push_back({logit, b * kBlock + few.Offset(i)});
      }
    }
    if (n <= kSortLimit) {
      std::sort(places_.begin(), places_.end());
      for (const Place& place : places_) {
        before += by == By::kWeight ? weights_.Of(place.logit) : 1;
        if (before >= target) return place;
      }
    }
    low = least;
    high = greatest;
  }
  return LastOfEqual(high, target - before, by);
}

// The same among those with one logit.
std::optional<Candidates::Place> Candidates::LastOfEqual(float logit, uint64_t target, By by) {
  const uint64_t weight = by == By::kWeight ? weights_.Of(logit) : 1;
  if (weight == 0) return std::nullopt;
  uint64_t wanted = DivCeil(target, weight);
  for (size_t b = 0; b < logits_.blocks(); ++b) {
    const Few& few = Look(b, logit, logit);
    if (wanted <= few.size) return Place{logit, b * kBlock + few.Offset(wanted - 1)};
    wanted -= few.size;
  }
  return std::nullopt;
}

size_t Candidates::Find(uint64_t draw) {
  for (size_t b = 0; b < sums_.size(); draw -= sums_[b++]) {
    if (draw >= sums_[b]) continue;
    const Few& few = Look(b, last_.logit, max_);
    for (size_t i = 0; i < few.size; ++i) {
      const uint64_t weight = weights_.Of(few.logits[i]);
      if (draw < weight) {
        const size_t index = b * kBlock + few.Offset(i);
        return ids_.empty() ? index : static_cast<size_t>(ids_[index]);
      }
      draw -= weight;
    }
  }
  return 0;  // not reached: draw is less than the sum
}

}  // namespace tally
