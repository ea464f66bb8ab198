// Checks in TensorFlow's headers write numbers. libtensorflow_cc.so does not export how, and its
// headers instantiate nothing; which checks are left depends on what the compiler inlines.

#include <absl/log/internal/log_message.h>

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace log_internal {

template LogMessage& LogMessage::operator<<(const int& value);
template LogMessage& LogMessage::operator<<(const long& value);  // NOLINT(google-runtime-int)
template LogMessage& LogMessage::operator<<(
    const unsigned long& value);  // NOLINT(google-runtime-int)

}  // namespace log_internal
ABSL_NAMESPACE_END
}  // namespace absl
