// SPDX-License-Identifier: Apache-2.0
// Keeps the headers of this node honest: each must compile on its own.
#include "engine/base/aligned.h"
#include "engine/base/checked.h"
#include "engine/base/dtype.h"
#include "engine/base/float16.h"
#include "engine/base/format.h"
#include "engine/base/kinds.h"
#include "engine/base/mat.h"
#include "engine/base/mix.h"
#include "engine/base/status.h"
