// SPDX-License-Identifier: Apache-2.0
//
// write_model PATH VALUE: a model whose only initializer "w", 1,024 floats VALUE, lies beside it.
// What the tools do with models over 2 GiB, small enough for faults.py to stop it at every system
// call.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/base/model_writer.h"
#include "runtime/base/wire.h"

namespace ampc {
namespace {

Status Write(const std::string& path, float value) {
  AMPC_ASSIGN(ModelWriter writer, ModelWriter::Create(path, /*beside=*/true));
  std::string version;
  AppendNumber(1, 8, &version);  // ModelProto.ir_version
  AMPC_TRY(writer.Append(version));
  const std::vector<float> data(1024, value);
  const Dims dims = {1024};
  AMPC_TRY(writer.Begin({.name = "w", .dtype = DType::kFloat32, .dims = dims}));
  AMPC_TRY(writer.AppendData(std::as_bytes(std::span(data))));
  return writer.Commit();
}

}  // namespace
}  // namespace ampc

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const ampc::Status status = ampc::Write(argv[1], static_cast<float>(atof(argv[2])));
  if (status.ok()) return 0;
  fprintf(stderr, "write_model: %s\n", status.ToString().c_str());
  return status.exit_code();
}
