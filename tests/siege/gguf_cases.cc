// SPDX-License-Identifier: Apache-2.0
// One GGUF file, and one in several parts.
#include <cstdint>
#include <utility>

#include "tests/loaders/raw_files.h"
#include "tests/siege/siege.h"

namespace tally::siege {
namespace {

auto File(std::string bytes) {
  return [bytes = std::move(bytes)](const TempFolder& folder) { return folder.Write("m.gguf", bytes); };
}
auto File(const RawGguf& gguf) { return File(gguf.Make()); }

// A string key, an F32 matrix of 24 bytes, a Q8_0 one of 340.
RawGguf Sound() {
  RawGguf g;
  g.keys = {Key("general.architecture", 8, Bytes().Str("llama"))};
  g.tensors = {{"a", {3, 2}, 0, 0}, {"b", {64, 5}, 8, 32}};
  g.data_bytes = 32 + 340;
  return g;
}

template <class Change>
auto Changed(const Change& change) {
  RawGguf g = Sound();
  change(g);
  return File(g);
}

auto WithKey(std::string key) {
  return Changed([&](RawGguf& g) { g.keys.push_back(std::move(key)); });
}

auto WithTensor(RawTensor tensor, uint64_t data = 4096) {
  RawGguf g;
  g.tensors = {std::move(tensor)};
  g.data_bytes = data;
  return File(g);
}

}  // namespace

std::vector<Case> GgufCases() {
  const std::string kTooLong(2000, 'n');
  return {
      // Magic and version.
      {"WrongMagic", File("hello, world"),
       "DIR/m.gguf: header: expected a GGUF file, which begins with the letters GGUF, found 'hell'"},
      {"MagicOfControlCharacters", File("\x01\x02\n\x04zzzz"),
       "DIR/m.gguf: header: expected a GGUF file, which begins with the letters GGUF, found '\\x01\\x02\\n\\x04'"},
      {"MagicOfOldFormat", File("tjggxxxxxxxx"), "DIR/m.gguf: header: a GGML file from before GGUF (2023); convert it to GGUF"},
      {"MagicOfZip", File("PK\x03\x04xxxx"),
       "DIR/m.gguf: header: a zip archive (PyTorch writes such files); expected GGUF or a Hugging Face directory"},
      {"MagicBigEndian", File("FUGGxxxx"), "DIR/m.gguf: header: a big-endian GGUF file; only little-endian ones can be read"},
      {"Version1", Changed([](RawGguf& g) { g.version = 1; }),
       "DIR/m.gguf: header: GGUF version 1; versions 2 and 3 can be read"},
      {"Version4", Changed([](RawGguf& g) { g.version = 4; }),
       "DIR/m.gguf: header: GGUF version 4; versions 2 and 3 can be read"},
      {"VersionBigEndian", Changed([](RawGguf& g) { g.version = 0x03000000; }),
       "DIR/m.gguf: header: a big-endian GGUF file; only little-endian ones can be read"},
      {"Empty", File(""), "DIR/m.gguf: the file is empty"},
      {"MagicAlone", File("GGUF"), "DIR/m.gguf: header: expected the GGUF version at byte 4, but the file ends at byte 4"},
      // Counts.
      {"TensorCountPastTheEnd", Changed([](RawGguf& g) { g.more_tensors = 1000; }),
       "DIR/m.gguf: header: expected 1002 tensors at byte 24, but the file ends at byte 532"},
      {"TensorCountNegative", Changed([](RawGguf& g) { g.more_tensors = -3; }),
       "DIR/m.gguf: header: expected 18446744073709551615 tensors at byte 24, but the file ends at byte 532"},
      {"TensorCountOneTooMany", Changed([](RawGguf& g) { g.more_tensors = 1; }), "DIR/m.gguf: tensor 3 of 3: the name is empty"},
      {"KeyCountOverflows", Changed([](RawGguf& g) { g.more_keys = INT64_MAX - 1; }),
       "DIR/m.gguf: header: expected 9223372036854775807 metadata keys at byte 24, but the file ends at byte 532"},
      {"KeyCountOneTooMany", Changed([](RawGguf& g) { g.more_keys = 1; }),
       "DIR/m.gguf: tensor 1 of 2: the length of a tensor name is 562949953421312 bytes; the limit is 1024"},
      // Metadata.
      {"ValueOfUnknownType", WithKey(Key("k", 13, Bytes().U64(0))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': a value of type 13; types 0 to 12 exist"},
      {"ValueOfTypeNegative", WithKey(Key("k", UINT32_MAX, Bytes().U64(0))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': a value of type 4294967295; types 0 to 12 exist"},
      {"BooleanThatIsNone", WithKey(Key("k", 7, Bytes().U8(2))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': a boolean is 0 or 1, found 2"},
      {"BooleanOfAnArrayThatIsNone", WithKey(Key("k", 9, Bytes().U32(7).U64(2).U8(1).U8(9))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': a boolean is 0 or 1, found 9"},
      {"ArrayOfUnknownType", WithKey(Key("k", 9, Bytes().U32(99).U64(1).U32(4))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': array elements of type 99; types 0 to 12 exist"},
      {"ArrayOfArrays", WithKey(Key("k", 9, Bytes().U32(9).U64(1).U32(4).U64(1).U32(7))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': an array of arrays; only arrays of plain values can be read"},
      {"ArrayLengthOverflows", WithKey(Key("k", 9, Bytes().U32(4).U64(uint64_t{1} << 62).U32(4))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': expected an array of 4611686018427387904 elements at byte 94, but the file ends at "
       "byte 564"},
      {"ArrayLengthNegative", WithKey(Key("k", 9, Bytes().U32(0).U64(UINT64_MAX))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': expected an array of 18446744073709551615 elements at byte 94, but the file ends "
       "at byte 564"},
      {"ArrayLengthPastTheEnd", WithKey(Key("k", 9, Bytes().U32(8).U64(1000))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': expected an array of 1000 elements at byte 94, but the file ends at byte 564"},
      {"ArrayElementTooLarge", WithKey(Key("k", 9, Bytes().U32(10).U64(2).U64(1).U64(UINT64_MAX))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': array element 1 is 18446744073709551615, more than 64 signed bits hold"},
      {"StringLengthNegative", WithKey(Key("k", 8, Bytes().U64(UINT64_MAX).Raw("abc"))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': expected a string (18446744073709551615 bytes) at byte 90, but the file ends at "
       "byte 564"},
      {"StringLengthPastTheEnd", WithKey(Key("k", 8, Bytes().U64(100000).Raw("abc"))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': expected a string (100000 bytes) at byte 90, but the file ends at byte 564"},
      {"StringOfArrayPastTheEnd", WithKey(Key("k", 9, Bytes().U32(8).U64(2).Str("a").U64(100000))),
       "DIR/m.gguf: metadata key 2 of 2, 'k': expected a string (100000 bytes) at byte 111, but the file ends at byte 596"},
      {"KeyEmpty", WithKey(Key("", 7, Bytes().U8(1))), "DIR/m.gguf: metadata key 2 of 2: the key is empty"},
      {"KeyTooLong", WithKey(Key(std::string(70000, 'k'), 7, Bytes().U8(1))),
       "DIR/m.gguf: metadata key 2 of 2: the length of a key is 70000 bytes; the limit is 65535"},
      {"KeyOfControlCharacters", WithKey(Key("a\nb\x1b[31m", 13, Bytes())),
       "DIR/m.gguf: metadata key 2 of 2, 'a\\nb\\x1b[31m': a value of type 13; types 0 to 12 exist"},
      {"KeyNotUtf8", WithKey(Key("\xff\xc0z", 13, Bytes())),
       "DIR/m.gguf: metadata key 2 of 2, '\\xff\\xc0z': a value of type 13; types 0 to 12 exist"},
      {"KeyWithZeroByte", WithKey(Key(std::string_view("a\0b", 3), 13, Bytes())),
       "DIR/m.gguf: metadata key 2 of 2, 'a\\x00b': a value of type 13; types 0 to 12 exist"},
      {"KeyTwice", WithKey(Key("general.architecture", 8, Bytes().Str("gpt2"))),
       "DIR/m.gguf: metadata key 2 of 2, 'general.architecture': the key appears twice"},
      // Alignment.
      {"AlignmentNotAPowerOfTwo", WithKey(Key("general.alignment", 4, Bytes().U32(48))),
       "DIR/m.gguf: general.alignment is 48; expected a power of two"},
      {"AlignmentZero", WithKey(Key("general.alignment", 4, Bytes().U32(0))),
       "DIR/m.gguf: general.alignment is 0; expected a power of two"},
      {"AlignmentNegative", WithKey(Key("general.alignment", 5, Bytes().Le(int32_t{-32}))),
       "DIR/m.gguf: general.alignment is -32; expected a power of two"},
      {"AlignmentAText", WithKey(Key("general.alignment", 8, Bytes().Str("32"))),
       "DIR/m.gguf: key 'general.alignment': expected an integer that fits 64 signed bits, found a string"},
      {"AlignmentBeyondTheFile", WithKey(Key("general.alignment", 10, Bytes().U64(uint64_t{1} << 62))),
       "DIR/m.gguf: the tensor data begin at byte 4611686018427387904, but the file ends at byte 564"},
      // Tensors' descriptions.
      {"TooManyDimensions", WithTensor({"t", {1, 1, 1, 1, 1}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1, 't': 5 dimensions; GGUF has at most 4"},
      {"DimensionZero", WithTensor({"t", {4, 0}, 0, 0}), "DIR/m.gguf: tensor 1 of 1, 't': dimension 1 is 0"},
      {"DimensionNegative", WithTensor({"t", {UINT64_MAX}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1, 't': the number of elements overflows 63 bits"},
      {"DimensionsProductOverflows", WithTensor({"t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1, 't': the number of elements overflows 63 bits"},
      {"DimensionsProductWrapsToSmall", WithTensor({"t", {uint64_t{1} << 63, 2, 4}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1, 't': the number of elements overflows 63 bits"},
      {"BytesOverflow", WithTensor({"t", {uint64_t{1} << 62}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1, 't': the size in bytes overflows 64 bits"},
      {"TensorOfUnknownTypePastTheEnd", WithTensor({"t", {256}, 4711, uint64_t{1} << 20}),
       "DIR/m.gguf: tensor 't': 0 bytes at offset 1048576 of the tensor data (byte 64 on) run past the end of the file at byte "
       "4160"},
      {"GitLfsPointer",
       [](const TempFolder& folder) {
         return folder.Write("m.gguf", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
       },
       "DIR/m.gguf: a Git LFS pointer to a file of 12345 bytes, not the file itself: `git lfs pull` in its repository fetches "
       "it"},
      {"HtmlPage", [](const TempFolder& folder) { return folder.Write("m.gguf", "<!DOCTYPE html><html>Not found</html>"); },
       "DIR/m.gguf: header: an HTML page; whatever it was downloaded with got a message in the file's place"},
      {"OldImportance",
       [](const TempFolder& folder) { return folder.Write("m.gguf", Bytes().U32(2).U32(19).Raw("blk.0.attn_q.weight").text()); },
       "DIR/m.gguf: header: an importance matrix in llama.cpp's old format (imatrix.dat); its llama-imatrix makes a GGUF file of "
       "it"},
      {"Importance", WithKey(Key("general.type", 8, Bytes().Str("imatrix"))),
       "DIR/m.gguf: an importance matrix, not a model; `tally quantize --importance` takes it"},
      {"RowsOfBrokenSuperBlocks", WithTensor({"t", {128, 2}, 12, 0}),
       "DIR/m.gguf: tensor 1 of 1, 't': rows of 128 elements are not whole Q4_K blocks of 256"},
      {"SuperBlocksPastTheEnd", WithTensor({"t", {256, 29}, 12, 0}),
       "DIR/m.gguf: tensor 't': 4176 bytes at offset 0 of the tensor data (byte 96 on) run past the end of the file at byte "
       "4192"},
      {"RowsOfBrokenBlocks", WithTensor({"t", {33, 32}, 8, 0}),
       "DIR/m.gguf: tensor 1 of 1, 't': rows of 33 elements are not whole Q8_0 blocks of 32"},
      {"TensorNameEmpty", WithTensor({"", {4}, 0, 0}), "DIR/m.gguf: tensor 1 of 1: the name is empty"},
      {"TensorNameTooLong", WithTensor({kTooLong, {4}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1: the length of a tensor name is 2000 bytes; the limit is 1024"},
      {"TensorNameOfControlCharacters", WithTensor({"a\r\x07\xe2\x80\xa8", {4, 0}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1, 'a\\r\\x07\\xe2\\x80\\xa8': dimension 1 is 0"},
      {"TensorNameNotUtf8", WithTensor({"a\xff\xc0", {4, 0}, 0, 0}),
       "DIR/m.gguf: tensor 1 of 1, 'a\\xff\\xc0': dimension 1 is 0"},
      {"TensorTwice", Changed([](RawGguf& g) { g.tensors[1].name = "a"; }), "DIR/m.gguf: tensor 'a' appears twice"},
      // Where tensors are.
      {"OffsetMisaligned", WithTensor({"t", {4}, 0, 8}),
       "DIR/m.gguf: tensor 't': offset 8 is not a multiple of the alignment, 32"},
      {"OffsetPastTheEnd", WithTensor({"t", {4}, 0, 4096}),
       "DIR/m.gguf: tensor 't': 16 bytes at offset 4096 of the tensor data (byte 64 on) run past the end of the file at byte "
       "4160"},
      {"OffsetNegative", WithTensor({"t", {1024}, 0, UINT64_MAX - 31}),
       "DIR/m.gguf: tensor 't': 4096 bytes at offset 18446744073709551584 of the tensor data (byte 64 on) run past the end of "
       "the file at byte 4160"},
      {"BytesPastTheEnd", WithTensor({"t", {1024}, 0, 32}),
       "DIR/m.gguf: tensor 't': 4096 bytes at offset 32 of the tensor data (byte 64 on) run past the end of the file at byte "
       "4160"},
      {"NoData", WithTensor({"t", {4}, 0, 0}, 0), "DIR/m.gguf: the tensor data begin at byte 64, but the file ends at byte 57"},
      {"TensorsOverlap", Changed([](RawGguf& g) {
         g.tensors[0].ne = {16, 2};
       }),
       "DIR/m.gguf: tensors 'a' and 'b' overlap at byte 192"},
      {"TensorsAtOnePlace", Changed([](RawGguf& g) { g.tensors[1].offset = 0; }),
       "DIR/m.gguf: tensors 'a' and 'b' overlap at byte 160"},
  };
}

namespace {

// The files of a checkpoint in three parts, one tensor each.
std::vector<RawGguf> Parts() {
  std::vector<RawGguf> parts(3);
  for (uint16_t i = 0; i < 3; ++i) {
    RawGguf& g = parts[i];
    if (i == 0) g.keys.push_back(Key("general.architecture", 8, Bytes().Str("llama")));
    g.keys.push_back(Key("split.no", 2, Bytes().Le(i)));
    g.keys.push_back(Key("split.count", 2, Bytes().Le(uint16_t{3})));
    g.keys.push_back(Key("split.tensors.count", 5, Bytes().Le(int32_t{3})));
    g.tensors = {{"t" + std::to_string(i), {4}, 0, 0}};
    g.data_bytes = 16;
  }
  return parts;
}

std::string PartName(size_t i) { return "m-0000" + std::to_string(i + 1) + "-of-00003.gguf"; }

// The first part is named; `change` may drop parts.
template <class Change>
auto ChangedParts(const Change& change) {
  std::vector<RawGguf> parts = Parts();
  change(parts);
  std::vector<std::string> files;
  for (const RawGguf& part : parts) files.push_back(part.Make());
  return [files](const TempFolder& folder) {
    for (size_t i = 0; i < files.size(); ++i) folder.Write(PartName(i), files[i]);
    return folder / PartName(0);
  };
}

// All parts are there, and one more is what is named.
auto NamedLikeAPart(const std::string& name) {
  return [name, write = ChangedParts([](auto&) {})](const TempFolder& folder) {
    write(folder);
    return folder.Write(name, Parts()[1].Make());
  };
}

}  // namespace

std::vector<Case> SplitCases() {
  return {
      {"PartMissing", ChangedParts([](auto& p) { p.pop_back(); }),
       "DIR/m-00003-of-00003.gguf: cannot be opened: No such file or directory (part 3 of 3 of the split checkpoint)"},
      {"PartsSwapped", ChangedParts([](auto& p) { std::swap(p[1], p[2]); }),
       "DIR/m-00002-of-00003.gguf: expected split.no 1 and split.count 3, found 2 and 3"},
      {"PartWithWrongVersion", ChangedParts([](auto& p) { p[2].version = 9; }),
       "DIR/m-00003-of-00003.gguf: header: GGUF version 9; versions 2 and 3 can be read (part 3 of 3 of the split checkpoint)"},
      {"PartWithTensorOfAnother", ChangedParts([](auto& p) { p[1].tensors[0].name = "t0"; }),
       "DIR/m-00001-of-00003.gguf: tensor 't0' appears twice"},
      {"PartOfAnotherCheckpoint",
       ChangedParts([](auto& p) { p[1].keys.push_back(Key("general.architecture", 8, Bytes().Str("gpt2"))); }),
       "DIR/m-00002-of-00003.gguf: metadata key 'general.architecture' differs from that of DIR/m-00001-of-00003.gguf; they are "
       "not parts of one checkpoint"},
      {"TensorsMoreThanCounted", ChangedParts([](auto& p) {
         p[1].tensors.push_back({"more", {4}, 0, 32});
         p[1].data_bytes = 48;
       }),
       "DIR/m-00001-of-00003.gguf: split.tensors.count is 3, but the files hold 4 tensors"},
      {"PartIsADirectory",
       [write = ChangedParts([](auto& p) { p.pop_back(); })](const TempFolder& folder) {
         std::filesystem::create_directory(folder / PartName(2));
         return write(folder);
       },
       "DIR/m-00003-of-00003.gguf: expected a regular file, found a directory (part 3 of 3 of the split checkpoint)"},
      {"NameWithoutNumbers", [](const TempFolder& folder) { return folder.Write("renamed.gguf", Parts()[0].Make()); },
       "DIR/renamed.gguf: split.count is 3, so the name must end in -00001-of-000NN.gguf with that count for its other parts to "
       "be found"},
      {"NameOfOneOfTwo", [](const TempFolder& folder) { return folder.Write("m-00001-of-00002.gguf", RawGguf().Make()); },
       "DIR/m-00001-of-00002.gguf: the name says part 1 of 2, but the file has no split.count above 1"},
      {"NameOfPartZero", NamedLikeAPart("m-00000-of-00003.gguf"), "DIR/m-00000-of-00003.gguf: the name says part 0 of 3"},
      {"NameBeyondTheLastPart", NamedLikeAPart("m-00009-of-00003.gguf"), "DIR/m-00009-of-00003.gguf: the name says part 9 of 3"},
      {"CountNegative",
       [](const TempFolder& folder) {
         RawGguf g;
         g.keys = {Key("split.count", 5, Bytes().Le(int32_t{-3}))};
         return folder.Write("m.gguf", g.Make());
       },
       "DIR/m.gguf: split.count is -3; expected 1 to 99999"},
      {"CountHuge",
       [](const TempFolder& folder) {
         RawGguf g;
         g.keys = {Key("split.count", 4, Bytes().U32(UINT32_MAX))};
         return folder.Write("m.gguf", g.Make());
       },
       "DIR/m.gguf: split.count is 4294967295; expected 1 to 99999"},
  };
}

}  // namespace tally::siege
