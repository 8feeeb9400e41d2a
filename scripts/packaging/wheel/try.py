# SPDX-License-Identifier: Apache-2.0
"""A notebook of one cell, which counts a model; the table that it shows must have the number."""

import sys

import nbformat
from nbclient import NotebookClient

notebook = nbformat.v4.new_notebook()
notebook.cells = [nbformat.v4.new_code_cell('import tally\ntally.count("gpt-oss-20b")')]
notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
client = NotebookClient(notebook, kernel_name="python3")
client.create_kernel_manager()
client.km.kernel_spec.argv[0] = sys.executable  # this environment's, whose packages the notebook sees
client.execute()
shown = notebook.cells[0].outputs[0]["data"]["text/html"]
assert "3,608,307,264" in shown and "<svg" in shown, shown[:1000]
print("a notebook shows gpt-oss-20b's table and pictures")
