// The families, for the registry's array. One per file of this folder.
#pragma once

#include "models/family.h"

namespace tally {

extern const Family kGpt2Family;    // gpt2.cc
extern const Family kLlamaFamily;   // llama.cc: Llama 1 to 3, Mistral
extern const Family kGptOssFamily;  // gpt_oss.cc

}  // namespace tally
