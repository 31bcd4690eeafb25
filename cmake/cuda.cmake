# SPDX-License-Identifier: Apache-2.0
# The CUDA device is optional. AMPC_CUDA says what is wanted: AUTO builds it when the toolkit, cuBLASLt and
# cuDNN are found, ON fails without them, OFF never looks. Sets AMPC_HAVE_CUDA; where it is true, the language
# CUDA is enabled and ampc_cuda_deps carries headers, libraries and flags of everything under kernels/cuda.

set(AMPC_HAVE_CUDA OFF)
set(ampc_cuda_missing "")
if(AMPC_CUDA STREQUAL "OFF")
  set(ampc_cuda_missing "AMPC_CUDA=OFF")
else()
  find_program(AMPC_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT AMPC_NVCC)
    set(ampc_cuda_missing "nvcc not found")
  else()
    if(NOT CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER "${AMPC_NVCC}")
    endif()
    if(NOT CMAKE_CUDA_HOST_COMPILER)
      set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
    endif()
    find_package(CUDAToolkit 12.4 QUIET)
    find_path(AMPC_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(AMPC_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(NOT CUDAToolkit_FOUND)
      set(ampc_cuda_missing "no CUDA toolkit >= 12.4 beside ${AMPC_NVCC}")
    elseif(NOT TARGET CUDA::cublasLt)
      set(ampc_cuda_missing "cuBLASLt not found")
    elseif(NOT AMPC_CUDNN_INCLUDE OR NOT AMPC_CUDNN_LIBRARY)
      set(ampc_cuda_missing "cuDNN not found")
    endif()
  endif()
endif()

if(ampc_cuda_missing STREQUAL "")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Machine code for A100 and H100/H200; the last one also as PTX, for what comes after.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know yet that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # cuBLASLt and cuDNN bring the shared one; two copies would be two states
  set(AMPC_HAVE_CUDA ON)

  add_library(ampc_cuda_deps INTERFACE)
  target_include_directories(ampc_cuda_deps SYSTEM INTERFACE
    ${CUDAToolkit_INCLUDE_DIRS} "${AMPC_CUDNN_INCLUDE}" "${AMPC_DEPS}/include")
  # nvrtc by path: its imported target also links the driver, and a program that does so does not start without one.
  target_link_libraries(ampc_cuda_deps INTERFACE
    CUDA::cudart CUDA::cublasLt "${CUDA_nvrtc_LIBRARY}" "${AMPC_CUDNN_LIBRARY}")
  # CMake leaves nvcc's own folders out of the run path; without it the tools rely on the loader's configuration.
  cmake_path(GET AMPC_CUDNN_LIBRARY PARENT_PATH ampc_cudnn_folder)
  target_link_options(ampc_cuda_deps INTERFACE
    "LINKER:-rpath,${CUDAToolkit_LIBRARY_DIR}" "LINKER:-rpath,${ampc_cudnn_folder}")
  target_compile_options(ampc_cuda_deps INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-Wall,-Wextra --expt-relaxed-constexpr>")
  message(STATUS "device backends: null, cpu, cuda ${CUDAToolkit_VERSION} (${CMAKE_CUDA_ARCHITECTURES})")
elseif(AMPC_CUDA STREQUAL "ON")
  message(FATAL_ERROR "AMPC_CUDA=ON, but ${ampc_cuda_missing}; install it, or configure with -DAMPC_CUDA=AUTO")
else()
  message(STATUS "device backends: null, cpu (no cuda: ${ampc_cuda_missing})")
endif()
