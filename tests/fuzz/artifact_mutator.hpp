// Damages artifacts: flipped bits, changed bytes, cuts, spliced pieces. The same seed gives the
// same inputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace tpu::test {

class ArtifactMutator {
 public:
  using Bytes = std::vector<std::byte>;

  explicit ArtifactMutator(uint32_t seed) : random_(seed) {}

  Bytes mutate(const Bytes& original) {
    Bytes b = original;
    const size_t changes = 1 + below(4);
    for (size_t i = 0; i < changes && !b.empty(); ++i) {
      const size_t at = below(b.size());
      switch (below(6)) {
        case 0:
        case 1:
          b[at] ^= static_cast<std::byte>(1u << below(8));
          break;
        case 2:
          b[at] = static_cast<std::byte>(below(256));
          break;
        case 3:
          b.resize(at);
          break;
        case 4: {  // a piece of the file over another
          const size_t n = std::min({below(16) + 1, b.size() - at, b.size()});
          const size_t from = below(b.size() - n + 1);
          std::copy_n(Bytes(b.begin() + static_cast<std::ptrdiff_t>(from), b.end()).begin(), n,
                      b.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        }
        default:
          b.insert(b.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(below(256)));
          break;
      }
    }
    return b;
  }

 private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  std::mt19937 random_;
};

}  // namespace tpu::test
