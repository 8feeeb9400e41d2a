// SPDX-License-Identifier: Apache-2.0
// The path of the bundled model.
#include <filesystem>
#include <string>
#include <system_error>

#include "engine/machine/machine.h"
#include "engine/session/model.h"

namespace tally {

Result<std::string> DemoModelPath() {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(ModuleFile()).parent_path();
  std::string tried;
  // Installed: PREFIX/bin, PREFIX/lib or PREFIX/lib/<architecture> beside PREFIX/share; in a wheel, beside the library. Not installed: the
  // source tree.
  for (const fs::path& path : {folder / "../share/tally/demo.gguf", folder / "../../share/tally/demo.gguf", folder / "demo.gguf",
                               fs::path(TALLY_SOURCE_TREE) / "models/demo/demo.gguf"}) {
    std::error_code ignored;
    const fs::path file = path.lexically_normal();
    if (fs::is_regular_file(file, ignored)) return file.string();
    tried += (tried.empty() ? "" : ", ") + file.string();
  }
  return BadInput("the bundled model is not where it should be: " + tried);
}

}  // namespace tally
