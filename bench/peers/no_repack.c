// SPDX-License-Identifier: Apache-2.0
// llama.cpp's --no-repack for node-llama-cpp, which has no such option: a library to preload. llama.cpp copies the matrices that it repacks,
// and under a limit of memory the copies of a larger model end the process. Without repacking it reads them in the mapped file.
// The struct is llama_model_params of include/llama.h, v0.5.0. With another version the process ends.
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
