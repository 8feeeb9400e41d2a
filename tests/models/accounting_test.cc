// SPDX-License-Identifier: Apache-2.0
// docs/accounting.md alone gives "everything": its tables of terms, evaluated for each published model, are the closed forms' FLOPs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "counters/books/closed_form.h"
#include "models/catalog/catalog.h"

namespace tally {
namespace {

using Cells = std::vector<std::string>;

std::string Page() {
  std::ifstream file(std::string(TALLY_SOURCE_DIR) + "/docs/accounting.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return std::string(text);
}

std::vector<std::string> Split(std::string_view text, std::string_view by) {
  std::vector<std::string> parts;
  for (size_t at; (at = text.find(by)) != text.npos; text.remove_prefix(at + by.size()))
    parts.push_back(Trimmed(text.substr(0, at)));
  parts.push_back(Trimmed(text));
  return parts;
}

// The rows of the table with this head.
std::vector<Cells> Table(const std::string& page, const std::string& head) {
  std::vector<Cells> rows;
  const size_t at = page.find(head + "\n");
  EXPECT_NE(at, page.npos) << head;
  if (at == page.npos) return rows;
  for (const std::string& line : Split(std::string_view(page).substr(at), "\n")) {
    if (!line.starts_with("|")) break;
    if (line != head && !line.starts_with("|---")) rows.push_back(Split(std::string_view(line).substr(1, line.size() - 2), "|"));
  }
  return rows;
}

// A model, a layer of it, and what its layer or rope is asked for.
struct Place {
  const Recipe& r;
  LayerRecipe l = {};
  uint64_t seen = 0;  // v
  int32_t rotated = 0;
  bool in_layer = false;
};

bool HasTemperature(const Recipe& r, const LayerRecipe& l) {
  return r.all.attention.temperature.scale != 0 && l.attends() &&
         (r.all.attention.temperature.everywhere || l.attention.rope == LayerRope::kNone);
}
int32_t Rotated(const Recipe& r, const LayerRecipe& l) {
  const Rope& rope = l.attention.rope == LayerRope::kLocal ? r.local_rope : r.rope;
  return l.attention.rope == LayerRope::kNone || rope.style == RopeStyle::kNone ? 0 : rope.dim;
}

using Holds = std::function<bool(const Place&)>;
const std::map<std::string, Holds>& Conditions() {
  using A = ActivationKind;
  using R = RoutingRule;
  const auto activation = [](A kind) { return [kind](const Place& p) { return p.r.all.network.activation == kind; }; };
  const auto mixer = [](Mixer m) { return [m](const Place& p) { return p.in_layer && p.l.mixers.has(m); }; };
  const auto multiplier = [](size_t i) { return [i](const Place& p) { return p.r.all.mamba.multipliers[i] != 1; }; };
  const auto qk = [](QkNormKind kind) {
    return [kind](const Place& p) {
      const bool normed =
          kind != QkNormKind::kUnweighted || p.r.all.attention.qk_norm_everywhere || p.l.attention.rope != LayerRope::kNone;
      return p.r.all.attention.qk_norm == kind && normed;
    };
  };
#define TALLY_IF(condition) [](const Place& p) -> bool { return condition; }
  static const std::map<std::string, Holds> conditions = {
      {"LayerNorm", TALLY_IF(p.r.norm == NormKind::kLayer)},
      {"norm bias", TALLY_IF(p.r.norm_bias)},
      {"SiLU", activation(A::kSilu)},
      {"GELU by tanh", activation(A::kGeluTanh)},
      {"GELU by erf", activation(A::kGeluErf)},
      {"ReLU", activation(A::kRelu)},
      {"squared ReLU", activation(A::kRelu2)},
      {"xIELU", activation(A::kXielu)},
      {"gpt-oss's SwiGLU", activation(A::kSwigluOai)},
      {"scaled embedding", TALLY_IF(p.r.embedding_scale != 1)},
      {"narrow embedding", TALLY_IF(p.r.embedding_width > 0)},
      {"last norm", TALLY_IF(p.r.output_norm)},
      {"learned positions", TALLY_IF(p.r.learned_positions)},
      {"embedding norm", TALLY_IF(p.r.embedding_norm)},
      {"unweighted embedding norm", TALLY_IF(p.r.embedding_rms)},
      {"layer embeddings", TALLY_IF(p.r.layer_embedding > 0)},
      {"layer factor", TALLY_IF(p.r.all.residual.layer_scale)},
      {"temperature", TALLY_IF(AnyLayer(p.r, [&](const LayerRecipe& l) { return HasTemperature(p.r, l); }))},
      {"temperature here", TALLY_IF(HasTemperature(p.r, p.l))},
      {"head bias", TALLY_IF(p.r.head_bias)},
      {"scaled logits", TALLY_IF(p.r.logit_scale != 1)},
      {"soft cap of logits", TALLY_IF(p.r.logit_softcap != 0)},
      {"mixer", TALLY_IF(!p.l.mixers.empty())},
      {"feed-forward", TALLY_IF(!p.l.feed_forward.empty())},
      {"pre-norms", TALLY_IF(p.r.all.residual.pre_norms)},
      {"post-norms", TALLY_IF(p.r.all.residual.post_norms)},
      {"one norm for both blocks", TALLY_IF(p.r.all.residual.kind == Residual::kParallelOneNorm)},
      {"scaled residual", TALLY_IF(p.r.all.residual.scale != 1)},
      {"attention", mixer(Mixer::kAttention)},
      {"latent attention", mixer(Mixer::kLatentAttention)},
      {"short convolution", mixer(Mixer::kShortConv)},
      {"delta rule", mixer(Mixer::kDeltaRule)},
      {"Mamba-2", mixer(Mixer::kMamba2)},
      {"query bias", TALLY_IF(p.r.all.attention.q_bias)},
      {"key bias", TALLY_IF(p.r.all.attention.fused_qkv ? p.r.all.attention.q_bias : p.r.all.attention.k_bias)},
      {"value bias", TALLY_IF(p.r.all.attention.fused_qkv ? p.r.all.attention.q_bias : p.r.all.attention.v_bias)},
      {"output bias", TALLY_IF(p.r.all.attention.o_bias)},
      {"own keys", TALLY_IF(p.l.attention.cache_of < 0)},
      {"own values", TALLY_IF(!p.l.attention.v_is_k)},
      {"value norm", TALLY_IF(p.r.all.attention.v_norm)},
      {"head norms", qk(QkNormKind::kHead)},
      {"whole norms", qk(QkNormKind::kWhole)},
      {"weighted head norms", qk(QkNormKind::kEachHead)},
      {"unweighted head norms", qk(QkNormKind::kUnweighted)},
      {"limited queries", TALLY_IF(p.r.all.attention.qkv_limit != 0)},
      {"rope", TALLY_IF(Rotated(p.r, p.l) > 0)},
      {"sinks", TALLY_IF(p.r.all.attention.sinks)},
      {"soft cap of scores", TALLY_IF(p.r.all.attention.softcap != 0)},
      {"ALiBi", TALLY_IF(p.r.alibi_bias > 0)},
      {"scaled attention", TALLY_IF(p.r.all.attention.out_scale != 1)},
      {"output gate", TALLY_IF(p.r.all.attention.gate)},
      {"a gate a head", TALLY_IF(p.r.all.attention.gate_each_head)},
      {"softplus", TALLY_IF(p.r.all.attention.gate_softplus)},
      {"query rank", TALLY_IF(p.r.all.latent.q_rank > 0)},
      {"gate rank", TALLY_IF(p.r.all.delta.gate_rank > 0)},
      {"channel decay", TALLY_IF(p.r.all.delta.channel_decay)},
      {"bounded decay", TALLY_IF(p.r.all.delta.decay_bound != 0)},
      {"factor of z", multiplier(0)},
      {"factor of x", multiplier(1)},
      {"factor of B", multiplier(2)},
      {"factor of C", multiplier(3)},
      {"factor of the steps", multiplier(4)},
      {"convolution bias", TALLY_IF(p.r.all.mamba.conv_bias)},
      {"least step", TALLY_IF(p.r.all.mamba.dt_min > 0)},
      {"greatest step", TALLY_IF(std::isfinite(p.r.all.mamba.dt_max))},
      {"state norm", TALLY_IF(p.r.all.mamba.norm)},
      {"scaled state output", TALLY_IF(p.r.all.mamba.out_scale != 1)},
      {"dense", TALLY_IF(p.l.dense())},
      {"experts", TALLY_IF(p.l.sparse())},
      {"dense and experts", TALLY_IF(p.l.both())},
      {"shared experts", TALLY_IF(p.l.sparse() && p.r.all.experts.shared_width > 0)},
      {"gated", TALLY_IF(p.r.all.network.gated)},
      {"gated experts", TALLY_IF(p.r.all.network.gated && !p.r.all.experts.ungated)},
      {"feed-forward bias", TALLY_IF(p.r.all.ffn.bias)},
      {"expert bias", TALLY_IF(p.r.all.experts.bias)},
      {"scaled gate", TALLY_IF(p.r.all.network.gate_scale != 1)},
      {"scaled down", TALLY_IF(p.r.all.network.down_scale != 1)},
      {"limited experts", TALLY_IF(p.l.experts.limit > 0)},
      {"limited shared experts", TALLY_IF(p.l.experts.shared_limit > 0)},
      {"router norm", TALLY_IF(p.r.all.experts.router_norm)},
      {"logit bias",
       TALLY_IF(p.r.all.experts.router_bias && !SigmoidOfAll(p.r.all.experts.routing) && !SoftmaxOfAll(p.r.all.experts.routing))},
      {"choice bias",
       TALLY_IF(p.r.all.experts.router_bias && (SigmoidOfAll(p.r.all.experts.routing) || SoftmaxOfAll(p.r.all.experts.routing)))},
      {"expert groups", TALLY_IF(p.r.all.experts.groups > 1)},
      {"routed scaling", TALLY_IF(p.r.all.experts.route_scale != 1)},
      {"expert factors", TALLY_IF(p.r.all.experts.weight_scales)},
      {"softmax over the chosen", TALLY_IF(p.r.all.experts.routing == R::kTopKThenSoftmax)},
      {"softmax over all", TALLY_IF(SoftmaxOfAll(p.r.all.experts.routing))},
      {"sigmoid of the chosen", TALLY_IF(p.r.all.experts.routing == R::kTopKThenSigmoid)},
      {"sigmoid of all", TALLY_IF(SigmoidOfAll(p.r.all.experts.routing))},
      {"weights summed to 1", TALLY_IF(Renormed(p.r.all.experts.routing))},
      {"eps in the sum", TALLY_IF(p.r.all.experts.route_sum_eps != 0)},
      {"latent experts", TALLY_IF(p.r.all.experts.latent > 0)},
      {"input activation", TALLY_IF(p.r.all.experts.shared_activation)},
      {"gate of shared experts", TALLY_IF(p.r.all.experts.shared_gate)},
  };
#undef TALLY_IF
  return conditions;
}

// "experts, not gated": all of them.
bool AllHold(const std::string& conditions, const Place& place) {
  if (conditions.empty()) return true;
  for (const std::string& one : Split(conditions, ", ")) {
    const bool negated = one.starts_with("not ");
    const auto found = Conditions().find(negated ? one.substr(4) : one);
    EXPECT_NE(found, Conditions().end()) << one;
    if (found == Conditions().end() || found->second(place) == negated) return false;
  }
  return true;
}

using Sizes = std::map<std::string, int64_t, std::less<>>;
Sizes SizesAt(const Place& p) {
  const Recipe& r = p.r;
  const Attention& s = p.l.attention;
  return {{"V", r.vocab},
          {"E", r.d_model},
          {"L", r.n_layers},
          {"H", s.n_heads},
          {"K", s.n_kv_heads},
          {"D", s.head_dim},
          {"F", p.l.ffn.width},
          {"F_x", r.all.experts.width},
          {"F_s", r.all.experts.shared_width},
          {"X", r.all.experts.n_experts},
          {"k", r.all.experts.top_k},
          {"g", r.all.experts.groups},
          {"g_k", r.all.experts.kept_groups},
          {"g_b", r.all.experts.group_best},
          {"D_r", p.in_layer && p.l.mixers.has(Mixer::kLatentAttention) ? r.all.latent.rope_dim : p.rotated},
          {"R_q", r.all.latent.q_rank},
          {"R_kv", r.all.latent.kv_rank},
          {"D_n", r.all.latent.nope_dim},
          {"D_v", r.all.latent.v_dim},
          {"J", TapsOf(r)},
          {"H_k", r.all.delta.key_heads},
          {"H_v", r.all.delta.value_heads},
          {"N_k", r.all.delta.key_dim},
          {"N_v", r.all.delta.value_dim},
          {"R_g", r.all.delta.gate_rank},
          {"H_m", r.all.mamba.heads},
          {"D_m", r.all.mamba.head_dim},
          {"G", r.all.mamba.groups},
          {"G_n", r.all.mamba.norm_groups},
          {"N", r.all.mamba.state_dim},
          {"E_x", r.all.experts.latent > 0 ? r.all.experts.latent : r.d_model},
          {"E_v", r.embedding_width > 0 ? r.embedding_width : r.d_model},
          {"E_l", r.layer_embedding},
          {"v", static_cast<int64_t>(p.seen)}};
}

// Sums of products, in which a space multiplies: "2 H (R_kv + D_r) v + norm(E)".
class Evaluator {
 public:
  Evaluator(const std::vector<Cells>& functions, const Place& place, bool special)
      : functions_(functions), place_(place), special_(special), sizes_(SizesAt(place)) {}

  int64_t Of(std::string_view text) {
    const std::string_view outer = std::exchange(rest_, text);
    const int64_t value = Sum();
    EXPECT_TRUE(rest_.empty()) << text << " at " << rest_;
    rest_ = outer;
    return value;
  }

 private:
  void Blanks() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  bool Take(char c) {
    Blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  int64_t Sum() {
    int64_t sum = Product();
    while (true) {
      if (Take('+')) {
        sum += Product();
      } else if (Take('-')) {
        sum -= Product();
      } else {
        return sum;
      }
    }
  }
  int64_t Product() {
    int64_t product = Factor();
    while (true) {
      Blanks();
      if (Take('/')) {
        const int64_t by = Factor();
        EXPECT_EQ(product % by, 0);
        product /= by;
      } else if (!rest_.empty() && (rest_[0] == '(' || std::isalnum(static_cast<unsigned char>(rest_[0])))) {
        product *= Factor();
      } else {
        return product;
      }
    }
  }
  int64_t Factor() {
    Blanks();
    if (Take('(')) {
      const int64_t sum = Sum();
      EXPECT_TRUE(Take(')')) << rest_;
      return sum;
    }
    const size_t n = std::min(rest_.size(), rest_.find_first_of(" ()+-/"));
    const std::string word(rest_.substr(0, n));
    rest_.remove_prefix(n);
    EXPECT_FALSE(word.empty()) << rest_;
    if (word.empty()) return rest_ = {}, 0;
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return std::stoll(word);
    if (rest_.starts_with('(')) {
      Take('(');
      const int64_t argument = Sum();
      EXPECT_TRUE(Take(')')) << rest_;
      return Call(word, argument);
    }
    const auto size = word == "n" ? sizes_.find("n") : sizes_.find(word);
    EXPECT_NE(size, sizes_.end()) << word;
    return size == sizes_.end() ? 0 : size->second;
  }
  int64_t Call(const std::string& name, int64_t n) {
    for (const Cells& f : functions_) {
      if (f[0] != name + "(n)" || !AllHold(f[1], place_)) continue;
      const auto before = sizes_.find("n");
      const int64_t outer = before == sizes_.end() ? 0 : before->second;
      sizes_["n"] = n;
      const int64_t value = Of(f[special_ ? 3 : 2]);
      sizes_["n"] = outer;
      return value;
    }
    ADD_FAILURE() << "no " << name << " for " << place_.r.family;
    return 0;
  }

  const std::vector<Cells>& functions_;
  const Place& place_;
  const bool special_;
  Sizes sizes_;
  std::string_view rest_;
};

using Totals = std::map<std::string, std::pair<int64_t, int64_t>>;  // FLOPs and special by class

class Terms {
 public:
  explicit Terms(const std::string& page)
      : functions_(Table(page, "| function | if | FLOPs | special | |")),
        rows_(Table(page, "| each | if | what | class | FLOPs | special |")) {}

  // Of a decoded token that sees `context` positions.
  Totals Of(const Recipe& r, uint64_t context) {
    Totals totals;
    Place model{r};
    Add("model", model, 1, totals);
    for (const LayerRope rope : {LayerRope::kGlobal, LayerRope::kLocal}) {
      for (const LayerRecipe& l : r.layers) {
        if (!l.attends() || l.attention.rope != rope) continue;
        model.rotated = Rotated(r, l);
        Add("rope", model, 1, totals);
        break;
      }
    }
    std::vector<std::pair<LayerRecipe, int64_t>> alike;  // equal layers have equal terms
    for (const LayerRecipe& l : r.layers) {
      const auto found = std::ranges::find(alike, l, &std::pair<LayerRecipe, int64_t>::first);
      found == alike.end() ? alike.emplace_back(l, 1), void() : void(++found->second);
    }
    for (const auto& [l, times] : alike) {
      Place place{r, l, context, Rotated(r, l), true};
      if (l.attention.window > 0) place.seen = std::min(context, static_cast<uint64_t>(l.attention.window));
      if (l.attention.chunk > 0) place.seen = (context - 1) % static_cast<uint64_t>(l.attention.chunk) + 1;
      Add("layer", place, times, totals);
      Add("mixer", place, times * l.mixers.size(), totals);
    }
    std::erase_if(totals, [](const auto& of) { return of.second == std::pair<int64_t, int64_t>(); });
    return totals;
  }
  // Rows whose conditions have never held.
  std::string Unused() const {
    std::string text;
    for (const Cells& row : rows_) {
      if (!used_.contains(&row)) text += row[0] + ", " + row[1] + ", " + row[2] + "\n";
    }
    return text;
  }
  size_t size() const { return rows_.size(); }

 private:
  void Add(const std::string& each, const Place& place, int64_t times, Totals& totals) {
    for (const Cells& row : rows_) {
      if (row[0] != each || !AllHold(row[1], place)) continue;
      used_.insert(&row);
      auto& [flops, special] = totals[row[3]];
      flops += times * Evaluator(functions_, place, false).Of(row[4]);
      if (!row[5].empty()) special += times * Evaluator(functions_, place, true).Of(row[5]);
    }
  }

  const std::vector<Cells> functions_, rows_;
  std::set<const Cells*> used_;
};

// Published models with options that no published model has.
std::vector<Recipe> Variants() {
  const auto change = [](const char* name, const std::function<void(LayerRecipe&)>& option) {
    Recipe r = FindCatalogModel(name)->recipe;
    ChangeLayers(r, option);
    return r;
  };
  const auto scaled = [](LayerRecipe& l) {
    l.attention.out_scale = l.mamba.out_scale = l.network.gate_scale = l.network.down_scale = 2;
  };
  return {change("Llama-3.1-8B",
                 [](LayerRecipe& l) {
                   l.attention.qk_norm = QkNormKind::kEachHead;
                   l.attention.qkv_limit = 8;
                   l.ffn.bias = l.attention.gate = l.attention.gate_softplus = true;
                 }),
          change("DeepSeek-V3",
                 [&](LayerRecipe& l) {
                   scaled(l);
                   l.latent.q_rank = 0;
                   l.attention.q_bias = l.attention.o_bias = l.experts.bias = true;
                   l.attention.temperature = {.scale = 1, .everywhere = true};
                   l.experts.limit = l.experts.shared_limit = 7;
                 }),
          change("Nemotron-3-Nano",
                 [&](LayerRecipe& l) {
                   scaled(l);
                   l.experts.bias = true;
                   l.mamba.dt_min = 0.1f;
                   l.mamba.dt_max = 10;
                   l.experts.latent = 512;
                 }),
          change("Kimi-Linear-48B-A3B",
                 [](LayerRecipe& l) {
                   l.experts.shared_width = 0;
                   l.experts.shared_activation = true;
                   l.delta.decay_bound = -5;
                   l.delta.gate_rank = 0;
                 }),
          change("Qwen3-Coder-Next", [](LayerRecipe& l) { l.network.gated = false; })};
}

TEST(Accounting, ThePageGivesEverything) {
  Terms terms(Page());
  ASSERT_GT(terms.size(), 100u);
  std::vector<Recipe> recipes = Variants();
  for (const std::string_view name : CatalogNames()) recipes.push_back(FindCatalogModel(name)->recipe);
  for (size_t i = 0; i < recipes.size(); ++i) {
    SCOPED_TRACE(recipes[i].family + ", the recipe " + std::to_string(i));
    const uint64_t context = std::min<uint64_t>(9000, static_cast<uint64_t>(recipes[i].context));
    Totals books;
    for (const books::WorkForm& f : books::WorkForms(recipes[i], {.context = context})) {
      auto& [flops, special] = books[std::string(kWorkClassNames[static_cast<size_t>(f.work_class)])];
      flops += static_cast<int64_t>(f.flops.value());
      special += static_cast<int64_t>(f.special.value());
    }
    std::erase_if(books, [](const auto& of) { return of.second == std::pair<int64_t, int64_t>(); });
    const Totals page = terms.Of(recipes[i], context);
    for (const auto& [of_class, sums] : books) {
      const auto found = page.find(of_class);
      ASSERT_NE(found, page.end()) << of_class;
      EXPECT_EQ(found->second, sums) << of_class;
    }
    EXPECT_EQ(page.size(), books.size());
  }
  EXPECT_EQ(terms.Unused(), "");
}

// Every symbol of a printed form is explained on the page.
TEST(Accounting, ThePageHasEverySymbol) {
  const std::string page = Page();
  const size_t begin = page.find("## Closed forms"), end = page.find("\n## ", begin + 1);
  const std::string section = page.substr(begin, end - begin);
  std::set<std::string> symbols, texts;
  static const std::regex symbol(R"([A-Za-z]+(_[a-z]+)?)");
  for (const std::string_view name : CatalogNames()) {
    const Recipe recipe = FindCatalogModel(name)->recipe;
    for (const books::WorkForm& f : books::WorkForms(recipe, {.sequences = 2, .rows = 3, .context = 9000})) {
      texts.insert(f.flops.text());
      texts.insert(f.special.text());
    }
  }
  for (const std::string& text : texts) {
    for (std::sregex_iterator it(text.begin(), text.end(), symbol), none; it != none; ++it) symbols.insert(it->str());
  }
  for (const std::string& s : symbols) {
    EXPECT_TRUE(std::regex_search(section, std::regex("(^|[^A-Za-z_])" + s + "($|[^A-Za-z_])"))) << s;
  }
  EXPECT_GT(symbols.size(), 25u);
}

}  // namespace
}  // namespace tally
