// SPDX-License-Identifier: Apache-2.0
#include "loaders/npy.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/sync_file.h"
#include "engine/base/system_error.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

// One length whatever the shape, so that the number of rows can be filled in at the end.
constexpr size_t kHeaderBytes = 128;
static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

}  // namespace

NpyWriter::~NpyWriter() {
  if (file_ != nullptr) Abandon();
}

void NpyWriter::Abandon() {
  file_.reset();
  std::error_code ignored;
  if (!written_.empty()) std::filesystem::remove(written_, ignored);
  written_.clear();
}

Status NpyWriter::Failed(const char* what) {
  const int error = errno;
  Status status(SystemErrorCode(error), path_ + ": " + what + ": " + (error != 0 ? SystemErrorText(error) : "unknown error"));
  Abandon();
  return status;
}

Result<NpyWriter> NpyWriter::Create(const std::string& path, int64_t cols) {
  namespace fs = std::filesystem;
  NpyWriter writer;
  writer.path_ = path;
  writer.cols_ = cols;
  if (path.empty()) return BadInput("the name of the file to write is empty");
  std::error_code error;
  const fs::file_status there = fs::status(path, error);  // of what a link leads to
  if (fs::is_fifo(there)) return BadInput(path + ": is a pipe, where the number of rows cannot be filled in");
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    errno = 0;
    writer.file_.reset(std::fopen(path.c_str(), "wb"));
    if (writer.file_ == nullptr) return writer.Failed("cannot be created");
  } else {
    writer.target_ = path;
    if (fs::is_symlink(path, error)) {
      writer.target_ = fs::canonical(path, error).string();
      if (error) return BadInput(path + ": the symbolic link leads nowhere: " + error.message());
    }
    TALLY_RETURN_IF_ERROR(writer.OpenPartial());
  }
  TALLY_RETURN_IF_ERROR(writer.WriteHeader());
  return writer;
}

// Another writer, or one that was killed, may have left some of the names.
Status NpyWriter::OpenPartial() {
  for (int n = 0; n < 100; ++n) {
    std::string partial = target_ + ".partial-" + std::to_string(n);
    errno = 0;
    file_.reset(std::fopen(partial.c_str(), "wbx"));
    if (file_ != nullptr) {
      written_ = std::move(partial);
      return {};
    }
    if (errno != EEXIST) return Failed("cannot be created");
  }
  return BadInput(path_ + ": cannot be created: too many partial files stand beside it");
}

Result<NpyWriter> NpyWriter::Reopen(const std::string& path, int64_t rows, int64_t cols) {
  NpyWriter writer;
  writer.path_ = path;
  writer.rows_ = rows;
  writer.cols_ = cols;
  errno = 0;
  writer.file_.reset(std::fopen(path.c_str(), "r+b"));
  if (writer.file_ == nullptr) return SystemError(path + ": cannot be opened for writing", errno);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) writer.written_ = path;
  if (std::fseek(writer.file_.get(), 0, SEEK_END) != 0) return writer.Failed("cannot be written");
  return writer;
}

Status NpyWriter::WriteHeader() {
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>((kHeaderBytes - 10) & 255);
  header += static_cast<char>((kHeaderBytes - 10) >> 8);
  header += "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows_) + ", " + std::to_string(cols_) + "), }";
  header.resize(kHeaderBytes - 1, ' ');
  header += '\n';
  errno = 0;
  if (std::fwrite(header.data(), 1, header.size(), file_.get()) != header.size()) return Failed("cannot be written");
  return {};
}

Status NpyWriter::Append(Mat<const float> rows) {
  if (file_ == nullptr) return InternalError(path_ + ": rows for an array that is closed");
  if (rows.cols != cols_) {
    return InternalError(path_ + ": rows of " + std::to_string(rows.cols) + " values in an array of " + std::to_string(cols_));
  }
  errno = 0;
  const size_t n = static_cast<size_t>(rows.cols);
  for (int64_t r = 0; r < rows.rows && n > 0; ++r) {
    if (std::fwrite(rows.Row(r), sizeof(float), n, file_.get()) != n) return Failed("cannot be written");
  }
  rows_ += rows.rows;
  return {};
}

Status NpyWriter::Close() {
  if (file_ == nullptr) return InternalError(path_ + ": closed twice");
  errno = 0;
  if (std::fseek(file_.get(), 0, SEEK_SET) != 0) {
    return Failed(errno == ESPIPE ? "the number of rows cannot be filled in" : "cannot be written");
  }
  TALLY_RETURN_IF_ERROR(WriteHeader());
  errno = 0;
  if (std::fflush(file_.get()) != 0 || std::ferror(file_.get()) != 0) return Failed("cannot be written");
  errno = SyncFile(::fileno(file_.get()));
  if (errno != 0 || std::fclose(file_.release()) != 0) return Failed("cannot be written");
  if (!target_.empty()) {
    std::error_code error;
    std::filesystem::rename(written_, target_, error);
    if (error) {
      Abandon();
      return BadInput(path_ + ": cannot be given its name: " + error.message());
    }
  }
  written_.clear();
  return {};
}

NpyReader::NpyReader() = default;
NpyReader::NpyReader(NpyReader&&) noexcept = default;
NpyReader::~NpyReader() = default;

Result<NpyReader> NpyReader::Open(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  NpyReader reader;
  reader.file_ = std::make_unique<FileReader>(std::move(file));
  const auto no = [&](const std::string& why) { return BadInput(path + ": " + why); };
  uint8_t start[10] = {};
  if (reader.file_->size() < sizeof start) return no("is no .npy file");
  TALLY_RETURN_IF_ERROR(reader.file_->ReadAt(0, start));
  if (std::memcmp(start, "\x93NUMPY\x01\x00", 8) != 0) return no("is no .npy file of version 1.0");
  const size_t length = static_cast<size_t>(start[8] | start[9] << 8);
  reader.data_ = sizeof start + length;
  std::string header(length, ' ');
  if (reader.file_->size() < reader.data_) return no("ends within its header");
  TALLY_RETURN_IF_ERROR(reader.file_->ReadAt(sizeof start, {reinterpret_cast<uint8_t*>(header.data()), length}));
  if (header.find("'descr': '<f4'") == std::string::npos || header.find("'fortran_order': False") == std::string::npos) {
    return no("holds something else than float32 in C order");
  }
  const size_t shape = header.find("'shape': (");
  long long rows = 0, cols = 0;
  char end = 0;
  if (shape == std::string::npos || std::sscanf(header.c_str() + shape, "'shape': (%lld, %lld%c", &rows, &cols, &end) != 3 ||
      end != ')' || rows < 0 || cols < 1) {
    return no("holds something else than a matrix");
  }
  const uint64_t bytes = reader.file_->size() - reader.data_, row = static_cast<uint64_t>(cols);
  if (row > bytes / sizeof(float) + 1 || bytes % (row * sizeof(float)) != 0 ||
      bytes / (row * sizeof(float)) != static_cast<uint64_t>(rows)) {
    return no("has another size than its header says");
  }
  reader.rows_ = rows;
  reader.cols_ = cols;
  return reader;
}

Status NpyReader::Read(int64_t first, int64_t count, std::span<float> out) const {
  if (first < 0 || count < 0 || first + count > rows_ || out.size() != static_cast<size_t>(count * cols_)) {
    return InternalError(file_->path() + ": rows that do not exist");
  }
  return file_->ReadAt(data_ + static_cast<uint64_t>(first * cols_) * sizeof(float),
                       {reinterpret_cast<uint8_t*>(out.data()), out.size() * sizeof(float)});
}

}  // namespace tally
