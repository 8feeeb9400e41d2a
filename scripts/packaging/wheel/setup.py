# SPDX-License-Identifier: Apache-2.0
"""A wheel of the package tally in this folder, which is built already: one _tally of one Python (scripts/package.sh wheels).

    TALLY_VERSION=0.2.0 python3 setup.py bdist_wheel --dist-dir OUT

The tags are those of _tally's name and of what it needs: manylinux_2_N if that is the C library alone, in no symbol of a later version
than 2.N (PEP 600); else linux.
"""

import glob
import os
import re
import subprocess

from setuptools import setup
from setuptools.dist import Distribution
from wheel.bdist_wheel import bdist_wheel

MANYLINUX = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def tags(module):
    python, machine = re.fullmatch(r"_tally\.cpython-(\d+)-(\w+)-linux-gnu\.so", os.path.basename(module)).groups()
    said = subprocess.run(["readelf", "-dW", "--version-info", module], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
    newest = max(int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", said))
    platform = f"manylinux_2_{newest}_{machine}" if needed <= MANYLINUX else f"linux_{machine}"
    return f"cp{python}", f"cp{python}", platform


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return tags(glob.glob("tally/_tally.*.so")[0])


class Built(Distribution):
    def has_ext_modules(self):
        return True


setup(
    name="tally",
    version=os.environ["TALLY_VERSION"],
    description="Runs transformer language models on CPUs and counts exactly what they cost",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["licences/*"],
    classifiers=["License :: OSI Approved :: Apache Software License", "Operating System :: POSIX :: Linux", "Programming Language :: C++",
                 "Programming Language :: Python :: 3", "Topic :: Scientific/Engineering :: Artificial Intelligence"],
    packages=["tally"],
    package_data={"tally": ["*.so", "*.pyi", "py.typed", "demo.gguf"]},
    extras_require={"arrays": ["numpy"], "tables": ["pandas"]},
    zip_safe=False,
    distclass=Built,
    cmdclass={"bdist_wheel": Wheel},
)
