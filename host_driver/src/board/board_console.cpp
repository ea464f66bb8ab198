// Text of the firmware.
#include <fmt/format.h>

#include "src/board/board_impl.hpp"
#include "src/texts/fault_text.hpp"
#include "src/texts/firmware.hpp"
#include "terminal/printable_text.hpp"
#include "tpu/spec/core_page_regs.hpp"

namespace tpu::driver {
namespace {

namespace core_page = spec::core_page;

}  // namespace

// When nobody will run the board any more.
void BoardImpl::take_rest_of_console() {
  try {
    if (transport_) {
      outbox_.add_console(transport_->take_console());
    }
  } catch (const std::exception&) {
    // The model broke, and was reported: its text went with it.
  }
}

}  // namespace tpu::driver
