// SPDX-License-Identifier: Apache-2.0
// Every numeric claim of five course texts, beside its count.
#include "engine/studies/settled_claims.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "engine/recipe/recipe.h"
#include "engine/studies/count.h"

namespace tally {
namespace course {
namespace {

using books::Count;
using books::FlopsView;
using books::Part;
using books::WithThousands;

// "gpt2-xl:gated,tied=false", counted with a prompt and as F32; each once.
const Count& Of(std::string_view name, uint64_t prompt = 1024) {
  const std::string model(name);
  static thread_local std::map<std::pair<std::string, uint64_t>, Count> counted;
  const auto key = std::pair{model, prompt};
  const auto found = counted.find(key);
  if (found != counted.end()) return found->second;
  CountRequest request;
  request.model = model.substr(0, model.find(':'));
  std::string rest = model.find(':') == std::string::npos ? "" : model.substr(model.find(':') + 1);
  while (!rest.empty()) {
    request.settings.push_back(rest.substr(0, rest.find(',')));
    rest = rest.find(',') == std::string::npos ? "" : rest.substr(rest.find(',') + 1);
  }
  request.options.prompt = prompt;
  request.options.type = DType::kF32;
  request.type_given = true;
  Result<CountedModel> count = CountModel(request);
  return counted.emplace(key, count.ok() ? std::move(count->count) : Count()).first->second;
}

std::string N(uint64_t n) { return WithThousands(n); }

std::string Scaled(double x, double unit, int digits, const char* name) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", digits, x / unit, name);
  return text;
}

// Parameters of a layer (-1: outside of layers) in these components; none named: all.
uint64_t In(const Count& c, int32_t layer, std::initializer_list<Component> components = {}, bool active = false) {
  uint64_t sum = 0;
  for (const books::ParameterForm& p : c.tensors) {
    const bool wanted =
        components.size() == 0 || std::find(components.begin(), components.end(), p.component) != components.end();
    if (p.layer == layer && wanted) sum += active ? p.active.value() : p.count.value();
  }
  return sum;
}

const std::initializer_list<Component> kAttention = {Component::kAttnQkv, Component::kAttnQ,     Component::kAttnK,
                                                     Component::kAttnV,   Component::kAttention, Component::kAttnOutput};
const std::initializer_list<Component> kFeedForward = {Component::kFfnGateUp, Component::kFfnDown};
const std::initializer_list<Component> kMixture = {Component::kRouter, Component::kFfnGateUp, Component::kFfnDown};
const std::initializer_list<Component> kNorms = {Component::kAttnNorm, Component::kFfnNorm};

uint64_t Flops(const Count& c, FlopsView view, Part part) {
  for (const books::FlopsRow& row : c.prefill.rows) {
    if (row.part == part) return row.flops[static_cast<size_t>(view)].number().value().value();
  }
  return 0;
}

uint64_t Full(const Count& c) { return c.prefill.total[0].number().value(); }

std::string Share(uint64_t part, uint64_t whole, int digits = 2) { return PercentOf(part, whole, digits); }

std::string ShareOf(const Count& c, Part part, int digits = 2) {
  return Share(Flops(c, FlopsView::kFullSquare, part), Full(c), digits);
}

constexpr const char* kSwiglu =
    "gpt2-xl:gated,norm=rms,qkv_bias=false,o_bias=false,ffn_bias=false,tied=false,learned_positions=false";

void Text000(std::vector<CourseClaim>& out) {
  auto add = [&](std::string claim, std::string printed, uint64_t ours, std::string convention, std::string why = "") {
    out.push_back({"000", std::move(claim), std::move(printed), N(ours), std::move(convention), std::move(why)});
  };
  const Count &g = Of("gpt2"), &o = Of("gpt-oss-20b");
  add("GPT-2: embeddings", "39,383,808", In(g, -1, {Component::kEmbedding, Component::kPositionEmbedding}),
      "tokens and positions");
  add("GPT-2: norms of a layer", "3,072", In(g, 0, kNorms), "two LayerNorms",
      "printed as 4 * 50257, which is 201,028; it is 4 * 768");
  add("GPT-2: attention of a layer", "2,362,368", In(g, 0, kAttention), "biases counted");
  add("GPT-2: feed-forward of a layer", "4,722,432", In(g, 0, kFeedForward), "biases counted");
  add("GPT-2: a layer", "7,087,872", In(g, 0), "biases and norms counted");
  add("GPT-2: total", "124,439,808", g.parameters.total, "tied head counted once");
  add("GPT-2 medium: total", "354,823,168", Of("gpt2-medium").parameters.total, "tied head counted once");
  add("GPT-2 large: total", "774,030,080", Of("gpt2-large").parameters.total, "tied head counted once");
  add("GPT-2 XL: total", "1,557,611,200", Of("gpt2-xl").parameters.total, "tied head counted once");
  add("gpt-oss-20b: embedding", "579,133,440", In(o, -1, {Component::kEmbedding}), "");
  add("gpt-oss-20b: Q projection", "11,800,576", In(o, 0, {Component::kAttnQ}), "bias counted");
  add("gpt-oss-20b: K projection", "1,475,072", In(o, 0, {Component::kAttnK}), "bias counted");
  add("gpt-oss-20b: V projection", "1,475,072", In(o, 0, {Component::kAttnV}), "bias counted");
  add("gpt-oss-20b: output projection", "11,799,360", In(o, 0, {Component::kAttnOutput}), "bias counted",
      "missing in the text's own symbolic line for a layer, in its number for a layer counted");
  add("gpt-oss-20b: sinks of a layer", "64", In(o, 0, {Component::kAttention}), "");
  add("gpt-oss-20b: attention of a layer", "26,550,144", In(o, 0, kAttention), "biases and sinks counted");
  add("gpt-oss-20b: router of a layer", "92,192", In(o, 0, {Component::kRouter}), "bias counted");
  add("gpt-oss-20b: one expert", "24,891,840", In(o, 0, kFeedForward) / 32, "three matrices and their biases",
      "the text's 3 E^2 + 3 E holds only because d_ff = d_model");
  add("gpt-oss-20b: experts and router of a layer", "796,631,072", In(o, 0, kMixture), "");
  add("gpt-oss-20b: a norm", "2,880", In(o, 0, {Component::kAttnNorm}), "RMSNorm");
  add("gpt-oss-20b: a layer", "823,186,976", In(o, 0), "");
  add("gpt-oss-20b: total without unembedding", "20,335,622,208", o.parameters.total - In(o, -1, {Component::kHead}),
      "embedding counted, head not", "lost the 24 * 64 = 1,536 sinks, which its own layer total counts");
  add("gpt-oss-20b: total", "20,914,757,184", o.parameters.total, "embedding and head counted");
  add("gpt-oss-20b: active experts and router of a layer", "99,659,552", In(o, 0, kMixture, true), "4 of 32 experts");
  add("gpt-oss-20b: active in a layer", "126,215,456", In(o, 0, {}, true), "4 of 32 experts");
  add("gpt-oss-20b: active", "3,608,307,264", o.parameters.active_head, "active(head): head counted, embedding not",
      "the text counts the embedding instead of the head, which is as large");
}

void Text001(std::vector<CourseClaim>& out) {
  auto add = [&](std::string claim, std::string printed, std::string ours, std::string convention, std::string why = "") {
    out.push_back({"001", std::move(claim), std::move(printed), std::move(ours), std::move(convention), std::move(why)});
  };
  const Count &s = Of(kSwiglu), &far = Of(kSwiglu, 16384), &x = Of("gpt2-xl"), &x16 = Of("gpt2-xl", 16384);
  // Parts (b) to (e) list two feed-forward matrices, of which part (a), a SwiGLU, has three.
  const char* full = "matmul, full square, head at every position, two feed-forward matrices";
  auto three = [](const std::string& n) { return "with the three matrices of the text's own model, a SwiGLU: " + n; };
  add("GPT-2 XL's shape with SwiGLU: embedding", "80,411,200", N(In(s, -1, {Component::kEmbedding})), "");
  add("... attention of a layer", "10,240,000", N(In(s, 0, kAttention)), "no biases");
  add("... feed-forward of a layer", "30,720,000", N(In(s, 0, kFeedForward)), "three matrices");
  add("... norms of a layer", "3,200", N(In(s, 0, kNorms)), "two RMSNorms");
  add("... a layer", "40,963,200", N(In(s, 0)), "RMSNorm");
  add("... all layers", "1,966,233,600", N(48 * In(s, 0)), "");
  add("... the last norm", "1,600", N(In(s, -1, {Component::kOutputNorm})), "RMSNorm");
  add("... head", "80,411,200", N(In(s, -1, {Component::kHead})), "");
  add("... total", "2,127,057,600", N(s.parameters.total), "head apart from the embedding");
  add("... total", "2.13 B", Scaled(static_cast<double>(s.parameters.total), 1e9, 2, "B"), "head apart from the embedding");
  add("... bytes in F32", "8,508,230,400", N(s.weight_bytes), "");
  add("... memory", "8.51 GB", Scaled(static_cast<double>(s.weight_bytes), 1e9, 2, "GB"), "10^9 bytes");
  add("... memory", "7.92 GiB", Scaled(static_cast<double>(s.weight_bytes), 1073741824.0, 2, "GiB"), "2^30 bytes");
  add("... a tied head saves", "0.32 GB",
      Scaled(static_cast<double>(s.weight_bytes - Of(std::string(kSwiglu) + ",tied").weight_bytes), 1e9, 2, "GB"), "");
  const auto layer = [](const Count& c) { return (Full(c) - Flops(c, FlopsView::kFullSquare, Part::kHead)) / 48; };
  const auto tera = [](const Count& c, int digits) { return Scaled(static_cast<double>(Full(c)), 1e12, digits, "TFLOPs"); };
  add("GPT-2 XL's shape: FLOPs of a layer at 1,024", "69,625,446,400", N(layer(x)), full, three(N(layer(s))));
  add("... FLOPs of 48 layers", "3,342,021,427,200", N(48 * layer(x)), full, three(N(48 * layer(s))));
  add("... FLOPs of the head", "164,682,137,600", N(Flops(x, FlopsView::kFullSquare, Part::kHead)), full);
  add("... FLOPs", "3,506,703,564,800", N(Full(x)), full, three(N(Full(s))));
  add("... FLOPs", "3.51 TFLOPs", tera(x, 2), full, three(tera(s, 2)));
  add("... share of the feed-forward", "57.4 %", ShareOf(x, Part::kFeedForward, 1), full,
      three(ShareOf(s, Part::kFeedForward, 1)));
  add("... share of the attention projections", "28.7 %", ShareOf(x, Part::kProjections, 1), full,
      three(ShareOf(s, Part::kProjections, 1)));
  add("... share of attention", "9.2 %", ShareOf(x, Part::kAttention, 1), full, three(ShareOf(s, Part::kAttention, 1)));
  add("... share of the head", "4.7 %", ShareOf(x, Part::kHead, 1), full, three(ShareOf(s, Part::kHead, 1)));
  struct Row {
    const char* model;
    const char* flops;
    const char* shares[4];
  };
  const Row rows[] = {{"gpt2", "0.292 TFLOPs", {"39.76 %", "19.88 %", "13.25 %", "27.10 %"}},
                      {"gpt2-medium", "0.827 TFLOPs", {"49.86 %", "24.93 %", "12.46 %", "12.75 %"}},
                      {"gpt2-large", "1.775 TFLOPs", {"54.46 %", "27.23 %", "10.89 %", "7.42 %"}},
                      {"gpt2-xl", "3.507 TFLOPs", {"57.41 %", "28.71 %", "9.19 %", "4.70 %"}}};
  for (const Row& r : rows) {
    const Count& c = Of(r.model);
    const std::string name = std::string(r.model) + ": ";
    add(name + "FLOPs at 1,024", r.flops, Scaled(static_cast<double>(Full(c)), 1e12, 3, "TFLOPs"), full,
        "causal attention alone: " + Scaled(static_cast<double>(c.prefill.total[1].number().value()), 1e12, 3, "TFLOPs"));
    const std::pair<const char*, Part> parts[] = {{"feed-forward", Part::kFeedForward},
                                                  {"attention projections", Part::kProjections},
                                                  {"attention", Part::kAttention},
                                                  {"head", Part::kHead}};
    for (size_t i = 0; i < 4; ++i) add(name + "share of the " + parts[i].first, r.shares[i], ShareOf(c, parts[i].second), full);
  }
  const auto times = [](const Count& a, const Count& b) {
    return Scaled(static_cast<double>(Full(a)), static_cast<double>(Full(b)), 1, "x");
  };
  add("GPT-2 XL's shape at 16,384: FLOPs", "133,416,668,364,800", N(Full(x16)), full,
      three(N(Full(far))) + "; causal, with two: " + N(x16.prefill.total[1].number().value()));
  add("... FLOPs", "133.4 TFLOPs", tera(x16, 1), full, three(tera(far, 1)));
  add("... times those at 1,024", "38.0 x", times(x16, x), full, three(times(far, s)));
  add("... share of attention", "61.8 %", ShareOf(x16, Part::kAttention, 1), full, three(ShareOf(far, Part::kAttention, 1)));
  add("... share of the feed-forward", "24.1 %", ShareOf(x16, Part::kFeedForward, 1), full,
      three(ShareOf(far, Part::kFeedForward, 1)));
  add("... share of the attention projections", "12.1 %", ShareOf(x16, Part::kProjections, 1), full,
      three(ShareOf(far, Part::kProjections, 1)));
  add("... share of the head", "2.0 %", ShareOf(x16, Part::kHead, 1), full, three(ShareOf(far, Part::kHead, 1)));
}

void Text002(std::vector<CourseClaim>& out) {
  auto add = [&](std::string claim, std::string printed, std::string ours, std::string convention, std::string why = "") {
    out.push_back({"002", std::move(claim), std::move(printed), std::move(ours), std::move(convention), std::move(why)});
  };
  const char* fixed = "d_ff is 6,400 for every size in the text, and 4 d_model in the models";
  const char* omits = "QK^T, PV and the head are left out";
  struct Row {
    const char *model, *total, *memory, *flops, *attention, *feed_forward;
    bool wrong;
  };
  const Row rows[] = {{"gpt2-xl", "1.56 B", "5.80 GiB", "3.02 TFLOPs", "33.33 %", "66.67 %", false},
                      {"gpt2", "0.19 B", "0.69 GiB", "0.30 TFLOPs", "19.35 %", "80.65 %", true},
                      {"gpt2-medium", "0.47 B", "1.74 GiB", "0.85 TFLOPs", "24.24 %", "75.76 %", true},
                      {"gpt2-large", "0.89 B", "3.32 GiB", "1.69 TFLOPs", "28.57 %", "71.43 %", true}};
  for (const Row& r : rows) {
    const Count& c = Of(r.model);
    const std::string name = std::string(r.model) + ": ";
    const std::string why = r.wrong ? fixed : "";
    const uint64_t projections = Flops(c, FlopsView::kFullSquare, Part::kProjections),
                   feed_forward = Flops(c, FlopsView::kFullSquare, Part::kFeedForward), both = projections + feed_forward;
    add(name + "parameters", r.total, Scaled(static_cast<double>(c.parameters.total), 1e9, 2, "B"),
        "biases and the last norm counted",
        r.wrong ? why : "the text leaves out 694,400: biases 691,200 and the last norm 3,200");
    add(name + "memory in F32", r.memory, Scaled(static_cast<double>(c.weight_bytes), 1073741824.0, 2, "GiB"), "2^30 bytes",
        r.wrong ? why : "printed as GB");
    add(name + "FLOPs at 1,024", r.flops, Scaled(static_cast<double>(both), 1e12, 2, "TFLOPs"),
        "projections and feed-forward only",
        r.wrong ? why : std::string(omits) + ": " + Scaled(static_cast<double>(Full(c)), 1e12, 3, "TFLOPs") + " with them");
    add(name + "share of attention", r.attention, Share(projections, both), "of projections and feed-forward only",
        r.wrong ? why : omits);
    add(name + "share of the feed-forward", r.feed_forward, Share(feed_forward, both), "of projections and feed-forward only",
        r.wrong ? why : omits);
  }
  const Count& far = Of("gpt2-xl", 16384);
  add("gpt2-xl at 16,384: FLOPs", "133.42 TFLOPs", Scaled(static_cast<double>(Full(far)), 1e12, 2, "TFLOPs"),
      "matmul, full square, head at every position");
  add("... share of projections and feed-forward", "36.2 %",
      Share(Flops(far, FlopsView::kFullSquare, Part::kProjections) + Flops(far, FlopsView::kFullSquare, Part::kFeedForward),
            Full(far), 1),
      "matmul, full square", "the head's 1.97 % is not listed");
  add("... share of attention", "61.8 %", ShareOf(far, Part::kAttention, 1), "matmul, full square");
}

void Text003(std::vector<CourseClaim>& out) {
  auto add = [&](std::string claim, std::string printed, std::string ours, std::string convention, std::string why = "") {
    out.push_back({"003", std::move(claim), std::move(printed), std::move(ours), std::move(convention), std::move(why)});
  };
  const Count& g = Of("gpt2");
  auto millions = [](const char* model) { return Scaled(static_cast<double>(Of(model).parameters.total), 1e6, 2, "M"); };
  add("GPT-2: token embedding", "38,597,376", N(In(g, -1, {Component::kEmbedding})), "");
  add("GPT-2: positions", "786,432", N(In(g, -1, {Component::kPositionEmbedding})), "");
  add("GPT-2: attention of a layer", "2,362,368", N(In(g, 0, kAttention)), "biases counted",
      "the text's softmax divides by sqrt(E); heads divide by sqrt(E / H)");
  add("GPT-2: feed-forward of a layer", "4,718,592", N(In(g, 0, kFeedForward)), "biases counted",
      "that is 8 E^2; 8 E^2 + 5 E is what its own code prints");
  add("GPT-2: a LayerNorm", "1,536", N(In(g, 0, {Component::kAttnNorm})), "");
  add("GPT-2: a layer", "7,087,872", N(In(g, 0)), "");
  add("GPT-2: total", "124,439,808", N(g.parameters.total), "tied head counted once");
  add("GPT-2 medium: total", "254.05 M", millions("gpt2-medium"), "",
      "its 16 heads were given as the number of layers, which is 24");
  add("GPT-2 large: total", "774.03 M", millions("gpt2-large"), "");
  add("GPT-2 XL: total", "1557.61 M", millions("gpt2-xl"), "");
  add("Gemma-3-4B: a norm", "2,560", N(In(Of("Gemma-3-4B"), 0, {Component::kAttnNorm})), "");
}

void Text004(std::vector<CourseClaim>& out) {
  auto add = [&](std::string claim, std::string printed, std::string ours, std::string convention, std::string why = "") {
    out.push_back({"004", std::move(claim), std::move(printed), std::move(ours), std::move(convention), std::move(why)});
  };
  const Count &m = Of("mini-gpt", 64), &qkv = Of("mini-gpt:qkv_bias", 64), &untied = Of("mini-gpt:tied=false", 64),
              &bare = Of("mini-gpt:ffn_bias=false", 64);
  const uint64_t norms = 2 * In(m, 0, kNorms) + In(m, -1, {Component::kOutputNorm});
  add("Mini-GPT: embedding", "4,096", N(In(m, -1, {Component::kEmbedding})), "tied");
  add("Mini-GPT: attention of a block", "16,384", N(In(m, 0, kAttention)), "no biases");
  add("Mini-GPT: feed-forward of a block", "33,088", N(In(m, 0, kFeedForward)), "biases counted");
  add("Mini-GPT: norms of a block", "256", N(In(m, 0, kNorms)), "");
  add("Mini-GPT: a block", "49,728", N(In(m, 0)), "");
  add("Mini-GPT: two blocks", "99,456", N(2 * In(m, 0)), "");
  add("Mini-GPT: the last norm", "128", N(In(m, -1, {Component::kOutputNorm})), "");
  add("Mini-GPT: total", "103,680", N(m.parameters.total), "");
  add("... without feed-forward biases and norms", "57,000", N(bare.parameters.total - norms), "",
      "leaving either or both out cannot give about 57k");
  add("... more with biases on Q, K and V", "512", N(qkv.parameters.total - m.parameters.total), "",
      "3 d_model a layer; 512 needs the output's bias as well");
  add("... more with an untied head", "4,096", N(untied.parameters.total - m.parameters.total), "");
  add("... share of the feed-forward in a block", "64 %", Share(In(m, 0, kFeedForward), In(m, 0), 0), "biases counted",
      "33,088 of 49,728 is 66.5 %");
  add("... share of the feed-forward in all", "64 %", Share(2 * In(m, 0, kFeedForward), m.parameters.total, 0), "biases counted",
      "it tends to two thirds in larger ones because the embedding's share shrinks, not with depth: 65.9 % and 66.4 %");
  // The formula has no positions and no biases of attention.
  add("GPT-2 small: the same formula", "117,000,000",
      N(Of("gpt2:qkv_bias=false,o_bias=false,learned_positions=false").parameters.total), "tied head counted once",
      "with its positions and biases of attention the model has " + N(Of("gpt2").parameters.total) +
          "; 117M is not a matter of tied embeddings: OpenAI took it back as an error (openai/gpt-2 README.md); untied it would "
          "be " +
          N(Of("gpt2:tied=false").parameters.total));
}

// The matrices of attention and, of the experts, `experts` of each layer.
uint64_t InAttentionAndExperts(const Count& c, uint64_t experts) {
  uint64_t sum = 0;
  for (const books::ParameterForm& p : c.tensors) {
    if (p.vector || p.apart()) continue;
    if (p.expert) sum += experts * p.slice.value();
    if (std::find(kAttention.begin(), kAttention.end(), p.component) != kAttention.end()) sum += p.count.value();
  }
  return sum;
}

std::vector<CourseClaim> AllCourseClaims() {
  std::vector<CourseClaim> claims;
  Text000(claims);
  Text001(claims);
  Text002(claims);
  Text003(claims);
  Text004(claims);
  return claims;
}

// MoE-CAP's numerator of S-MFU is layers (attention + expert_size) + scores, and expert_size is one expert's.
std::vector<ChargedParameters> AllMoeCapCharges() {
  std::vector<ChargedParameters> charges;
  for (const char* name : {"Mixtral-8x7B", "Qwen3-30B-A3B", "gpt-oss-20b"}) {
    const Count& c = Of(name);
    const auto k = static_cast<uint64_t>(c.recipe->all.experts.top_k);
    charges.push_back({name, InAttentionAndExperts(c, 1), InAttentionAndExperts(c, k), k});
  }
  return charges;
}

}  // namespace
}  // namespace course

std::string PercentOf(uint64_t part, uint64_t whole, int digits) {
  __extension__ using Wide = unsigned __int128;
  uint64_t unit = 1;
  for (int i = 0; i < digits; ++i) unit *= 10;
  const auto scaled = static_cast<uint64_t>((Wide{part} * 100 * unit * 2 + whole) / (Wide{whole} * 2));
  std::string text = std::to_string(scaled / unit);
  if (digits > 0) text += "." + std::to_string(unit + scaled % unit).substr(1);
  return text + " %";
}

std::vector<CourseClaim> CourseClaims() { return course::AllCourseClaims(); }
std::vector<ChargedParameters> MoeCapCharges() { return course::AllMoeCapCharges(); }

}  // namespace tally
