// SPDX-License-Identifier: Apache-2.0
// Texts of the kinds that tokenizers get wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tally::test {

struct TortureString {
  const char* name;
  std::string text;
};

// Well-formed UTF-8, short.
inline std::vector<TortureString> TortureStrings() {
  using namespace std::string_literals;
  return {
      {"empty", ""},
      {"emoji", "🙂 😀😀😀 a🙂b 🙂🙂"},
      {"skin tones", "👍🏽👍🏿 👋🏻 x👍🏽x"},
      {"families (zero-width joiners)", "👨‍👩‍👧‍👦👩🏽‍💻 🏳️‍🌈 🏴‍☠️"},
      {"flags", "🇩🇪🇫🇷🇯🇵 🇺🇸🇺 🏴󠁧󠁢󠁳󠁣󠁴󠁿"},
      {"keycaps and variation selectors", "1️⃣2️⃣#️⃣ ☎︎☎️ ©️®"},
      {"a joiner alone", "\u200D a\u200D \uFE0F\uFE0F"},
      {"Chinese", "北京大学的学生在学习中文。你好，世界！ 你 好"},
      {"Japanese", "東京は日本の首都です。カタカナとひらがな「」ー々ｱｲｳ"},
      {"Korean, composed and not", "안녕하세요 세계 \u1112\u1161\u11AB\u1100\u1173\u11AF"},
      {"rare Han, beyond the basic plane", "𠮷野家 𪚥𪚥 㐀"},
      {"combining marks",
       "e\u0301 cafe\u0301 Z\u0351\u036B\u0343\u036A\u0302\u036B\u033D\u034F\u0334\u0319\u0324 a\u0315\u0300\u05AE"},
      {"marks without a letter", "\u0301\u0301 \u0301x 1\u0301 .\u0301"},
      {"composed and decomposed", "é e\u0301 Å A\u030A Å ﬁ ½ Ⅷ ①"},
      {"Hebrew with points", "שָׁלוֹם עוֹלָם! abc שלום 123"},
      {"Arabic", "مرحبا بالعالم، كيف حالك؟ ١٢٣٤ ـــ"},
      {"direction marks", "\u200Fabc\u200E \u202Eevil\u202C \u2067x\u2069"},
      {"Indic", "नमस्ते दुनिया क्षत्रिय தமிழ் বাংলা ไทย ພາສາ မြန်မာ"},
      {"letters of other scripts", "Привет мир ΑΒΓ αβγς Հայերեն ქართული 𐐷𐐰 ᏣᎳᎩ 𝕳𝖊𝖑𝖑𝖔"},
      {"letters between cases", "ǅ ǈ ʰʱ ß ẞ İ ı ſ 'ſ 'S 'ſx K"},
      {"contractions", "I'm you're HE'LL we'D ain't 'tis 's'S 'LLama o'clock''s '"},
      {"contractions with other quotes", "I’m you’re ‘s ＇s"},
      {"long digit runs", "1 12 123 1234 12345 123456789012345678901234567890 3.14159 1,000,000 0x1F ٣٤٥٦٧ ½¾ 1a2b3c"},
      {"spaces", "   a  b   c    "},
      {"white space of every kind",
       " \t\n\v\f\r\x1C\x1F\u0085\u00A0\u1680\u180E\u2000\u2009\u200B\u2028\u2029\u202F\u205F\u3000\uFEFF x"},
      {"newlines", "\n\n\na\r\n\r\nb\n \n  \n\tc\r\r\n"},
      {"newlines and spaces", "a \n b\n  c   \n\n   d \r\n \t e"},
      {"tabs", "\t\tif (x) {\n\t\t\treturn  1;\n\t\t}\n"},
      {"trailing spaces", "end   "},
      {"punctuation runs", "...!!!?? ?---===***///\\\\\\ <<<>>> ``` ~~~ $$$ +++ a//b \n//\n"},
      {"code", "for (int i = 0; i < 10; ++i) { x[i] += y->z; }  // done\n#include <a>\n"},
      {"addresses", "https://example.com/a?b=c&d=%20#e user@host.org /usr/lib/x86_64"},
      {"markup", "<b>x</b><br/><|x|> [INST] <<SYS>> </s ><s ></ s>"},
      {"camel case", "HTTPServerError parseXMLDoc iPhone McDonald ABCdefGHI AbÉéÀ"},
      {"NUL bytes", "a\0b\0\0 \0c\0"s},
      {"control characters", "\x01\x02\x07\x1B[31mred\x1B[0m\x7F\u0080\u009F"},
      {"byte order marks", "\uFEFFa\uFEFF"},
      {"the last of each plane", "\uFFFD\uFFFE\uFFFF\U0001FFFE\U0010FFFF \uE000\U000F0000"},
      {"one of each length", "aé中🙂a🙂中éa"},
      {"a word of 300 letters", std::string(300, 'a') + " " + std::string(299, 'Z')},
      {"a run of 200 emoji",
       [] {
         std::string text;
         for (int i = 0; i < 200; ++i) text += "🙂";
         return text;
       }()},
      {"300 spaces", std::string(300, ' ') + "x" + std::string(130, '\n') + std::string(130, '\t')},
  };
}

// Texts that spell special tokens of published vocabularies.
inline std::vector<std::string> SpelledSpecials() {
  return {"<|endoftext|>",
          "a<|endoftext|>b",
          "<|endofprompt|> <|fim_prefix|>",
          "<|start|>user<|message|>hi<|end|>",
          "<s>",
          "</s> <s>x</s>",
          "<unk>",
          "<|begin_of_text|><|eot_id|>",
          "<|endoftext|",
          "<<|endoftext|>>",
          " <s> <0x41> </s"};
}

// Ill-formed UTF-8 and what it reads as: one U+FFFD for each maximal subpart (Unicode 15, section 3.9; Rust's from_utf8_lossy,
// JavaScript's TextDecoder).
inline std::vector<std::pair<std::string, std::string>> IllFormed() {
  using namespace std::string_literals;
  const std::string r = "\uFFFD";
  return {{"\x80", r},
          {"a\xFFz", "a" + r + "z"},
          {"\xFE\xFE\xFF\xFF", r + r + r + r},
          {"\xC3", r},  // a character cut off
          {"\xE4\xB8", r},
          {"\xF0\x9F\x99", r},
          {"\xF0\x9F\x99 x", r + " x"},
          {"\xF0\x9F\x99\xF0\x9F\x99\x82", r + "🙂"},
          {"\xC0\x80\xC1\xBF", r + r + r + r},  // overlong
          {"\xE0\x80\x80", r + r + r},
          {"\xF0\x80\x80\x80", r + r + r + r},
          {"\xED\xA0\x80\xED\xB0\x80", r + r + r + r + r + r},            // surrogates
          {"\xF4\x90\x80\x80\xF5\x80", r + r + r + r + r + r},            // beyond U+10FFFF
          {"\xF8\x88\x80\x80\x80", r + r + r + r + r},                    // five bytes
          {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},  // the example of the standard's table 3-8
          {"\0\xFF\0"s, "\0"s + r + "\0"s},
          {"hello \xC3\x28 w\xC3\xB6rld\xE2\x82", "hello " + r + "( wörld" + r},
          {"\xEF\xBF\xBD\xEF\xBF", r + r}};
}

}  // namespace tally::test
