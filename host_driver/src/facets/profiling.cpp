// Looks at the debug port, and logs that begin and end between launches.
#include "src/facets/profiling.hpp"

namespace tpu::driver {

template <typename Look>
auto Profiling::look(const Look& at) {
  const Door::Entry entry(door_, EntryKind::kLook);
  health_.check_usable();
  return at();
}

uint64_t Profiling::now() {
  return look([&] { return transport_->now(); });
}

std::vector<uint64_t> Profiling::hart_instructions() {
  return look([&] { return transport_->stats().hart_instructions; });
}

std::vector<uint64_t> Profiling::run_cycles() {
  return look([&] { return transport_->stats().run_cycles; });
}

std::vector<HostWorkTime> Profiling::host_profile() {
  return look([&] { return transport_->stats().profile; });
}

std::vector<ThreadForecast> Profiling::thread_forecast(const std::vector<int>& threads) {
  return look([&] { return transport_->thread_forecast(threads); });
}

std::vector<OpTime> Profiling::op_times() {
  return look([&]() TPU_REQUIRES(board_lock) { return records_.op_times(); });
}

std::string Profiling::take_xspace() {
  return look([&] { return transport_->take_xspace(); });
}

std::string Profiling::take_record() {
  return look([&] { return transport_->take_record(); });
}

void Profiling::log_commands(const std::optional<spec::MemoryLook>& look) {
  const Door::Entry entry(door_);
  health_.check_usable();
  settle_();
  transport_->log_commands(look);
}

spec::CommandLog Profiling::take_commands() {
  const Door::Entry entry(door_);
  health_.check_usable();
  settle_();
  return transport_->take_commands();
}

}  // namespace tpu::driver
