// SPDX-License-Identifier: Apache-2.0
// Every built-in model against its parameter counts, which were computed apart from Tally (facts: a model's total with a tied
// matrix once; active with embedding and head, with the head only, with neither).
#include "models/catalog/catalog.h"

#include <gtest/gtest.h>
#include <cctype>

#include <cmath>
#include <set>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
#include "counters/books/parts.h"
#include "models/config.h"

namespace tally {
namespace {

struct Expected {
  std::string_view name;
  books::ParameterCounts counts;  // total, all, head, none
};

// clang-format off
constexpr Expected kExpected[] = {
    {"OLMoE-1B-7B", {6919161856, 1282017280, 1178994688, 1075972096}},
    {"OLMo-2-7B", {7298617344, 7298617344, 6887575552, 6476533760}},
    {"Olmo-3-7B", {7298011136, 7298011136, 6887272448, 6476533760}},
    {"AFM-4.5B", {4619184640, 4619184640, 4291494400, 3963804160}},
    {"Trinity-Nano", {6120003328, 1023923968, 818927360, 613930752}},
    {"Baichuan-7B", {7000559616, 7000559616, 6738415616, 6476271616}},
    {"ERNIE-4.5-0.3B", {360748032, 360748032, 360748032, 254841856}},
    {"ERNIE-4.5-21B-A3B", {21825437888, 3352150208, 3352150208, 3087384768}},
    {"StarCoder", {15517456384, 15517456384, 15467124736, 15165134848}},
    {"StarCoder2-3B", {3030371328, 3030371328, 3030371328, 2879376384}},
    {"StarCoder2-7B", {7173923840, 7173923840, 7173923840, 6947431424}},
    {"BLOOM-560M", {559214592, 559214592, 559214592, 302313472}},
    {"BLOOM-7B1", {7069016064, 7069016064, 7069016064, 6041411584}},
    {"Seed-OSS-36B", {36151104512, 36151104512, 35356808192, 34562511872}},
    {"Command-R", {34980831232, 34980831232, 34980831232, 32883679232}},
    {"Command-R7B", {8028033024, 8028033024, 8028033024, 6979457024}},
    {"North-Mini-Code", {30484303872, 3305213952, 3305213952, 2768343040}},
    {"DeepSeekMoE-16B", {16375728128, 2828650496, 2618935296, 2409220096}},
    {"DeepSeek-V2-Lite", {15706484224, 2661150208, 2451435008, 2241719808}},
    {"DeepSeek-V2", {235741434880, 21375800320, 20851512320, 20327224320}},
    {"DeepSeek-V3", {671026419200, 37552297472, 36625618432, 35698939392}},
    {"GPT-Neo-1.3B", {1315575808, 1315575808, 1311381504, 1208455168}},
    {"GPT-Neo-2.7B", {2651307520, 2651307520, 2646064640, 2517406720}},
    {"GPT-J-6B", {6050882784, 6050882784, 5844444384, 5637955584}},
    {"Pythia-160M", {162322944, 162322944, 123689472, 85056000}},
    {"Pythia-1.4B", {1414647808, 1414647808, 1311625216, 1208602624}},
    {"Pythia-6.9B", {6857302016, 6857302016, 6650732544, 6444163072}},
    {"Gemma-2B", {2506172416, 2506172416, 2506172416, 1981884416}},
    {"Gemma-7B", {8537680896, 8537680896, 8537680896, 7751248896}},
    {"Gemma-2-2B", {2614341888, 2614341888, 2614341888, 2024517888}},
    {"Gemma-2-9B", {9241705984, 9241705984, 9241705984, 8324201984}},
    {"Gemma-2-27B", {27227128320, 27227128320, 27227128320, 26047480320}},
    {"Gemma-3-1B", {999885952, 999885952, 999885952, 697896064}},
    {"Gemma-3-4B", {3880263168, 3880263168, 3880263168, 3209010688}},
    {"Gemma-3-12B", {11766034176, 11766034176, 11766034176, 10759155456}},
    {"Gemma-3-27B", {27009346304, 27009346304, 27009346304, 25599716096}},
    {"Gemma-4-E2B", {4628569379, 4628569379, 2279759139, 1877105955}},
    {"Gemma-4-E4B", {7463013418, 7463013418, 4644441130, 3973352490}},
    {"Gemma-4-12B", {11907350320, 11907350320, 11907350320, 10900717360}},
    {"Gemma-4-26B-A4B", {25233141790, 3822530590, 3822530590, 3084333086}},
    {"Gemma-4-31B", {30697345340, 30697345340, 30697345340, 29288059196}},
    {"SmolLM2-135M", {134515008, 134515008, 134515008, 106203456}},
    {"SmolLM2-1.7B", {1711376384, 1711376384, 1711376384, 1610713088}},
    {"SmolLM3-3B", {3075098624, 3075098624, 3075098624, 2812430336}},
    {"Granite-3.0-1B-A400M", {1334628352, 428658688, 428658688, 378323968}},
    {"Granite-3.1-8B", {8170848256, 8170848256, 8170848256, 7969509376}},
    {"Granite-4.0-H-Tiny", {6939037248, 1465470528, 1465470528, 1311329856}},
    {"Ling-mini-2.0", {16255643392, 1432973056, 1111060224, 789147392}},
    {"Ling-3.0-tiny", {7893392800, 1381735840, 1140301216, 898866592}},  // by a script written apart
    {"Ling-3.0-flash", {124414211552, 5505693152, 5103302112, 4700911072}},  // by a script written apart
    {"EXAONE-4.0-1.2B", {1279391488, 1279391488, 1279391488, 1069676288}},
    {"EXAONE-4.0-32B", {32003216384, 32003216384, 31478928384, 30954640384}},
    {"K-EXAONE-236B-A23B", {236571156352, 23668285312, 22724566912, 21780848512}},
    {"LFM2-1.2B", {1170340608, 1170340608, 1170340608, 1036122880}},
    {"LFM2-8B-A1B", {8339930560, 1557740992, 1557740992, 1423523264}},
    {"OPT-125M", {125239296, 125239296, 123664896, 85056000}},
    {"OPT-350M", {331196416, 331196416, 329097216, 303357952}},
    {"OPT-1.3B", {1315758080, 1315758080, 1311559680, 1208602624}},
    {"OPT-6.7B", {6658473984, 6658473984, 6650077184, 6444163072}},
    {"Llama-2-7B", {6738415616, 6738415616, 6607343616, 6476271616}},
    {"Llama-3.1-8B", {8030261248, 8030261248, 7504924672, 6979588096}},
    {"Llama-3.1-70B", {70553706496, 70553706496, 69503033344, 68452360192}},
    {"Llama-3.2-1B", {1235814400, 1235814400, 1235814400, 973146112}},
    {"Llama-4-Scout", {107769861120, 17172894720, 16138408960, 15103923200}},
    {"Muse-Glimmer-30B", {27854780928, 27854780928, 26509949440, 25165117952}},
    {"Phi-1.5", {1418270720, 1418270720, 1313413120, 1208504320}},
    {"Phi-2", {2779683840, 2779683840, 2648611840, 2517488640}},
    {"Phi-3-mini-4k", {3821079552, 3821079552, 3722578944, 3624078336}},
    {"Phi-4", {14659507200, 14659507200, 14145704960, 13631902720}},
    {"Phi-4-mini", {3836021760, 3836021760, 3836021760, 3221425152}},
    {"MiniMax-M2", {228689764864, 11030553088, 10415956480, 9801359872}},
    {"Mistral-7B-v0.1", {7241732096, 7241732096, 7110660096, 6979588096}},
    {"Mixtral-8x7B", {46702792704, 12879925248, 12748853248, 12617781248}},
    {"Mixtral-8x22B", {140630071296, 39161468928, 38960142336, 38758815744}},
    {"Codestral-Mamba-7B", {7285403648, 7285403648, 7151185920, 7016968192}},
    {"Ministral-3-8B", {8489553920, 8489553920, 7952683008, 7415812096}},
    {"Mistral-Small-4", {118972826624, 6632588288, 6095717376, 5558846464}},
    {"Kimi-K2", {1026408232448, 32861500928, 31687095808, 30512690688}},
    {"Kimi-Linear-48B-A3B", {49122681728, 3484459904, 3106972544, 2729485184}},  // by a script written apart
    {"MPT-7B", {6649286656, 6649286656, 6649286656, 6442717184}},
    {"Nemotron-3-Nano", {31577940288, 3580076352, 3227754816, 2875433280}},
    {"Minitron-4B", {4190509056, 4190509056, 3404077056, 2617645056}},
    {"gpt2", {124439808, 124439808, 123653376, 85056000}},
    {"gpt2-medium", {354823168, 354823168, 353774592, 302311424}},
    {"gpt2-large", {774030080, 774030080, 772719360, 708390400}},
    {"gpt2-xl", {1557611200, 1557611200, 1555972800, 1475561600}},
    {"gpt-oss-20b", {20914757184, 4187440704, 3608307264, 3029173824}},
    {"gpt-oss-120b", {116829156672, 5711982912, 5132849472, 4553716032}},
    {"MiniCPM-2B", {2724880896, 2724880896, 2724880896, 2442057984}},
    {"Orion-14B", {14498703360, 14498703360, 14065510400, 13632317440}},
    {"Laguna-XS.2", {33442617088, 3017135872, 2811614976, 2606094080}},
    {"Qwen-7B", {7721324544, 7721324544, 7098994688, 6476664832}},
    {"Qwen1.5-MoE-A2.7B", {14315784192, 2689173504, 2378008576, 2066843648}},
    {"Qwen2-0.5B", {494032768, 494032768, 494032768, 357898112}},
    {"Qwen2-7B", {7615616512, 7615616512, 7070619136, 6525621760}},
    {"Qwen2-57B-A14B", {57408658944, 14249270784, 13704732160, 13160193536}},
    {"Qwen2.5-7B", {7615616512, 7615616512, 7070619136, 6525621760}},
    {"Qwen2.5-72B", {72706203648, 72706203648, 71460495360, 70214787072}},
    {"Qwen3-0.6B", {596049920, 596049920, 596049920, 440467456}},
    {"Qwen3-1.7B", {1720574976, 1720574976, 1720574976, 1409410048}},
    {"Qwen3-4B", {4022468096, 4022468096, 4022468096, 3633511936}},
    {"Qwen3-8B", {8190735360, 8190735360, 7568405504, 6946075648}},
    {"Qwen3-14B", {14768307200, 14768307200, 13990394880, 13212482560}},
    {"Qwen3-32B", {32762123264, 32762123264, 31984210944, 31206298624}},
    {"Qwen3-30B-A3B", {30532122624, 3353032704, 3041867776, 2730702848}},
    {"Qwen3-235B-A22B", {235093634560, 22190763520, 21568433664, 20946103808}},
    {"Qwen3-VL-4B", {4022468096, 4022468096, 4022468096, 3633511936}},
    {"Qwen3-VL-30B-A3B", {30532122624, 3353032704, 3041867776, 2730702848}},
    {"Qwen3-Coder-Next", {79674391296, 3874929408, 3563764480, 3252599552}},
    {"Qwen3.5-4B", {4205751296, 4205751296, 4205751296, 3570052096}},
    {"Qwen3.6-35B-A3B", {34660610688, 3454988928, 2946429568, 2437870208}},
    {"dots.llm1", {142774381696, 14016588928, 13393734784, 12770880640}},
    {"InternLM2.5-7B", {7737708544, 7737708544, 7358648320, 6979588096}},
    {"StableLM-2-1.6B", {1644515328, 1644515328, 1438994432, 1233473536}},
    {"Apertus-8B", {8053338176, 8053338176, 7516467264, 6979596352}},
    {"Hunyuan-7B", {7504568320, 7504568320, 7504568320, 6979596288}},
    {"Hunyuan-A13B", {80393183232, 12747448320, 12747448320, 12222476288}},
    {"Falcon-7B", {6921720704, 6921720704, 6921720704, 6626251648}},
    {"Falcon-40B", {41303293952, 41303293952, 41303293952, 40770617344}},
    {"Falcon-H1-0.5B", {521411104, 521411104, 487840288, 454269472}},
    {"TinyLlama-1.1B", {1100048384, 1100048384, 1034512384, 968976384}},
    {"Solar-Open-100B", {102651799552, 12054833152, 11249526784, 10444220416}},
    {"XVERSE-13B", {13715031040, 13715031040, 13201607680, 12688184320}},
    {"GLM-4-9B", {9399951360, 9399951360, 8779194368, 8158437376}},
    {"GLM-4-9B-0414", {9400279040, 9400279040, 8779522048, 8158765056}},
    {"GLM-4.5", {352797829024, 33632266144, 32856319904, 32080373664}},
    {"GLM-4.5-Air", {106852251264, 13424129664, 12803372672, 12182615680}},
    {"GLM-4.7-Flash", {29943393920, 3896766080, 3579571840, 3262377600}},
    {"mini-gpt", {103680, 103680, 103680, 99584}},
};

// Of those that are counted and not run.
constexpr Expected kCounted[] = {
    {"Jamba-1.5-Mini", {51570323328, 12110311296, 11841875840, 11573440384}},
    {"DeepSeek-V3.2", {671877944064, 38403822336, 37477143296, 36550464256}},
    {"DeepSeek-V4-Flash", {284332240471, 13799632471, 13270101591, 12740570711}},
    {"DeepSeek-V4-Pro", {1572997201763, 49779081059, 48852402019, 47925722979}},
    {"MiniMax-M3", {426174572928, 25962473856, 24733280640, 23504087424}},
    {"Kimi-K3", {2779484478208, 105364019968, 104189614848, 103015209728}},
    {"Qwen3.8-Flash-Next", {176943899520, 58507240320, 6671295360, 6035596160}},
    {"RWKV-7-2.9B", {2947735040, 2947735040, 2779962880, 2612190720}},
    {"Falcon-Mamba-7B", {7272665088, 7272665088, 7006326784, 6739988480}},
    {"GLM-5", {743911218432, 41784728832, 40833146112, 39881563392}},
    {"GLM-5.3-Flash", {313326811966, 17376721726, 16742333246, 16107944766}},
};
// clang-format on

CatalogModel MustFind(std::string_view name) {
  Result<CatalogModel> model = FindCatalogModel(name);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(model).value() : CatalogModel{};
}

TEST(Catalog, NamesAreTheTablesInItsOrder) {
  std::vector<std::string_view> expected;
  for (const Expected& e : kExpected) expected.push_back(e.name);
  EXPECT_EQ(CatalogNames(), expected);
}

TEST(Catalog, NamesOfWhatIsCounted) {
  std::set<std::string_view> unique;
  for (const std::string_view name : CountedNames()) {
    EXPECT_TRUE(unique.insert(name).second) << name;
    EXPECT_EQ(MustFind(name).recipe.counted_only.has_value(), !RunsFromCatalog(name)) << name;
  }
  for (const std::string_view name : CatalogNames()) EXPECT_TRUE(unique.contains(name) && RunsFromCatalog(name)) << name;
  for (const Expected& e : kCounted) EXPECT_TRUE(unique.contains(e.name) && !RunsFromCatalog(e.name)) << e.name;
  EXPECT_TRUE(RunsFromCatalog("Llama-2-13B"));
  EXPECT_FALSE(RunsFromCatalog("RWKV-7-0.4B"));  // as its base
}

// What they have beside the usual parts, each computed apart from Tally.
TEST(Catalog, PartsOfWhatIsCounted) {
  const auto sum = [](std::string_view name, std::string_view part) {
    uint64_t n = 0;
    for (const books::ParameterForm& p : books::ParameterForms(MustFind(name).recipe)) {
      const bool of = p.apart() ? part == "prediction" : books::PartName(books::PartOf(p.component, p.expert)) == part;
      n += of ? p.count.value() : 0;
    }
    return n;
  };
  EXPECT_EQ(sum("Qwen3.8-Flash-Next", "n-gram table"), 51'200'245'760u);
  EXPECT_EQ(sum("Qwen3.8-Flash-Next", "prediction"), 2'607'150'848u);
  EXPECT_EQ(sum("GLM-5.3-Flash", "prediction"), 7'432'592'416u);
  EXPECT_EQ(sum("GLM-5", "prediction"), 9'952'920'576u);
  EXPECT_EQ(sum("DeepSeek-V4-Flash", "prediction"), 6'610'048'891u);
  EXPECT_EQ(sum("DeepSeek-V3.2", "indexer"), 61u * (64 * 128 * 1536 + 128 * 7168 + 2 * 128 + 64 * 7168));
  EXPECT_EQ(sum("MiniMax-M3", "indexer"), 57u * (4 * 128 * 6144 + 128 * 6144 + 2 * 128));
  // Two projections of each layer with entries of 4 positions (twice as wide) and of 128, their positions and norms.
  EXPECT_EQ(sum("DeepSeek-V4-Flash", "compressor"),
            21u * (2 * 4096 * 1024 + 4 * 1024 + 512) + 20u * (2 * 4096 * 512 + 128 * 512 + 512));
}

TEST(Catalog, CountsAreExact) {
  std::vector<Expected> all(std::begin(kExpected), std::end(kExpected));
  all.insert(all.end(), std::begin(kCounted), std::end(kCounted));
  for (const Expected& e : all) {
    SCOPED_TRACE(e.name);
    const books::ParameterCounts counts = books::ClosedFormCounts(MustFind(e.name).recipe);
    EXPECT_EQ(counts.total, e.counts.total);
    EXPECT_EQ(counts.active_all, e.counts.active_all);
    EXPECT_EQ(counts.active_head, e.counts.active_head);
    EXPECT_EQ(counts.active_none, e.counts.active_none);
  }
}

// Towers by their configurations: of Gemma 3 the 417M of its report and a projector to the text's width; of Llama 4 what the hub's
// count of Scout (108,641,793,536) has beyond its text model.
TEST(Catalog, PartsThatAreNotRun) {
  const auto parts = [](std::string_view name) {
    std::vector<uint64_t> sizes;
    for (const PartNotRun& p : MustFind(name).parts_not_run) sizes.push_back(p.parameters.value_or(0));
    return sizes;
  };
  EXPECT_EQ(parts("Gemma-3-4B"), (std::vector<uint64_t>{416'866'032, 1152 * 2560 + 1152}));
  EXPECT_EQ(parts("Gemma-3-12B"), (std::vector<uint64_t>{416'866'032, 1152 * 3840 + 1152}));
  EXPECT_EQ(parts("Gemma-3-27B"), (std::vector<uint64_t>{416'866'032, 423'060'336 - 416'866'032}));
  EXPECT_EQ(parts("Llama-4-Scout"), (std::vector<uint64_t>{850'960'896, 4096 * 5120}));
  EXPECT_EQ(107'769'861'120 + 850'960'896 + 4096 * 5120, 108'641'793'536);
  EXPECT_EQ(parts("Qwen3.6-35B-A3B"), std::vector<uint64_t>{446'571'248});
  EXPECT_EQ(parts("Qwen3.5-4B"), std::vector<uint64_t>{0});  // unknown
  // As stored: MoonViT's 27 layers, and the projector from four patches to the text's width.
  EXPECT_EQ(parts("Kimi-K2.5"),
            (std::vector<uint64_t>{589 * 1152 + 4096 * 1152 + 2 * 1152 +
                                       27 * (4 * 1152 * 1152 + 4 * 1152 + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152),
                                   2 * 1152 + 4608 * 4608 + 4608 + 4608 * 7168 + 7168}));
  for (const std::string_view name : CatalogNames()) {
    const bool sees = name == "Gemma-3-4B" || name == "Gemma-3-12B" || name == "Gemma-3-27B" || name == "Llama-4-Scout" ||
                      name == "Mistral-Small-4" || name == "Qwen3.5-4B" || name == "Qwen3.6-35B-A3B" ||
                      name.starts_with("Gemma-4-") || name.starts_with("Qwen3-VL-") || name == "Ministral-3-8B" ||
                      name == "Muse-Glimmer-30B";
    EXPECT_EQ(parts(name).empty(), !sees) << name;
  }
}

// Of a model that sees too, what is counted is its text model, and either name will do.
TEST(Catalog, TextModelsByEitherName) {
  EXPECT_EQ(MustFind("Gemma-3-4B(text)").name, "Gemma-3-4B");
  EXPECT_EQ(MustFind("gemma-3-27b(Text)").name, "Gemma-3-27B");
  EXPECT_FALSE(FindCatalogModel("gpt2(text)x").ok());
}

TEST(Catalog, RecipesAreWhole) {
  for (const std::string_view name : CatalogNames()) {
    SCOPED_TRACE(name);
    const CatalogModel model = MustFind(name);
    const Recipe& r = model.recipe;
    EXPECT_EQ(model.name, name);
    const PublishedClaim& claim = model.claim;
    EXPECT_TRUE(!claim.source.empty() || (claim.total.empty() && claim.active.empty() && claim.non_embedding.empty()));
    EXPECT_FALSE(r.family.empty());
    ASSERT_EQ(r.layers.size(), static_cast<size_t>(r.n_layers));
    const bool attends = AnyLayer(r, &LayerRecipe::attends), recurrent = AnyLayer(r, &LayerRecipe::recurrent);
    EXPECT_TRUE(!attends || r.all.attention.n_heads % r.all.attention.n_kv_heads == 0);
    EXPECT_GT(r.context, 0);
    EXPECT_TRUE(recurrent || (r.learned_positions || r.alibi_bias > 0) == (r.rope.style == RopeStyle::kNone));
    EXPECT_EQ(r.rope.dim > 0, r.rope.style != RopeStyle::kNone);
    EXPECT_EQ(r.rope.dim % 2, 0);
    EXPECT_LE(r.all.experts.top_k, r.all.experts.n_experts);
    for (const LayerRecipe& layer : r.layers) {
      EXPECT_TRUE(!layer.attends() || layer.attention.scale > 0);
      EXPECT_TRUE(layer.attention.rope != LayerRope::kGlobal || r.rope.dim <= layer.attention.head_dim);
      EXPECT_TRUE(recurrent || (!layer.mixers.empty() && !layer.feed_forward.empty()));
      EXPECT_TRUE(layer.feed_forward.empty() || (layer.sparse() ? r.all.experts.width : r.all.ffn.width) > 0);
    }
    EXPECT_EQ(model.expert_type != model.type, r.family == "gpt-oss");
  }
}

TEST(Catalog, WindowsScalesAndTypes) {
  const Recipe oss = MustFind("gpt-oss-20b").recipe;
  for (int i = 0; i < oss.n_layers; ++i) EXPECT_EQ(oss.layers[i].attention.window, i % 2 == 0 ? 128 : 0) << i;
  EXPECT_NEAR(oss.rope.scaling.attention_factor, 1.34657, 1e-5);
  const Recipe gemma = MustFind("Gemma-3-27B").recipe;
  for (int i = 0; i < gemma.n_layers; ++i) EXPECT_EQ(gemma.layers[i].attention.window, i % 6 == 5 ? 0 : 1024) << i;
  EXPECT_FLOAT_EQ(gemma.layers[7].attention.scale, 0.07715167f);  // 1 / sqrt(168)
  EXPECT_EQ(MustFind("Gemma-3-1B").recipe.layers[0].attention.window, 512);
  const Recipe e2b = MustFind("Gemma-4-E2B").recipe;
  EXPECT_EQ(e2b.layers[13].attention.cache_of, -1);
  EXPECT_EQ(e2b.layers[15].attention.cache_of, 13);
  EXPECT_EQ(e2b.layers[34].attention.cache_of, 14);
  EXPECT_EQ(e2b.layers[14].ffn.width, 6144);
  EXPECT_EQ(e2b.layers[15].ffn.width, 12288);
  EXPECT_EQ(e2b.layers[4].attention.head_dim, 512);
  EXPECT_EQ(e2b.rope.turned, 64);
  const Recipe a4b = MustFind("Gemma-4-26B-A4B").recipe;
  for (int i = 0; i < a4b.n_layers; ++i) EXPECT_EQ(a4b.layers[i].attention.v_is_k, i % 6 == 5) << i;
  EXPECT_EQ(a4b.layers[5].attention.n_kv_heads, 2);
  const Recipe v3 = MustFind("DeepSeek-V3").recipe;
  EXPECT_FLOAT_EQ(v3.all.attention.scale, 0.13523377f);  // (0.1 ln 40 + 1)^2 / sqrt(192)
  for (int i = 0; i < v3.n_layers; ++i) EXPECT_EQ(v3.layers[i].sparse(), i >= 3) << i;
  EXPECT_EQ(v3.mtp_layers, 1);
  EXPECT_EQ(MustFind("GLM-4.5-Air").recipe.rope.dim, 64);
  EXPECT_EQ(MustFind("gpt2").type, DType::kF32);
  EXPECT_EQ(MustFind("Qwen3-4B").type, DType::kBF16);
  EXPECT_EQ(MustFind("DeepSeek-V3").expert_type, DType::kBF16);
  EXPECT_EQ(MustFind("Llama-2-7B").type, DType::kF16);
  EXPECT_EQ(MustFind("gpt-oss-120b").expert_type, DType::kMXFP4);
}

TEST(Catalog, PublishedConfigs) {
  EXPECT_NE(PublishedConfig("qwen3-4b").find("\"Qwen3ForCausalLM\""), std::string::npos);
  EXPECT_EQ(PublishedConfig("Gemma-3-4B(text)"), PublishedConfig("Gemma-3-4B"));
  EXPECT_TRUE(PublishedConfig("Qwen3-5B").empty());
  const std::string variant = PublishedConfig("Mistral-7B-v0.3");  // of its base, with what differs
  EXPECT_NE(variant.find("\"sliding_window\":null"), std::string::npos) << variant;
  EXPECT_NE(variant.find("\"vocab_size\":32768"), std::string::npos) << variant;
  EXPECT_NE(variant.find("\"hidden_size\":4096"), std::string::npos) << variant;
}

TEST(Catalog, NamesInAnyCase) {
  EXPECT_EQ(MustFind("GPT-OSS-20B").name, "gpt-oss-20b");
  EXPECT_EQ(MustFind("qwen3-30b-a3b").name, "Qwen3-30B-A3B");
}

// Names as the hub and other programs have them.
TEST(Catalog, Aliases) {
  EXPECT_EQ(CatalogName("llama3.3:70b"), "Llama-3.3-70B");
  EXPECT_EQ(CatalogName("deepseek-r1"), "DeepSeek-R1");
  EXPECT_EQ(CatalogName("DeepSeek-R1:671b"), "DeepSeek-R1");
  EXPECT_EQ(CatalogName("qwen3-next-80b-a3b-INSTRUCT"), "Qwen3-Next-80B-A3B");
  EXPECT_EQ(CatalogName("llama4:maverick"), "Llama-4-Maverick");
  EXPECT_EQ(CatalogName("granite4:small-h"), "Granite-4.0-H-Small");
  EXPECT_EQ(CatalogName("gemma-3-4b-it(text)"), "Gemma-3-4B");
  EXPECT_EQ(CatalogName("qwen3:9b"), "");
  EXPECT_EQ(MustFind("llama3.3").name, "Llama-3.3-70B");
  std::set<std::string> known;  // names and aliases, without marks
  const auto add = [&](std::string name) {
    std::erase_if(name, [](char c) { return c == '-' || c == '.' || c == '_' || c == ':'; });
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_TRUE(known.insert(name).second) << name;
  };
  size_t aliases = 0;
  for (const std::string_view name : CountedNames()) {
    EXPECT_EQ(CatalogName(name), name);
    add(std::string(name));
    for (const std::string_view alias : CatalogAliases(name)) {
      EXPECT_EQ(CatalogName(alias), name) << alias;
      add(std::string(alias));
      ++aliases;
    }
  }
  EXPECT_EQ(aliases, CatalogAliasCount());  // each row names a model
}

// Marks may be others, and missing; between two digits there is one or none, as in the name.
TEST(Catalog, MarksOfNames) {
  const auto spelt = [](std::string_view name, char mark) {  // 0: without marks that no digits need
    std::string text;
    for (size_t i = 0; i < name.size(); ++i) {
      const auto digit = [&](size_t at) { return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0; };
      const bool is_mark = std::string_view("-._:").find(name[i]) != std::string_view::npos;
      if (is_mark && mark == 0 && !(i > 0 && digit(i - 1) && digit(i + 1))) continue;
      text += is_mark && mark != 0 ? mark : name[i];
    }
    return text;
  };
  for (const std::string_view name : CountedNames()) {
    std::vector<std::string_view> names = CatalogAliases(name);
    names.push_back(name);
    for (const std::string_view one : names) {
      for (const char mark : {'-', '.', '_', ':', '\0'}) EXPECT_EQ(CatalogName(spelt(one, mark)), name) << spelt(one, mark);
    }
  }
  for (const char* other : {"opt-13b", "OPT13B", "gemma-31b", "qwen-27b", "qwen3:17b", "llama33:70b", "llama3.370b"}) {
    EXPECT_EQ(CatalogName(other), "") << other;
  }
  EXPECT_EQ(CatalogName("opt1.3b"), "OPT-1.3B");
  EXPECT_EQ(CatalogName("opt_1_3b"), "OPT-1.3B");
  EXPECT_EQ(CatalogName("qwen3:1.7b"), "Qwen3-1.7B");
  EXPECT_NE(FindCatalogModel("opt-13b").status().message().find("OPT-1.3B"), std::string::npos);  // near
}

TEST(Catalog, UnknownNames) {
  const std::pair<std::string, std::string_view> cases[] = {
      {"gpt-oss-21b", "gpt-oss-20b"},        {"gpt3", "gpt2"},
      {"deepseek v3", "DeepSeek-V3"},        {"qwen2.5", "Qwen2.5-7B"},
      {"openai/gpt2-xl", "gpt2-xl"},         {"", "nearest: "},
      {"line\nbreak", "'line\\nbreak'"},     {"gpt2 ", "gpt2"},
      {"Llama-3.1-8B-Chat", "Llama-3.1-8B"}, {std::string(100000, 'x'), "100000"}};
  for (const auto& [name, part] : cases) {
    SCOPED_TRACE(name.substr(0, 40));
    const Result<CatalogModel> model = FindCatalogModel(name);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), StatusCode::kBadInput);
    EXPECT_NE(model.status().message().find(part), std::string::npos) << model.status().message();
    EXPECT_EQ(model.status().message().find('\n'), std::string::npos);
    EXPECT_LT(model.status().message().size(), 400u);
  }
}

}  // namespace
}  // namespace tally
