// SPDX-License-Identifier: Apache-2.0
// Tokenizers from hand-made tokenizer.json files: what each component does, and that what is not supported
// says so.
#include "engine/text/bpe.h"
#include "tests/text/json_spec.h"

namespace tally {
namespace {

using test::Encode;
using test::Error;
using test::Folder;
using test::Ids;
using test::Make;
using test::Spec;

Ids EncodeWith(const Spec& spec, std::string_view text) { return Encode(*Make(spec), text); }

TEST(JsonTokenizer, Merges) {
  Spec spec;
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{3, 2}));
  EXPECT_EQ(EncodeWith(spec, "bcab"), (Ids{7, 3}));
  EXPECT_EQ(EncodeWith(spec, "_ab"), (Ids{4, 3}));
  spec.merges = R"([["a","b"],["_","a"],["b","c"]])";  // the newer spelling
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{3, 2}));
  spec.merges = R"(["b c","a b"])";
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{0, 7}));
  spec.merges = R"(["b c","a b","b c"])";  // of equal merges the later counts
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{3, 2}));
}

TEST(JsonTokenizer, UnknownCharacters) {
  Spec spec;
  EXPECT_EQ(EncodeWith(spec, "axxb"), (Ids{0, 6, 6, 1}));
  spec.model = R"("unk_token":"<u>","fuse_unk":true)";
  EXPECT_EQ(EncodeWith(spec, "axxbx"), (Ids{0, 6, 1, 6}));
  spec.vocab = R"({"a":0,"b":1,"?":2})";  // the unknown token itself is no unknown character
  spec.merges = "[]";
  spec.model = R"("unk_token":"?","fuse_unk":true)";
  EXPECT_EQ(EncodeWith(spec, "a?zzb??z"), (Ids{0, 2, 2, 1, 2, 2, 2}));
  EXPECT_EQ(*Make(spec)->Encode(std::string(10'000, 'z'), {.add_special = false, .most_ids = 1}), (Ids{2})) << "however long";
  spec = Spec();
  spec.model = "";
  const auto strict = Make(spec)->Encode("ax");
  ASSERT_FALSE(strict.ok());
  EXPECT_NE(strict.status().message().find("78"), std::string::npos);
  spec.vocab = R"({"a":0,"<0xC3>":1,"<0xA9>":2,"<u>":3})";
  spec.merges = "[]";
  spec.model = R"("unk_token":"<u>","byte_fallback":true)";
  spec.decoder = R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]})";
  EXPECT_EQ(EncodeWith(spec, "a\xC3\xA9\xC3\xAA"), (Ids{0, 1, 2, 3}));  // U+00EA lacks a byte
  EXPECT_EQ(Make(spec)->Decode(Ids{0, 1, 2}), "a\xC3\xA9");
  spec.vocab = R"({"a":0,"<0xc3>":1,"<0xa9>":2,"<u>":3})";  // decoders read these, models do not look for them
  EXPECT_EQ(Make(spec)->Decode(Ids{0, 1, 2}), "a\xC3\xA9");
  EXPECT_EQ(EncodeWith(spec, "a\xC3\xA9"), (Ids{0, 3}));
}

TEST(JsonTokenizer, IgnoreMerges) {
  Spec spec;
  spec.vocab = R"({"a":0,"b":1,"c":2,"ab":3,"abc":4})";
  spec.merges = R"(["a b"])";
  spec.model = "";
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{3, 2}));
  spec.model = R"("ignore_merges":true)";
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{4}));
}

TEST(JsonTokenizer, LlamaStyle) {
  Spec spec;
  spec.normalizer = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"_"},
      {"type":"Replace","pattern":{"String":" "},"content":"_"}]})";
  spec.decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},
      {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  spec.added =
      R"([{"id":6,"content":"<u>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
      {"id":8,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}])";
  spec.post =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
      "pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[8],"tokens":["<s>"]}}})";
  const auto t = Make(spec);
  EXPECT_EQ(Encode(*t, "a bc", {true, false}), (Ids{8, 5, 4, 7}));
  EXPECT_EQ(Encode(*t, "<s>a<s>", {false, true}), (Ids{8, 5, 8}));
  EXPECT_EQ(Encode(*t, "<s>"), (Ids{4, 6, 6, 6}));
  EXPECT_EQ(t->Decode(Ids{8, 5, 4, 7}), "a bc");
  EXPECT_EQ(t->bos(), 8);
  EXPECT_TRUE(t->DropsLeadingSpace());
  EXPECT_TRUE(t->IsControl(8));
  EXPECT_EQ(t->vocab_size(), 9);
}

TEST(JsonTokenizer, Metaspace) {
  Spec spec;
  spec.pre = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":true})";
  spec.decoder = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":true})";
  EXPECT_EQ(EncodeWith(spec, "a ab"), (Ids{5, 4, 3}));
  EXPECT_EQ(Make(spec)->Decode(Ids{5, 4, 3}), "a ab");
  // Of the first token all of them are dropped, of others none.
  spec.vocab = R"({"a":0,"b":1,"c":2,"__":3,"_":4,"_a":5,"<u>":6,"a_b":7})";
  spec.merges = "[]";
  EXPECT_EQ(Make(spec)->Decode(Ids{3, 0, 3}), "a  ");
  EXPECT_EQ(Make(spec)->Decode(Ids{7, 7}), "aba b");
  EXPECT_EQ(Make(spec)->FirstTokenBytes(3), "");
  EXPECT_EQ(Make(spec)->TokenBytes(3), "  ");
  spec = Spec();
  spec.pre = spec.decoder = R"({"type":"Metaspace","replacement":"_","add_prefix_space":false})";
  EXPECT_EQ(EncodeWith(spec, "a a"), (Ids{0, 5}));
  EXPECT_EQ(Make(spec)->Decode(Ids{5, 5}), " a a");
}

TEST(JsonTokenizer, SplitDigitsPunctuation) {
  Spec spec;
  spec.pre = R"({"type":"Split","pattern":{"String":"b"},"behavior":"Isolated","invert":false})";
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{0, 1, 2}));
  spec.pre = R"({"type":"Split","pattern":{"Regex":"b+"},"behavior":"Removed","invert":false})";
  EXPECT_EQ(EncodeWith(spec, "abbc"), (Ids{0, 2}));
  spec.pre = R"({"type":"Split","pattern":{"Regex":"b+"},"behavior":"MergedWithPrevious"})";
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{3, 2}));
  spec.pre = R"({"type":"Split","pattern":{"Regex":"b+"},"behavior":"MergedWithNext"})";
  EXPECT_EQ(EncodeWith(spec, "abc"), (Ids{0, 7}));
  spec.pre = R"({"type":"Punctuation","behavior":"Isolated"})";
  EXPECT_EQ(EncodeWith(spec, "_ab"), (Ids{4, 3}));
  spec.pre = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"Punctuation"}]})";
  EXPECT_EQ(EncodeWith(spec, "ab_a1"), (Ids{3, 4, 0, 6}));
}

TEST(JsonTokenizer, ByteLevel) {
  Spec spec;
  spec.vocab = "{";
  for (int b = 0; b < 256; ++b) {
    const std::string c = AlphabetOfBytes(std::string(1, static_cast<char>(b)));
    spec.vocab += "\"" + std::string(c == "\"" || c == "\\" ? "\\" : "") + c + "\":" + std::to_string(b) + ",";
  }
  spec.vocab +=
      "\"\xC4\xA0"
      "a\":256}";
  spec.merges = "[\"\xC4\xA0 a\"]";
  spec.model = "";
  spec.pre = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  spec.post = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false})";
  spec.decoder = R"({"type":"ByteLevel"})";
  spec.added =
      R"([{"id":257,"content":"<e>","single_word":false,"lstrip":true,"rstrip":false,"normalized":false,"special":true},
      {"id":258,"content":"  ","single_word":false,"lstrip":false,"rstrip":false,"normalized":true,"special":false},
      {"id":259,"content":"\u00f5\u00f5","single_word":false,"lstrip":false,"rstrip":true,"normalized":true,"special":false}])";
  const auto t = Make(spec);
  EXPECT_EQ(Encode(*t, "a a\xC3\xA9"), (Ids{'a', 256, 0xC3, 0xA9}));
  EXPECT_EQ(Encode(*t, std::string("\0", 1)), (Ids{0}));
  EXPECT_EQ(Encode(*t, "a   b"), (Ids{'a', 258, ' ', 'b'}));
  EXPECT_EQ(Encode(*t, "a \t<e>b", {false, true}), (Ids{'a', 257, 'b'}));
  EXPECT_EQ(Encode(*t, "<e>"), (Ids{'<', 'e', '>'}));
  EXPECT_EQ(Encode(*t, "\xC3\xB5\xC3\xB5 \n b"), (Ids{259, 'b'}));
  EXPECT_EQ(t->Decode(Ids{256, 257, 258, 259}), " a  \xC3\xB5\xC3\xB5");
  spec.pre = R"({"type":"ByteLevel","add_prefix_space":true})";
  EXPECT_EQ(EncodeWith(spec, "a"), (Ids{256}));
  spec.pre =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\s"},"behavior":"Isolated"},
      {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  EXPECT_EQ(EncodeWith(spec, "a a"), (Ids{'a', ' ', 'a'}));
  // Falcon's steps after ByteLevel cut text in the byte alphabet, in which the byte B9 is a superscript one.
  spec.vocab.pop_back();
  spec.vocab += R"(,"\u0120a1":257,"\u00d0\u00b9":258,"\u00d0\u00b8":259,"12":260,"123":261,"a1":262})";
  spec.merges = R"(["\u0120 a","\u0120a 1","\u00d0 \u00b9","\u00d0 \u00b8","1 2","12 3","a 1"])";
  spec.added = "[]";
  const std::string steps = R"({"type":"Punctuation","behavior":"Contiguous"},{"type":"ByteLevel","add_prefix_space":false},)"
                            R"({"type":"Digits","individual_digits":false},)"
                            R"({"type":"Split","pattern":{"Regex":"[0-9][0-9][0-9]"},"behavior":"Isolated","invert":false})";
  spec.pre = R"({"type":"Sequence","pretokenizers":[)" + steps + "]}";
  EXPECT_EQ(EncodeWith(spec, " a1 12312"), (Ids{256, '1', ' ', 261, 260}));
  EXPECT_EQ(EncodeWith(spec, "\xD0\xB9\xD0\xB8!!"), (Ids{0xD0, 0xB9, 259, '!', '!'}));
}

TEST(JsonTokenizer, NormalizedAddedTokens) {
  Spec spec;
  spec.normalizer = R"({"type":"Lowercase"})";
  spec.added =
      R"([{"id":8,"content":"XY","normalized":true,"special":false},{"id":9,"content":"ZZ","normalized":false,"special":false}])";
  const auto t = Make(spec);
  EXPECT_EQ(Encode(*t, "aXyBzzZZ"), (Ids{0, 8, 1, 6, 6, 9}));
  spec.normalizer = R"({"type":"NFC"})";
  spec.vocab = R"({"<u>":0,"\u00e9":1})";
  spec.merges = "[]";
  spec.added = "[]";
  EXPECT_EQ(EncodeWith(spec, "e\xCC\x81"), (Ids{1}));
}

TEST(JsonTokenizer, Config) {
  Spec spec;
  spec.added =
      R"([{"id":8,"content":"<s>","normalized":false,"special":true},{"id":9,"content":"</s>","normalized":false,"special":true},
      {"id":10,"content":"<|im_end|>","normalized":false,"special":true}])";
  auto t = Make(spec, R"({"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false}})");
  EXPECT_EQ(t->bos(), 8);
  EXPECT_EQ(t->eos(), (std::vector<int32_t>{9, 10}));
  EXPECT_EQ(Encode(*t, "a", {true, false}), (Ids{0}));  // the template is the file's
  t = Make(spec, R"({"bos_token":"<s>","eos_token":"</s>","tokenizer_class":"LlamaTokenizerFast","add_eos_token":true})");
  EXPECT_EQ(Encode(*t, "a", {true, false}), (Ids{8, 0, 9}));
  t = Make(spec);
  EXPECT_EQ(t->bos(), -1);
  EXPECT_NE(Error(spec.Text(), R"({"bos_token":"<none>"})").find("bos_token: '<none>' is not in"), std::string::npos);
  EXPECT_NE(Error(spec.Text(), "{").find("tokenizer_config.json"), std::string::npos);
}

TEST(JsonTokenizer, InventoryAddsItsEnds) {
  const Folder folder;
  Inventory inventory;
  inventory.format = FileFormat::kHuggingFace;
  EXPECT_EQ(*TokenizerFor(inventory), nullptr);
  inventory.tokenizer_json = folder.Write("tokenizer.json", Spec().Text());
  inventory.metadata.Set("generation_config.eos_token_id", std::vector<int64_t>{2, 3, 99});
  inventory.metadata.Set("eos_token_id", int64_t{3});
  const auto t = TokenizerFor(inventory);
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ((*t)->eos(), (std::vector<int32_t>{2, 3}));
}

TEST(JsonTokenizer, WhatIsNotSupportedIsNamed) {
  const auto expect = [](const Spec& spec, const std::string& part) {
    const std::string error = Error(spec.Text());
    EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' has no '" << part << "'";
  };
  const auto with = [](std::string Spec::*member, const char* value) {
    Spec spec;
    spec.*member = value;
    return spec;
  };
  EXPECT_EQ(Error(Spec().Text()), "");
  expect(with(&Spec::normalizer, R"({"type":"StripAccents"})"), "normalizer: type 'StripAccents' is not supported");
  expect(with(&Spec::normalizer, R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Precompiled"}]})"),
         "normalizer.normalizers[1]: type 'Precompiled' is not supported");
  expect(with(&Spec::pre, R"({"type":"BertPreTokenizer"})"), "pre_tokenizer: type 'BertPreTokenizer'");
  expect(with(&Spec::pre, R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Metaspace","replacement":"_"}]})"),
         "type 'Metaspace' after ByteLevel is not supported");
  expect(with(&Spec::pre, R"({"type":"Split","pattern":{"Regex":"["},"behavior":"Isolated"})"),
         "regular expression with '[' at byte 0 is not supported");
  expect(with(&Spec::pre, R"({"type":"Split","pattern":{"Regex":"x"},"behavior":"Gone"})"), "behavior");
  expect(with(&Spec::pre, R"({"type":"Split","pattern":"x","behavior":"Removed"})"), "pattern");
  expect(with(&Spec::post, R"({"type":"BertProcessing"})"), "post_processor: type 'BertProcessing'");
  expect(with(&Spec::post, R"({"type":"TemplateProcessing","single":[]})"), "expected sequence A");
  expect(with(&Spec::decoder, "null"), "decoder: null");
  expect(with(&Spec::decoder, R"({"type":"WordPiece"})"), "decoder: type 'WordPiece'");
  expect(with(&Spec::decoder, R"({"type":"Strip","content":" ","start":1,"stop":0})"), "Strip");
  expect(with(&Spec::model, R"("dropout":0.1)"), "dropout");
  expect(with(&Spec::model, R"("end_of_word_suffix":"</w>")"), "end_of_word_suffix");
  expect(with(&Spec::model, R"("unk_token":"<none>")"), "'<none>' is not in the vocabulary");
  expect(with(&Spec::model, R"("byte_fallback":3)"), "byte_fallback: expected true or false");
  expect(with(&Spec::merges, R"(["a b","a z"])"), "merge 1 ('a' 'z') needs the token 'z'");
  expect(with(&Spec::merges, R"(["a b",["a"]])"), "merges[1]");
  expect(with(&Spec::merges, R"([""])"), "merges[0]");
  expect(with(&Spec::vocab, R"({"a":-1})"), "vocab['a']: expected a token id");
  expect(with(&Spec::vocab, R"({"a":99999999999999999999})"), "expected a token id");
  expect(with(&Spec::vocab, R"({"a":4000000000})"), "expected a token id");
  expect(with(&Spec::vocab, R"({"a":0,"b":0})"), "id 0 is given to 'a' and to 'b'");
  expect(with(&Spec::vocab, "[]"), "vocab: expected an object");
  expect(with(&Spec::added, R"([{"id":0,"content":"x"}])"), "id 0 belongs to 'a'");
  expect(with(&Spec::added, R"([{"id":9,"content":"x","single_word":true}])"), "single_word");
  expect(with(&Spec::added, R"([{"id":9,"content":"a"}])"), "'a' has id 0 in the vocabulary");
  expect(with(&Spec::added, R"([3])"), "added_tokens[0].id");
  std::string deep = R"({"type":"NFC"})";
  for (int i = 0; i < 20; ++i) deep = R"({"type":"Sequence","normalizers":[)" + deep + "]}";
  expect(with(&Spec::normalizer, deep.c_str()), "nested too deep");
  std::string model = Spec().Text();
  model.replace(model.find("\"BPE\""), 5, "\"Unigram\"");
  EXPECT_NE(Error(model).find("model: type 'Unigram' is not supported (SentencePiece's"), std::string::npos);
  const std::string older = R"({"model":{"vocab":{"a":0},"continuing_subword_prefix":"##"}})";  // without types
  EXPECT_NE(Error(older).find("model: type 'WordPiece' is not supported (BERT's): BPE is. Token ids"), std::string::npos);
  EXPECT_NE(Error(R"({"model":{"vocab":[["a",0]]}})").find("'Unigram'"), std::string::npos);
  EXPECT_NE(Error("[]"), "");
  EXPECT_NE(Error("{"), "");
  EXPECT_NE(Error(""), "");
  EXPECT_NE(Error(std::string(1 << 16, '[')), "");
  EXPECT_NE(Error("{}").find("model: expected an object"), std::string::npos);
  EXPECT_FALSE(TokenizerFromJson("/nonexistent/tokenizer.json").ok());
}

// Every file that differs from a good one in one byte either loads, and then encodes, or gives one line.
TEST(JsonTokenizer, DamagedFiles) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Spec spec;
  spec.normalizer =
      R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"Regex":" "},"content":"_"}]})";
  spec.pre =
      R"x({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+(?!\\S)"},"behavior":"Isolated","invert":false}]})x";
  spec.added = R"([{"id":8,"content":"<s>","lstrip":true,"rstrip":true,"normalized":true,"special":true}])";
  spec.post =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[8]}}})";
  const std::string good = spec.Text();
  ASSERT_EQ(Error(good), "");
  const Folder folder;
  for (int round = 0; round < 400; ++round) {
    std::string text = good;
    text[random() % text.size()] = static_cast<char>(random() % 3 == 0 ? random() % 256 : "0123456789{}[]\",:\\"[random() % 18]);
    const auto made = TokenizerFromJson(folder.Write("tokenizer.json", text));
    if (!made.ok()) {
      ASSERT_EQ(made.status().message().find('\n'), std::string::npos) << text;
      continue;
    }
    const auto ids = (*made)->Encode("a b<s> \xC3\xA9", {true, true});
    if (ids.ok()) (void)(*made)->Decode(*ids);
  }
}

}  // namespace
}  // namespace tally
