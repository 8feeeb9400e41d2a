// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/record_reads.h"

namespace tally {

Result<std::unique_ptr<RecordReads>> RecordReads::Start(std::unique_ptr<RecordReader> reader) {
  std::unique_ptr<RecordReads> reads(new RecordReads(std::move(reader)));
  TALLY_ASSIGN_OR_RETURN(reads->threads_,
                         WaitingThreads::Start(RecordReader::kThreads, [r = reads.get()](int t) { r->RunTasks(t); }));
  return reads;
}

RecordReads::~RecordReads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  threads_.Join();
}

void RecordReads::Begin(size_t layer, int64_t expert, uint8_t* slot, Read& read) {
  const int pieces = reader_->pieces(layer);
  {
    const std::lock_guard lock(mutex_);
    read.pieces_left = pieces;
    read.status = {};
    for (int p = 0; p < pieces; ++p) tasks_.push_back({&read, layer, expert, slot, p});
  }
  work_.notify_all();
}

Status RecordReads::Wait(Read& read) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return read.pieces_left == 0; });
  return read.status;
}

void RecordReads::RunTasks(int thread) {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    const Task task = tasks_.front();
    tasks_.pop_front();
    lock.unlock();
    Status status = reader_->Read(task.layer, task.expert, task.piece, task.slot, thread);
    if (!status.ok()) status = reader_->Read(task.layer, task.expert, task.piece, task.slot, thread);
    lock.lock();
    if (!status.ok() && task.read->status.ok()) task.read->status = std::move(status);
    if (--task.read->pieces_left == 0) done_.notify_all();
  }
}

Result<SlotMemory> SlotMemory::Allocate(uint64_t bytes, bool guarded) {
  SlotMemory memory;
  if (guarded) {
    TALLY_ASSIGN_OR_RETURN(memory.mirrored_, MirroredMemory::Allocate(bytes));
    memory.view_ = memory.mirrored_.mirror();
  } else {
    TALLY_ASSIGN_OR_RETURN(memory.memory_, AnonymousMemory::Allocate(bytes, /*huge=*/true));
    memory.view_ = memory.memory_.data();
  }
  memory.bytes_ = bytes;
  return memory;
}

}  // namespace tally
