// See cudnn_session.h.
#include "cuda/cudnn/cudnn_session.h"

#include <map>
#include <memory>

#include "base/fork_gate.h"
#include "cuda/device/driver.h"

namespace convtune::cuda {

CudnnSession& cudnn_session(int device) {
  static constinit Mutex mutex;
  // Never destroyed: at the end of a process the driver may be gone before cuDNN.
  auto& sessions = *once([] { return new std::map<int, std::unique_ptr<CudnnSession>>; });
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudnnSession>& session = sessions[device];
  if (session == nullptr) {
    const DeviceScope scope(device);
    auto made = std::make_unique<CudnnSession>();
    check_cudnn(cudnn_functions().cudnnCreate(&made->handle), "create a handle");
    session = std::move(made);
  }
  return *session;
}

void describe_device(CudnnSession& session, std::string_view json) {
  session.device.emplace(CudnnKind::device_properties);
  session.device->set_text(CudnnAttribute::device_properties_json, json);
  session.device->finalize();
}

}  // namespace convtune::cuda
