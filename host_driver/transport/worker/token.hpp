// Secrets of 256 bits: tokens in files, numbers of sessions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tpu::driver::worker {

inline constexpr size_t kSecretBytes = 32;

/// From a file of 64 hexadecimal digits that nobody but its owner can read. Throws Error
/// (InvalidArgument, FailedPrecondition).
std::vector<std::byte> read_token(const std::string& path);
/// The same; a file that is not there is made with a new token.
std::vector<std::byte> read_or_make_token(const std::string& path);

std::vector<std::byte> random_secret();
/// In a time that does not depend on the contents.
bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace tpu::driver::worker
