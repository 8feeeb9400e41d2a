// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/machine/parallel.h"
#include "engine/recipe/recipe.h"
#include "engine/session/generate.h"
#include "engine/session/scoped_sequence.h"
#include "loaders/npy.h"

namespace tally {
namespace {

constexpr int64_t kKept = 3;  // columns before the logits: id, window, stride

// ln sum exp(x), and the index of the greatest.
struct LogSum {
  double value = 0;
  int64_t top = 0;
  LogSum(const float* x, int64_t n) : top(std::max_element(x, x + n) - x) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(std::exp(x[i] - x[top]));
    value = static_cast<double>(x[top]) + std::log(sum);
  }
};

struct Score {
  double nll = 0, saved_nll = 0, kl = 0;
  bool same_top = false;
};

// `saved`: the logits to compare with, or null.
Score ScoreOf(const float* logits, const float* saved, int64_t vocab, int32_t token) {
  const LogSum sum(logits, vocab);
  Score score{.nll = sum.value - static_cast<double>(logits[token])};
  if (saved == nullptr) return score;
  const LogSum base(saved, vocab);
  score.saved_nll = base.value - static_cast<double>(saved[token]);
  score.same_top = base.top == sum.top;
  double weighted = 0, total = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    const double p = static_cast<double>(std::exp(saved[i] - saved[base.top]));
    weighted += p * static_cast<double>(saved[i] - logits[i]);
    total += p;
  }
  score.kl = std::max(0.0, weighted / total - base.value + sum.value);
  return score;
}

struct Moments {
  double sum = 0, squares = 0;
  int64_t n = 0;
  void Add(double x) { sum += x, squares += x * x, ++n; }
  double Mean() const { return n > 0 ? sum / static_cast<double>(n) : 0; }
  double Error() const {  // of the mean
    if (n < 2) return 0;
    const double count = static_cast<double>(n), variance = (squares - sum * sum / count) / (count - 1);
    return std::sqrt(std::max(0.0, variance) / count);
  }
};

class Measurement {
 public:
  Measurement(Engine& engine, std::span<const int32_t> tokens, const PerplexityOptions& options)
      : engine_(engine),
        tokens_(tokens),
        options_(options),
        vocab_(engine.model().recipe().vocab),
        lead_(options.bos >= 0 ? 1 : 0),
        team_(engine.threads()) {}

  Result<PerplexityReport> All() {
    TALLY_RETURN_IF_ERROR(Check());
    TALLY_RETURN_IF_ERROR(OpenFiles());
    const int64_t n = Size(), capacity = options_.window - lead_;
    int64_t scored_to = 0;
    for (int64_t begin = 0; scored_to < n && !report_.interrupted; begin += options_.stride) {
      if (options_.windows > 0 && report_.windows == options_.windows) break;
      const int64_t end = std::min(begin + capacity, n), first = std::max(scored_to, begin + 1 - lead_);
      if (first < end) TALLY_RETURN_IF_ERROR(Window(begin, first, end));
      ++report_.windows;
      scored_to = end;
    }
    if (writer_ && !report_.interrupted) TALLY_RETURN_IF_ERROR(writer_->Close());
    Finish();
    return report_;
  }

 private:
  int64_t Size() const { return static_cast<int64_t>(tokens_.size()); }

  Status Check() const {
    if (Size() + lead_ < 2) return BadInput("a perplexity needs at least 2 tokens");
    const size_t room = static_cast<size_t>(engine_.context());  // CheckTokens takes what fits the context
    for (size_t i = 0; i < tokens_.size(); i += room) {
      TALLY_RETURN_IF_ERROR(CheckTokens(engine_, tokens_.subspan(i, std::min(room, tokens_.size() - i))));
    }
    if (options_.bos >= 0) TALLY_RETURN_IF_ERROR(CheckTokens(engine_, {&options_.bos, 1}));
    if (options_.windows < 0) return BadInput(std::to_string(options_.windows) + " windows; it must be 0 (all) or more");
    const int64_t context = engine_.context();
    if (options_.window < 2 || options_.window > context) {
      return BadInput("a window of " + std::to_string(options_.window) + " tokens; it must be 2 to the context, " +
                      std::to_string(context));
    }
    if (options_.stride < 1 || options_.stride > options_.window - lead_) {
      return BadInput("a stride of " + std::to_string(options_.stride) + "; it must be 1 to the tokens of a window, " +
                      std::to_string(options_.window - lead_));
    }
    if (!team_.status().ok()) return team_.status();
    return {};
  }

  Status OpenFiles() {
    if (!options_.against.empty()) {
      TALLY_ASSIGN_OR_RETURN(NpyReader reader, NpyReader::Open(options_.against));
      if (reader.cols() != kKept + vocab_) {
        return BadInput(options_.against + ": has " + std::to_string(reader.cols()) + " columns; a vocabulary of " +
                        std::to_string(vocab_) + " needs " + std::to_string(kKept + vocab_));
      }
      reader_.emplace(std::move(reader));
    }
    if (!options_.save.empty()) {
      TALLY_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::Create(options_.save, kKept + vocab_));
      writer_.emplace(std::move(writer));
    }
    return {};
  }

  // Runs tokens [begin, end), scores [first, end).
  Status Window(int64_t begin, int64_t first, int64_t end) {
    TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(engine_));
    const int64_t rows = end - begin - 1 + lead_;  // the last token predicts nothing that is asked
    const int64_t most = std::max<int64_t>(1, engine_.max_batch()), most_logits = std::max<int64_t>(1, engine_.max_logit_rows());
    std::vector<BatchRow> batch;
    for (int64_t row = 0; row < rows;) {
      if (options_.interrupted && options_.interrupted()) {
        report_.interrupted = true;
        return {};
      }
      batch.clear();
      int64_t wanted = 0;
      const int64_t target = begin + row + 1 - lead_;  // the token that row `row` predicts
      for (; row < rows && static_cast<int64_t>(batch.size()) < most; ++row) {
        const bool scores = begin + row + 1 - lead_ >= first;
        if (scores && wanted == most_logits) break;
        wanted += scores ? 1 : 0;
        const int32_t token = row < lead_ ? options_.bos : tokens_[static_cast<size_t>(begin + row - lead_)];
        batch.push_back({token, sequence.id(), scores});
      }
      TALLY_ASSIGN_OR_RETURN(const Mat<const float> logits, engine_.StepAll(batch));
      if (wanted > 0) TALLY_RETURN_IF_ERROR(Take(std::max(target, first), logits));
    }
    return {};
  }

  // logits [rows, vocab] predicted tokens [first, first + rows).
  Status Take(int64_t first, Mat<const float> logits) {
    const size_t rows = static_cast<size_t>(logits.rows), width = static_cast<size_t>(kKept + vocab_);
    if (reader_) TALLY_RETURN_IF_ERROR(ReadSaved(first, logits.rows));
    scores_.resize(rows);
    auto score = [&](int, int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* saved = reader_ ? saved_.data() + static_cast<size_t>(r) * width + kKept : nullptr;
        scores_[static_cast<size_t>(r)] = ScoreOf(logits.Row(r), saved, vocab_, tokens_[static_cast<size_t>(first + r)]);
      }
    };
    team_.Run(logits.rows, 1, score);
    for (size_t r = 0; r < rows; ++r) {
      const Score& s = scores_[r];
      nll_.Add(s.nll);
      if (!reader_) continue;
      saved_nll_.Add(s.saved_nll);
      kl_.Add(s.kl);
      same_top_.Add(s.same_top ? 1 : 0);
      kls_.push_back(s.kl);
    }
    if (writer_) {
      std::vector<float> line(width);
      for (int64_t r = 0; r < logits.rows; ++r) {
        KeptOf(tokens_[static_cast<size_t>(first + r)], line.data());
        std::copy_n(logits.Row(r), vocab_, line.data() + kKept);
        TALLY_RETURN_IF_ERROR(writer_->Append(Mat<const float>(line.data(), 1, static_cast<int64_t>(width))));
      }
    }
    if (options_.progress) options_.progress(nll_.n, Size(), std::exp(nll_.Mean()));
    return {};
  }

  void KeptOf(int32_t token, float* kept) const {  // exact below 2^24
    kept[0] = static_cast<float>(token);
    kept[1] = static_cast<float>(options_.window);
    kept[2] = static_cast<float>(options_.stride);
  }

  Status ReadSaved(int64_t first, int64_t rows) {
    const size_t width = static_cast<size_t>(kKept + vocab_);
    if (nll_.n + rows > reader_->rows()) {
      return BadInput(options_.against + ": holds " + std::to_string(reader_->rows()) + " tokens, fewer than are scored");
    }
    saved_.resize(static_cast<size_t>(rows) * width);
    TALLY_RETURN_IF_ERROR(reader_->Read(nll_.n, rows, saved_));
    for (int64_t r = 0; r < rows; ++r) {
      const float* line = saved_.data() + static_cast<size_t>(r) * width;
      float want[kKept];
      KeptOf(tokens_[static_cast<size_t>(first + r)], want);
      static constexpr const char* kNames[kKept] = {"another token", "another window", "another stride"};
      for (int64_t i = 0; i < kKept; ++i) {
        if (line[i] == want[i]) continue;
        return BadInput(options_.against + ": has " + kNames[i] + " at token " + std::to_string(nll_.n + r));
      }
    }
    return {};
  }

  void Finish() {
    report_.scored = nll_.n;
    report_.mean_nll = nll_.Mean();
    report_.perplexity = std::exp(nll_.Mean());
    report_.perplexity_error = report_.perplexity * nll_.Error();
    if (!reader_ || kls_.empty()) return;
    std::sort(kls_.begin(), kls_.end());
    const auto quantile = [&](double q) { return kls_[static_cast<size_t>(q * static_cast<double>(kls_.size() - 1))]; };
    report_.divergence = Divergence{.mean = kl_.Mean(),
                                    .median = quantile(0.5),
                                    .p99 = quantile(0.99),
                                    .most = kls_.back(),
                                    .mean_error = kl_.Error(),
                                    .same_top = same_top_.Mean(),
                                    .same_top_error = same_top_.Error(),
                                    .saved_perplexity = std::exp(saved_nll_.Mean()),
                                    .log_ratio = nll_.Mean() - saved_nll_.Mean()};
  }

  Engine& engine_;
  const std::span<const int32_t> tokens_;
  const PerplexityOptions& options_;
  const int64_t vocab_, lead_;  // rows of a window before its tokens
  Team team_;
  std::optional<NpyReader> reader_;
  std::optional<NpyWriter> writer_;
  std::vector<float> saved_;
  std::vector<Score> scores_;
  Moments nll_, saved_nll_, kl_, same_top_;
  std::vector<double> kls_;
  PerplexityReport report_;
};

}  // namespace

Result<PerplexityReport> Perplexity(Engine& engine, std::span<const int32_t> tokens, const PerplexityOptions& options) {
  return Measurement(engine, tokens, options).All();
}

}  // namespace tally
