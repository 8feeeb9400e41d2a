// SPDX-License-Identifier: Apache-2.0
// tally inspect: what a checkpoint holds.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/recipe/recipe.h"
#include "engine/render/words.h"
#include "engine/reports/part_names.h"

namespace tally::app {
namespace {

constexpr size_t kShownCharacters = 100, kCharactersOfElement = 12;  // of a value, unless the terminal has less room

struct InspectFlags {
  std::string model = "demo";
  bool full = false, json = false;
};

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <class T>
std::string ScalarText(const T& x, size_t most) {
  if constexpr (std::is_same_v<T, bool>) {
    return x ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    return std::isnan(x) ? "NaN" : std::isinf(x) ? (x > 0 ? "Infinity" : "-Infinity") : JsonText(x);
  } else if constexpr (std::is_same_v<T, std::string>) {
    size_t n = std::min(x.size(), most);
    while (n < x.size() && n > 0 && (static_cast<unsigned char>(x[n]) & 0xc0) == 0x80) --n;  // whole characters
    const std::string more = n < x.size() ? "... (" + std::to_string(x.size()) + " bytes)" : "";
    return "\"" + Printable(std::string_view(x).substr(0, n)) + "\"" + more;
  } else {
    return JsonText(x);
  }
}

// At most about `most` characters of it.
std::string ValueText(const MetaValue& value, size_t most) {
  return std::visit(
      [&](const auto& x) -> std::string {
        using T = std::decay_t<decltype(x)>;
        if constexpr (kIsVector<T>) {
          const size_t shown = std::min(x.size(), std::max<size_t>(1, most / kCharactersOfElement));
          std::string out = "[";
          for (size_t i = 0; i < shown; ++i) {
            out += (i > 0 ? ", " : "") + ScalarText<typename T::value_type>(x[i], most);
          }
          return out + (shown < x.size() ? ", ... (" + std::to_string(x.size()) + " elements)]" : "]");
        } else {
          return ScalarText<T>(x, most);
        }
      },
      value);
}

Json ValueJson(const MetaValue& value, bool full) {
  return std::visit(
      [&](const auto& x) -> Json {
        using T = std::decay_t<decltype(x)>;
        if constexpr (kIsVector<T>) {
          const size_t shown = full ? x.size() : std::min(x.size(), kShownCharacters / kCharactersOfElement);
          Json first = Json::Array();
          for (size_t i = 0; i < shown; ++i) first.Add(static_cast<typename T::value_type>(x[i]));
          if (shown == x.size()) return first;
          return {{"elements", x.size()}, {"first", first}};
        } else {
          return x;
        }
      },
      value);
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

std::string Pad(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string HeadsText(const LayerRecipe& l) {
  const Attention& s = l.attention;
  std::string out = std::to_string(s.n_heads) + " heads of " + std::to_string(s.head_dim);
  if (s.n_kv_heads != s.n_heads) out += " (" + std::to_string(s.n_kv_heads) + " for keys and values)";
  return out;
}

std::string DeltaText(const DeltaRule& d) {
  return "a gated delta rule, " + std::to_string(d.value_heads) + " states of " + std::to_string(d.key_dim) + " x " +
         std::to_string(d.value_dim);
}

std::string MambaText(const Mamba2& m) {
  return "Mamba-2, " + std::to_string(m.heads) + " states of " + std::to_string(m.state_dim) + " x " + std::to_string(m.head_dim);
}

// The different texts of the layers that have what is described, in their order.
template <class Has, class Text>
std::string OfLayers(const Recipe& r, const Has& has, const Text& text) {
  std::vector<std::string> kinds;
  for (const LayerRecipe& l : r.layers) {
    std::string kind = text(l);
    if (std::invoke(has, l) && std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  return Join(kinds, " or ");
}

std::string RecipeText(const Recipe& r) {
  std::string out = r.family + ": " + std::to_string(r.n_layers) + " layers";
  for (const auto& [mixer, name] :
       {std::pair{Mixer::kShortConv, "a short convolution of " + std::to_string(r.all.conv.taps) + " positions"},
        std::pair{Mixer::kDeltaRule, DeltaText(r.all.delta)}, std::pair{Mixer::kMamba2, MambaText(r.all.mamba)}}) {
    const auto has = [mixer = mixer](const LayerRecipe& l) { return l.mixers.has(mixer); };
    if (const auto n = std::ranges::count_if(r.layers, has); n > 0) out += " (" + std::to_string(n) + " with " + name + ")";
  }
  out += ", width " + std::to_string(r.d_model);
  if (AnyLayer(r, &LayerRecipe::attends)) out += ", " + OfLayers(r, &LayerRecipe::attends, HeadsText);
  if (const Experts& x = r.all.experts; x.n_experts > 0) {
    out += ", " + std::to_string(x.n_experts) + " experts of " + std::to_string(x.width) + ", " + std::to_string(x.top_k) +
           " active";
  } else if (AnyLayer(r, &LayerRecipe::dense)) {
    out += ", feed-forward " + OfLayers(r, &LayerRecipe::dense, [](const LayerRecipe& l) { return std::to_string(l.ffn.width); });
  }
  return out + ", vocabulary " + std::to_string(r.vocab) + ", context " + std::to_string(r.context);
}

// "packed, 13.1 GB: layout 1 for panel16"
std::string PackedText(const PackedHeader& h) {
  std::string text =
      "packed, " + BytesText(h.file.size) + ": layout " + std::to_string(h.layout_version) + " for " + Printable(h.family);
  if (h.ranks > 1) text += ", the part of process " + std::to_string(h.rank + 1) + " of " + std::to_string(h.ranks);
  return text + ", " + std::to_string(h.weights.size()) + " weights";
}

Json PackedJson(const PackedHeader& h) {
  const Json sources = Json::ListOf(h.sources, [](const InventoryFile& f) -> Json {
    return {{"name", f.path}, {"bytes", f.size}};
  });
  return {{"bytes", h.file.size}, {"data_bytes", h.data_bytes}, {"layout", h.layout_version},  {"target", h.family},
          {"rank", h.rank},       {"ranks", h.ranks},           {"weights", h.weights.size()}, {"sources", sources}};
}

void PrintText(const Inspection& x, const InspectFlags& flags) {
  const Inventory& inv = x.inventory;
  uint64_t size = 0;
  for (const InventoryFile& f : inv.files) size += f.size;
  Print(Printable(inv.path) + "\n");
  if (inv.packed != nullptr) {
    std::string names;
    for (const InventoryFile& f : inv.packed->sources) names += (names.empty() ? "" : ", ") + Printable(f.path);
    Print(Paragraph("", PackedText(*inv.packed) + "; packed from " + names + ":", OutputWidth(0), 0));
  }
  Print(std::string(inv.format == FileFormat::kGguf ? "GGUF" : "Hugging Face") + ", " + std::to_string(inv.files.size()) +
        (inv.files.size() == 1 ? " file, " : " files, ") + BytesText(size) + "\n");
  if (x.recipe->n_layers > 0) Print(Paragraph("", RecipeText(x.recipe), OutputWidth(0), 0));
  if (!x.runnable.ok()) Print("cannot be run: " + Printable(x.runnable.message()) + "\n");
  for (const std::string& note : x.notes) Print(Paragraph("", "note: " + Printable(note), OutputWidth(0), 0));

  Print("\nmetadata (" + std::to_string(inv.metadata.values().size()) + ")\n");
  size_t width = 0;
  for (const auto& [key, value] : inv.metadata.values()) width = std::max(width, std::min<size_t>(Printable(key).size(), 48));
  for (const auto& [key, value] : inv.metadata.values()) {
    const size_t columns = OutputWidth(0), room = std::max<size_t>(columns, width + 24) - width - 4;
    size_t most = flags.full ? std::numeric_limits<size_t>::max() : kShownCharacters;
    std::string text = ValueText(value, most);
    for (; columns > 0 && !flags.full && TextWidth(text) > room && most > 0; text = ValueText(value, most)) --most;
    Print("  " + Pad(Printable(key), width) + "  " + text + "\n");
  }

  Print("\ntensors (" + std::to_string(inv.tensors.size()) + ")" +
        (inv.name_prefix.empty() ? "" : ", all names without their " + inv.name_prefix) + "\n");
  width = 0;
  for (const StoredTensor& t : inv.tensors) width = std::max(width, std::min<size_t>(Printable(t.name).size(), 60));
  for (const StoredTensor& t : inv.tensors) {
    Print("  " + Pad(Printable(t.name), width) + "  " + Pad(Printable(t.type_name()), 7) + " " + Pad(ShapeText(t.shape), 22) +
          " " + books::WithThousands(t.bytes) + "\n");
  }
  Print("\ntotal: " + std::to_string(inv.tensors.size()) + " tensors, " + books::WithThousands(x.elements) + " elements, " +
        books::WithThousands(x.bytes) + " bytes (" + BytesText(x.bytes) + ")\n");
  Print(NotRunText(x.not_run));
  if (!x.not_run.head.empty()) {
    Print(Printable(x.not_run.head) + " is stored beside the embedding that it is tied to: " +
          books::WithThousands(x.parameters.total + x.not_run.head_parameters) + " parameters as stored, " +
          books::WithThousands(x.parameters.total) + " with both as one\n");
  }
  for (const auto& t : x.types) {
    Print("  " + Pad(Printable(t.type), 7) + " " + std::to_string(t.tensors) + " tensors, " + books::WithThousands(t.elements) +
          " elements, " + books::WithThousands(t.bytes) + " bytes\n");
  }
}

Json Document(const Inspection& x, const InspectFlags& flags) {
  const Inventory& inv = x.inventory;
  Json metadata = Json::Object();
  for (const auto& [key, value] : inv.metadata.values()) metadata[key] = ValueJson(value, flags.full);
  Json document = {{"model", flags.model},
                   {"format", inv.format == FileFormat::kGguf ? "gguf" : "huggingface"},
                   {"family", x.recipe->n_layers > 0 ? Json(x.recipe->family) : Json(nullptr)}};
  if (inv.packed != nullptr) document["packed"] = PackedJson(*inv.packed);
  if (!x.runnable.ok()) document["cannot_be_run"] = x.runnable.message();
  if (!x.notes.empty()) document["notes"] = x.notes;
  document["files"] = Json::ListOf(inv.files, [](const InventoryFile& f) -> Json {
    return {{"path", f.path}, {"bytes", f.size}};
  });
  document["metadata"] = metadata;
  if (!inv.name_prefix.empty()) document["name_prefix"] = inv.name_prefix;
  document["tensors"] = Json::ListOf(inv.tensors, [](const StoredTensor& t) -> Json {
    return {{"name", t.name},   {"type", t.type_name()}, {"shape", t.shape},  {"elements", t.elements()},
            {"bytes", t.bytes}, {"file", t.file},        {"offset", t.offset}};
  });
  const Json types = Json::ListOf(x.types, [](const auto& t) -> Json {
    return {{"type", t.type}, {"tensors", t.tensors}, {"elements", t.elements}, {"bytes", t.bytes}};
  });
  document["totals"] = {{"tensors", inv.tensors.size()}, {"elements", x.elements}, {"bytes", x.bytes}, {"by_type", types}};
  if (!x.recipe->family.empty()) {
    document["parameters"] = {{"total", x.parameters.total}, {"total_as_stored", x.parameters.total + x.not_run.head_parameters}};
    document["not_run"] = NotRunJson(x.not_run);
  }
  return document;
}

Status RunInspect(const InspectFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model));
  TALLY_ASSIGN_OR_RETURN(const Inspection inspection, InspectCheckpoint(path));
  if (flags.json) {
    PrintJson(Document(inspection, flags));
  } else {
    PrintText(inspection, flags);
  }
  return {};
}

}  // namespace

Action AddInspect(Command& app) {
  auto flags = std::make_shared<InspectFlags>();
  Command c = app.Add("inspect", "What a checkpoint holds: metadata, tensors, totals");
  AddModel(c, flags->model);
  c.Flag("--full", flags->full, "long strings and arrays in full");
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(c, {"tally inspect", "tally inspect demo --json"});
  return [flags] { return Report(RunInspect(*flags)); };
}

}  // namespace tally::app
