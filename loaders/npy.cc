#include "loaders/npy.h"

#include <bit>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/sync_file.h"

namespace tally {
namespace {

// One length whatever the shape, so that the number of rows can be filled in at the end.
constexpr size_t kHeaderBytes = 128;
static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

std::string Reason() { return errno != 0 ? std::generic_category().message(errno) : "unknown error"; }

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
  Status status = BadInput(path_ + ": " + what + ": " + Reason());
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
  if (writer.file_ == nullptr) return BadInput(path + ": cannot be opened for writing: " + Reason());
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

}  // namespace tally
