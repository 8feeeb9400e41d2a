# SPDX-License-Identifier: Apache-2.0
"""Tally runs transformer language models on CPUs and counts exactly what they cost: parameters used, arithmetic done, bytes moved.

    import tally

    tally.count("gpt-oss-20b").active_head            # 3608307264, from the configuration alone
    model = tally.load("demo")                        # or a GGUF file, or a Hugging Face directory
    answer = model.generate("ROMEO:", max_tokens=24)
    print(answer, answer.cost.flops_per_token)
"""

import atexit as _atexit

from . import _tally
from ._answers import Answer, Cost, Generation, Piece, Stream, Streams, TokenLogprob, ToolCall, Work
from ._books import Count, Fit, config, count, fit, models, pull, synth
from ._errors import BadInput, Disagreement, Error, ForkedError, InternalError, NoRoom, NotFinite
from ._model import Audit, EngineOptions, GenerateOptions, Ledger, Model, Run, audit, load
from ._pretrained import Output, PretrainedModel, from_pretrained
from ._tables import Table
from ._tokenizer import Tokenizer
from ._version import __version__

__all__ = [
    "Answer", "Audit", "BadInput", "Cost", "Count", "Disagreement", "EngineOptions", "Error", "Fit", "ForkedError", "GenerateOptions",
    "Generation", "InternalError", "Ledger", "Model", "NoRoom", "NotFinite", "Output", "Piece", "PretrainedModel", "Run", "Stream",
    "Streams", "Table", "TokenLogprob", "Tokenizer", "ToolCall", "Work", "__version__", "audit", "config", "count", "fit",
    "from_pretrained", "load", "models", "pull", "synth",
]

# The engine's threads end before the interpreter does.
_atexit.register(_tally.stop_all)
