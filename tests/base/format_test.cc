// SPDX-License-Identifier: Apache-2.0
#include "engine/base/format.h"

#include <gtest/gtest.h>

#include "engine/base/utf8_check.h"

namespace tally {
namespace {

TEST(CheckUtf8, NamesPlaceAndByte) {
  const auto message = [](std::string_view text) { return CheckUtf8(text, "f\n.txt").message(); };
  EXPECT_EQ(message(""), "");
  EXPECT_EQ(message(std::string_view("\xEF\xBB\xBF"
                                     "a\0\xC3\xA9\xF0\x9F\x99\x82",
                                     11)),
            "");
  EXPECT_EQ(message("a\nb\n\xC3\xA9\xE9 c"),
            "f\\n.txt: byte 6 (line 3) is 0xE9, which is not UTF-8; iconv -t utf-8 converts other encodings");
  for (const std::string_view bad : {"\xC3", "\xE4\xB8", "\xC0\x8A", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80"}) {
    EXPECT_EQ(message(bad).find("f\\n.txt: byte 0 (line 1) is 0x"), 0u) << Printable(bad);
  }
  EXPECT_EQ(CheckUtf8("a\xFF", "").message().find("byte 1 (line 1) is 0xFF"), 0u);
}

TEST(Printable, LeavesTextAlone) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("a b\\c'\""), "a b\\c'\"");
  EXPECT_EQ(Printable("\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x99\x82"), "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x99\x82");
  EXPECT_EQ(Printable("\xC2\xA0\xE2\x80\xA7\xE2\x80\xAA\xEF\xBF\xBD"), "\xC2\xA0\xE2\x80\xA7\xE2\x80\xAA\xEF\xBF\xBD");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(Printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(Printable(std::string_view("\0\x01\x1b[31m\x7f", 8)), "\\x00\\x01\\x1b[31m\\x7f");
  EXPECT_EQ(Printable("\xC2\x80\xC2\x9b\xC2\x85"), "\\xc2\\x80\\xc2\\x9b\\xc2\\x85");  // C1: CSI, NEL
  EXPECT_EQ(Printable("\xE2\x80\xA8\xE2\x80\xA9"), "\\xe2\\x80\\xa8\\xe2\\x80\\xa9");
}

TEST(Printable, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(Printable("a\xFFz"), "a\\xffz");
  EXPECT_EQ(Printable("\xC3"), "\\xc3");
  EXPECT_EQ(Printable("\xE4\xB8"), "\\xe4\\xb8");
  EXPECT_EQ(Printable("\xC0\x8A"), "\\xc0\\x8a");                    // overlong newline
  EXPECT_EQ(Printable("\xE0\x80\x8A"), "\\xe0\\x80\\x8a");           // the same in three bytes
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  EXPECT_EQ(Printable("\xC3\xA9\xA9"), "\xC3\xA9\\xa9");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdef", 5), "abcde...");
  EXPECT_EQ(Printable("abc\xC3\xA9", 4), "abc...");
  EXPECT_EQ(Printable("abc\xC3\xA9", 5), "abc\xC3\xA9");
  EXPECT_EQ(Printable("abc", 0), "...");
  EXPECT_EQ(Printable("", 0), "");
}

TEST(Quote, LongNamesAreCutInTheMiddle) {
  EXPECT_EQ(Quote("a\nb"), "'a\\nb'");
  const std::string whole(104, 'x');
  EXPECT_EQ(Quote(whole), "'" + whole + "'");
  const std::string cut = Quote(std::string(1000, 'a') + "tail");
  EXPECT_EQ(cut, "'" + std::string(64, 'a') + "..." + std::string(20, 'a') + "tail' (1004 bytes)");
}

TEST(ShapeText, Shapes) {
  EXPECT_EQ(ShapeText({}), "[]");
  EXPECT_EQ(ShapeText(std::vector<uint64_t>{64}), "[64]");
  EXPECT_EQ(ShapeText(std::vector<uint64_t>{64, 172, UINT64_MAX}), "[64, 172, 18446744073709551615]");
}

TEST(ParseAmount, NumbersWithUnits) {
  EXPECT_EQ(ParseAmount("16GiB", {"B"}), 16.0 * (1 << 30));
  EXPECT_EQ(ParseAmount("500M", {"B"}), 5e8);
  EXPECT_EQ(ParseAmount("1.5 kb", {"B"}), 1500);
  EXPECT_EQ(ParseAmount("4096", {"B"}), 4096);
  EXPECT_EQ(ParseAmount("50GB/s", {"/s", "B"}), 5e10);
  EXPECT_EQ(ParseAmount("2Ti", {}), 0x1p41);
  for (const char* none : {"", "0", "-1", "GiB", "2 stone", "1e3", "1i", "0x10", "nan", "2000000T", "1 2"}) {
    EXPECT_EQ(ParseAmount(none, {"B"}), 0) << none;
  }
}

TEST(BytesText, TheLargestUnitThatFits) {
  EXPECT_EQ(BytesText(0), "0 bytes");
  EXPECT_EQ(BytesText(1), "1 byte");
  EXPECT_EQ(BytesText(1023), "1023 bytes");
  EXPECT_EQ(BytesText(1024), "1.00 KiB");
  EXPECT_EQ(BytesText(1234567890), "1.15 GiB");
  EXPECT_EQ(BytesText((1 << 20) - 1), "1.00 MiB");  // not 1024.00 KiB
  EXPECT_EQ(BytesText((1 << 20) - 1, Rounding::kDown), "1023.99 KiB");
  EXPECT_EQ(BytesText(uint64_t{1} << 40), "1.00 TiB");
  EXPECT_EQ(BytesText(UINT64_MAX), "16.00 EiB");
  EXPECT_EQ(BytesText(UINT64_MAX, Rounding::kDown), "15.99 EiB");
}

TEST(GibText, Rounds) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  EXPECT_EQ(GibText(0), "0.00 GiB");
  EXPECT_EQ(GibText(kGib), "1.00 GiB");
  EXPECT_EQ(GibText(kGib, Rounding::kUp), "1.00 GiB");
  EXPECT_EQ(GibText(kGib + 1), "1.00 GiB");
  EXPECT_EQ(GibText(kGib + 1, Rounding::kUp), "1.01 GiB");
  EXPECT_EQ(GibText(kGib + 1, Rounding::kDown), "1.00 GiB");
  EXPECT_EQ(GibText(2 * kGib - 1, Rounding::kDown), "1.99 GiB");
  EXPECT_EQ(GibText(2 * kGib - 1), "2.00 GiB");
  EXPECT_EQ(GibText(kGib / 200), "0.00 GiB");  // half of a hundredth, less what a byte cannot hold
  EXPECT_EQ(GibText(kGib / 200 + 1), "0.01 GiB");
  EXPECT_EQ(GibText(UINT64_MAX, Rounding::kUp), "17179869184.00 GiB");
}

}  // namespace
}  // namespace tally
