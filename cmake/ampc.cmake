# SPDX-License-Identifier: Apache-2.0
# The project's build helpers: where dependencies are, the common flags, and two functions.
#
#   ampc_library(NAME name SRCS … DEPS … [PRIVATE_DEPS …])     a static library with the project's flags
#   ampc_test(NAME name SRCS … DEPS … [LABEL unit] [TIMEOUT s]) a GoogleTest binary, one ctest entry
#
# Includes are root-relative; a library sees only the headers of the targets it names, by review and by
# scripts/check_layers.py, which reads the include lines.

# scripts/bootstrap.sh installs into the cache, outside the build tree; AMPC_CACHE moves it.
if(DEFINED ENV{AMPC_CACHE})
  set(ampc_default_cache "$ENV{AMPC_CACHE}")
else()
  set(ampc_default_cache "$ENV{HOME}/.cache/ampc")
endif()
set(AMPC_CACHE_DIR "${ampc_default_cache}" CACHE PATH "where scripts/bootstrap.sh keeps dependencies")
set(AMPC_DEPS "${AMPC_CACHE_DIR}/deps" CACHE PATH "where scripts/bootstrap.sh installed ONNX and oneDNN")
set(AMPC_VENV "${AMPC_CACHE_DIR}/venv" CACHE PATH "the Python environment of the tests")
if(NOT EXISTS "${AMPC_DEPS}/lib/cmake/ONNX" OR NOT EXISTS "${AMPC_DEPS}/lib/cmake/dnnl")
  message(FATAL_ERROR "no dependencies in ${AMPC_DEPS}: run scripts/bootstrap.sh "
    "(or set AMPC_CACHE to where it was run)")
endif()
list(PREPEND CMAKE_PREFIX_PATH "${AMPC_DEPS}")

find_program(AMPC_CCACHE ccache)
if(AMPC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${AMPC_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${AMPC_CCACHE}")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/cuda.cmake")

add_library(ampc_flags INTERFACE)
target_include_directories(ampc_flags INTERFACE "${PROJECT_SOURCE_DIR}")
# A designated initializer leaves the rest at its defaults on purpose. -Wrestrict: GCC 12 warns about std::string's own concatenation (GCC bug 105651).
target_compile_options(ampc_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Wno-restrict -fno-math-errno -ffp-contract=off>)
if(AMPC_WERROR)
  target_compile_options(ampc_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(AMPC_SANITIZE)
  # -Wmaybe-uninitialized: false positives in GCC 12 once the sanitizers have rewritten the code.
  target_compile_options(ampc_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1>)
  target_link_options(ampc_flags INTERFACE -fsanitize=address,undefined)
endif()
if(AMPC_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR NOT AMPC_SANITIZE)
    message(FATAL_ERROR "the fuzz targets need clang and the sanitizers: CXX=clang++-19 cmake --preset fuzz "
      "(scripts/test.sh does so)")
  endif()
  target_compile_options(ampc_flags INTERFACE -fsanitize=fuzzer-no-link -Wno-unknown-warning-option)
endif()

function(ampc_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${ARG_NAME} STATIC ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PUBLIC ampc_flags ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

function(ampc_test)
  cmake_parse_arguments(ARG "" "NAME;LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ampc_flags ${ARG_DEPS} GTest::gtest_main)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  ampc_test_properties(${ARG_NAME} LABEL ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# What every test entry shares. Spinning OpenMP threads make small kernels slow when tests run side by
# side; gtest's and lit's own reports go to test-results/, where scripts/summarize_tests.py reads them.
function(ampc_test_properties name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "" ${ARGN})
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABEL}"
    TIMEOUT "${ARG_TIMEOUT}"
    ENVIRONMENT "OMP_WAIT_POLICY=passive;GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/test-results/;UBSAN_OPTIONS=print_stacktrace=1")
endfunction()
