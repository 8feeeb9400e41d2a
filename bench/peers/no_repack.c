// SPDX-License-Identifier: Apache-2.0
// llama.cpp's --no-repack for node-llama-cpp, which has no such option: a library to preload. Repacked matrices are a copy in anonymous memory,
// and a model that is bigger than the memory it is given ends by it. Without, they are used where the file is mapped.
// For llama.cpp v0.5.0 alone: struct llama_model_params of its include/llama.h. Another version's ends the process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct llama_model_params {
  void* others[9];
  bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
};

struct llama_model_params llama_model_default_params(void) {
  void* library = dlopen("libllama.v0.5.0.so", RTLD_LAZY | RTLD_NOLOAD);
  struct llama_model_params (*defaults)(void) = NULL;
  if (library != NULL) *(void**)&defaults = dlsym(library, "llama_model_default_params");
  if (defaults == NULL) {
    fputs("no_repack: not llama.cpp v0.5.0\n", stderr);
    exit(2);
  }
  struct llama_model_params params = defaults();
  if (params.vocab_only || params.check_tensors || !params.use_extra_bufts || params.no_host || params.no_alloc) {
    fputs("no_repack: the defaults of llama.cpp's model are not those of v0.5.0\n", stderr);
    exit(2);
  }
  params.use_extra_bufts = false;
  return params;
}
