# SPDX-License-Identifier: Apache-2.0
include(FetchContent)
if(TALLY_TEAM STREQUAL "openmp")
  find_package(OpenMP COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no OpenMP (clang on Debian, Ubuntu: apt-get install libomp-dev). "
      "-DTALLY_TEAM=std does without: its threads are the standard library's")
  endif()
endif()
# OpenBLAS is loaded when `--impl blas` first asks for it (engine/kernels/matmul/openblas.cc), by the name that the system's loader
# knows; a library that is elsewhere is remembered. Nothing of it is needed to build.
find_library(TALLY_OPENBLAS openblas)
set(TALLY_OPENBLAS_PATH "")
if(TALLY_OPENBLAS AND NOT TALLY_OPENBLAS MATCHES "[.]a$")
  set(TALLY_OPENBLAS_PATH ${TALLY_OPENBLAS})
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# Highway 1.2 or newer; older distributions do not have it, so there the upstream release is fetched.
find_package(hwy 1.2.0 QUIET)
set(TALLY_HWY_FETCHED OFF)
if(NOT hwy_FOUND)
  set(TALLY_HWY_FETCHED ON)
  set(HWY_ENABLE_TESTS OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_EXAMPLES OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_CONTRIB OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_INSTALL OFF CACHE BOOL "" FORCE)
  if(POLICY CMP0135)
    cmake_policy(SET CMP0135 NEW)  # the files' times are those of their unpacking
  endif()
  FetchContent_Declare(highway URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
    URL_HASH SHA256=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)  # that of Debian's highway_1.2.0.orig.tar.gz
  FetchContent_MakeAvailable(highway)
  target_compile_options(hwy PRIVATE -w)  # our warnings are for us
  if(NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
endif()

# tally_loaded(OPTION "what it is for" library header debian-package name...): a part that takes a library's header to build, and loads
# the library when it first needs it. OPTION is ON, OFF or AUTO, which is decided at every configuration: scripts/test.sh installs what
# scripts/demo.sh did without. Sets TALLY_WITH_..., and OPTION_INCLUDE and OPTION_LIBRARY.
function(tally_loaded option purpose library header package)
  set(${option} AUTO CACHE STRING "${purpose} (${library}): ON, OFF, or AUTO, where ${library} is found")
  find_path(${option}_INCLUDE ${header})
  find_library(${option}_LIBRARY NAMES ${ARGN})
  set(with ${${option}})
  if(NOT ${option}_INCLUDE OR NOT ${option}_LIBRARY)
    if(with AND NOT with STREQUAL AUTO)
      message(FATAL_ERROR "${option} is on and ${library} was not found (Debian, Ubuntu: apt-get install ${package})")
    endif()
    set(with OFF)
  elseif(with STREQUAL AUTO)
    set(with ON)
  endif()
  string(REPLACE TALLY_ TALLY_WITH_ name ${option})
  set(${name} ${with} PARENT_SCOPE)
endfunction()
tally_loaded(TALLY_PULL "Fetch models from the Hugging Face hub" libcurl curl/curl.h libcurl4-openssl-dev curl curl-gnutls)
tally_loaded(TALLY_LINE_EDITING "Line editing in `tally chat`" libedit histedit.h libedit-dev edit)

# scripts/demo.sh builds without either.

# One model over several processes: a plug-in beside the command, the only thing that links MPI (engine/mpi). Open MPI, or else MPICH.
set(TALLY_MPI AUTO CACHE STRING "Run over several processes (Open MPI): ON, OFF, or AUTO, where MPI is found")
set(TALLY_WITH_MPI OFF)
if(TALLY_MPI)
  foreach(module ompi-c mpich)
    if(NOT TALLY_WITH_MPI)
      string(MAKE_C_IDENTIFIER "TALLY_${module}" found)
      pkg_check_modules(${found} QUIET IMPORTED_TARGET ${module})
      if(${found}_FOUND)
        set(TALLY_WITH_MPI ON)
        add_library(tally_mpi_library INTERFACE)
        target_link_libraries(tally_mpi_library INTERFACE PkgConfig::${found})
        target_compile_definitions(tally_mpi_library INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)  # C's interface alone
        message(STATUS "MPI: ${module} ${${found}_VERSION}, for libtally_mpi.so")
      endif()
    endif()
  endforeach()
  if(NOT TALLY_WITH_MPI)
    set(missing "libtally_mpi.so wants MPI, which was not found (Debian, Ubuntu: scripts/install_deps.sh --mpi)")
    if(NOT TALLY_MPI STREQUAL AUTO)
      message(FATAL_ERROR "TALLY_MPI is on: ${missing}")
    endif()
    message(STATUS "${missing}; one model runs in one process")
  endif()
endif()

# The Python module (engine/python), for the interpreter that CMake finds, or -DPython_EXECUTABLE. Without an interpreter: the folder of
# Python's headers, and the end of the module's name, ".cpython-311-x86_64-linux-gnu.so" (scripts/package.sh wheel).
set(TALLY_PYTHON AUTO CACHE STRING "The Python module (pybind11): ON, OFF, or AUTO, where Python's headers and pybind11 are found")
set(TALLY_PYTHON_HEADERS "" CACHE STRING "Folders of Python's headers, where there is no such interpreter")
set(TALLY_PYTHON_SUFFIX "" CACHE STRING "With TALLY_PYTHON_HEADERS: the end of the module's name")
set(TALLY_WITH_PYTHON OFF)
if(TALLY_PYTHON_HEADERS)
  find_package(pybind11 2.9 CONFIG REQUIRED)
  set(TALLY_WITH_PYTHON ON)
elseif(TALLY_PYTHON AND NOT TALLY_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  if(NOT Python_EXECUTABLE AND EXISTS /usr/bin/python3)  # the one that the distribution's packages are for
    set(Python_EXECUTABLE /usr/bin/python3 CACHE FILEPATH "")
  endif()
  set(PYBIND11_NOPYTHON ON)  # it would find one of its own
  find_package(Python 3.9 COMPONENTS Interpreter Development.Module QUIET)
  find_package(pybind11 2.9 CONFIG QUIET)
  if(Python_Development.Module_FOUND AND pybind11_FOUND)
    set(TALLY_WITH_PYTHON ON)
  elseif(NOT TALLY_PYTHON STREQUAL AUTO)
    message(FATAL_ERROR "TALLY_PYTHON is on, and Python's headers or pybind11 were not found (Debian, Ubuntu: apt-get install python3-dev pybind11-dev)")
  endif()
endif()

# What the chat page shows markdown with: two libraries that browsers run, embedded in the page. Without them answers are shown as they
# come, as plain text.
set(TALLY_MARKDOWN AUTO CACHE STRING "Markdown in the chat page (marked and DOMPurify): ON, OFF, or AUTO, where both are found")
set(browser_libraries /usr/share/nodejs /usr/share/javascript /usr/lib/nodejs)
find_file(TALLY_MARKED_JS NAMES marked.umd.min.js marked.min.js marked.umd.js PATHS ${browser_libraries}
  PATH_SUFFIXES marked/lib marked/dist marked)
find_file(TALLY_DOMPURIFY_JS NAMES purify.min.js purify.js PATHS ${browser_libraries} PATH_SUFFIXES dompurify/dist dompurify)
set(TALLY_WITH_MARKDOWN ${TALLY_MARKDOWN})
if(NOT EXISTS "${TALLY_MARKED_JS}" OR NOT EXISTS "${TALLY_DOMPURIFY_JS}")
  if(TALLY_MARKDOWN AND NOT TALLY_MARKDOWN STREQUAL AUTO)
    message(FATAL_ERROR "TALLY_MARKDOWN is on and marked or DOMPurify was not found (Debian, Ubuntu: apt-get install node-marked node-dompurify)")
  endif()
  set(TALLY_WITH_MARKDOWN OFF)
elseif(TALLY_MARKDOWN STREQUAL AUTO)
  set(TALLY_WITH_MARKDOWN ON)
endif()

# tally_browser_library(FILE VARIABLE): the text of a library, fit for an element <script> and for assets.cc.in.
function(tally_browser_library file variable)
  file(READ ${file} text)
  string(REGEX REPLACE "//# sourceMappingURL=[^\n]*\n?" "" text "${text}")
  foreach(ends "<script" "</script" ")TALLY\"")
    string(FIND "${text}" "${ends}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} holds '${ends}' and cannot be embedded; -DTALLY_MARKDOWN=OFF does without")
    endif()
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

if(TALLY_BUILD_TESTS)
  find_package(GTest)
  if(NOT GTest_FOUND)
    message(FATAL_ERROR "the tests want GoogleTest (Debian, Ubuntu: scripts/install_deps.sh --tests); -DTALLY_BUILD_TESTS=OFF does without")
  endif()
endif()
if(TALLY_BUILD_BENCH)
  find_package(benchmark)
  if(NOT benchmark_FOUND)
    message(FATAL_ERROR "bench/ wants Google Benchmark (Debian, Ubuntu: scripts/install_deps.sh --tests); -DTALLY_BUILD_BENCH=OFF does without")
  endif()
endif()
