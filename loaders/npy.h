// SPDX-License-Identifier: Apache-2.0
// Writes and reads .npy files (NumPy's format, version 1.0: magic "\x93NUMPY", 1, 0, little-endian u16 header length, a Python literal
// padded with spaces to a multiple of 64 bytes, then the array; numpy.lib.format's documentation).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "engine/base/export.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"

namespace tally {

class FileReader;

// A float32 matrix [rows, cols], little-endian, C order, written as its rows come. The file appears under its name when it is
// complete: until Close it is NAME.partial-N beside it, and on any error (full disk included), or without Close, it is removed
// and a file that was there before is untouched. A symbolic link is followed. A device is written in
// place, never removed or replaced.
class NpyWriter {
 public:
  // Errors (kBadInput, naming the file): it cannot be created, is a pipe (where the number of rows could not be filled in), or a
  // link that leads nowhere.
  TALLY_API static Result<NpyWriter> Create(const std::string& path, int64_t cols);
  // Continues, in place, a file that Create and Close left with `rows` rows of `cols`; removes it if it cannot be written.
  TALLY_API static Result<NpyWriter> Reopen(const std::string& path, int64_t rows, int64_t cols);
  NpyWriter(NpyWriter&&) noexcept = default;
  NpyWriter& operator=(NpyWriter&&) = delete;
  TALLY_API ~NpyWriter();

  // [any number, cols]. kBadInput, naming the file: it cannot be written (the disk is full); kInternal: other columns, after
  // Close.
  TALLY_API Status Append(Mat<const float> rows);
  // Writes the number of rows into the header, closes the file and gives it its name. Errors as Append's.
  TALLY_API Status Close();
  int64_t rows() const { return rows_; }  // so far

 private:
  NpyWriter() = default;
  Status OpenPartial();
  Status WriteHeader();
  Status Failed(const char* what);
  void Abandon();
  struct CloseFile {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::string path_;     // as named by the caller, for messages
  std::string target_;   // the name it is to have; empty: written in place
  std::string written_;  // what to remove on a failure; empty: nothing
  int64_t rows_ = 0, cols_ = 0;
};

// A float32 matrix in a .npy file, little-endian, C order.
class NpyReader {
 public:
  // kBadInput, naming the file: it cannot be read, is no .npy file, holds something else, or has another size than its header says.
  TALLY_API static Result<NpyReader> Open(const std::string& path);
  TALLY_API NpyReader(NpyReader&&) noexcept;
  TALLY_API ~NpyReader();
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Rows [first, first + count), which exist, to out [count, cols].
  TALLY_API Status Read(int64_t first, int64_t count, std::span<float> out) const;

 private:
  NpyReader();
  std::unique_ptr<FileReader> file_;
  uint64_t data_ = 0;  // first byte of the array
  int64_t rows_ = 0, cols_ = 0;
};

}  // namespace tally
