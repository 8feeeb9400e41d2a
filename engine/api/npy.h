// Writes .npy files (NumPy's format, version 1.0: magic "\x93NUMPY", 1, 0, little-endian u16 header length, a Python literal
// padded with spaces to a multiple of 64 bytes, then the array; numpy.lib.format's documentation).
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "engine/base/mat.h"
#include "engine/base/status.h"

namespace tally {

// A float32 matrix [rows, cols], little-endian, C order, written as its rows come.
class NpyWriter {
 public:
  // Errors (kBadInput, naming the file): it cannot be created.
  static Result<NpyWriter> Create(const std::string& path, int64_t cols);
  // Goes on with a file that Create and Close left behind with `rows` rows.
  static Result<NpyWriter> Reopen(const std::string& path, int64_t rows, int64_t cols);
  NpyWriter(NpyWriter&&) noexcept = default;
  NpyWriter& operator=(NpyWriter&&) noexcept = default;

  Status Append(Mat<const float> rows);
  // Writes the number of rows into the header and closes the file. On any error (full disk included) the file is removed
  // if it is a regular one.
  Status Close();
  int64_t rows() const { return rows_; }

 private:
  NpyWriter() = default;
  Status WriteHeader();
  Status Failed(const char* what);
  struct CloseFile {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::string path_;
  int64_t rows_ = 0, cols_ = 0;
};

}  // namespace tally
