// Codes of attributes and types in the bytecode of the dialects builtin, vhlo, stablehlo and sdy
// (Shardy).
// Codes are append-only in their dialects. Only what the reader decodes is named.
#pragma once

#include <cstdint>

namespace tpu::compiler::bytecode {

namespace builtin_attr {
constexpr uint32_t kArray = 0, kDictionary = 1, kString = 2, kStringWithType = 3, kSymbol = 4,
                   kType = 6, kUnit = 7, kInteger = 8, kFloat = 9, kCallSiteLoc = 10, kFileLoc = 11,
                   kFusedLoc = 12, kFusedLocMetadata = 13, kNameLoc = 14, kUnknownLoc = 15,
                   kDenseArray = 17, kDense = 18, kFileRangeLoc = 22;
}
namespace builtin_type {
constexpr uint32_t kInteger = 0, kIndex = 1, kFunction = 2, kBf16 = 3, kF16 = 4, kF32 = 5, kF64 = 6,
                   kComplex = 9, kNone = 12, kTensor = 13, kTensorEncoding = 14, kTuple = 15;
}
namespace vhlo_attr {
constexpr uint32_t kArray = 1, kBool = 2, kCompareDirection = 3, kCompareType = 4, kApiVersion = 5,
                   kDictionary = 6, kFftType = 7, kFloat = 8, kInteger = 9, kOutputAlias = 10,
                   kPrecision = 11, kRngAlgorithm = 12, kRngDistribution = 13, kString = 14,
                   kTensor = 15, kTransposeMode = 16, kType = 17, kBounds = 18, kAccuracyMode = 19,
                   kResultAccuracy = 20;
}
namespace vhlo_type {
constexpr uint32_t kI1 = 0, kComplex = 1, kBf16 = 2, kF16 = 3, kF32 = 4, kF64 = 5, kF8E4M3FN = 6,
                   kF8E5M2 = 7, kFunction = 8, kIndex = 9, kI4 = 10, kI8 = 11, kI16 = 12, kI32 = 13,
                   kI64 = 14, kU4 = 15, kU8 = 16, kU16 = 17, kU32 = 18, kU64 = 19, kTensor = 20,
                   kTensorEncoding = 21, kToken = 22, kTuple = 23, kUnranked = 25, kWitness = 26,
                   kF8E4M3FNUZ = 27, kF8E5M2FNUZ = 28, kF8E4M3B11 = 29, kI2 = 31, kU2 = 32,
                   kNone = 33, kTf32 = 34, kF8E4M3 = 35, kF8E3M4 = 36, kF4E2M1 = 37, kF6E2M3 = 38,
                   kF6E3M2 = 39, kF8E8M0 = 40;
}
namespace stablehlo_attr {
constexpr uint32_t kChannelHandle = 1, kCompareDirection = 2, kCompareType = 3, kConvDimensions = 4,
                   kDotDimensions = 5, kFftType = 6, kGatherDimensions = 7, kPrecision = 8,
                   kRngAlgorithm = 9, kRngDistribution = 10, kScatterDimensions = 11,
                   kTranspose = 12, kBounds = 13, kOutputAlias = 14, kDotAlgorithm = 15,
                   kAccuracyMode = 16, kResultAccuracy = 17, kGroupsByAxes = 18, kSubAxis = 19,
                   kAxisRef = 20;
}
namespace stablehlo_type {
constexpr uint32_t kToken = 0;
}
namespace sdy_attr {
constexpr uint32_t kManualAxes = 0, kMeshAxis = 1, kMesh = 2, kSubAxis = 3, kAxisRef = 4,
                   kDimSharding = 5, kTensorSharding = 6, kPerValue = 7, kDimMapping = 8,
                   kTensorMapping = 9, kShardingRule = 10, kTensorShardingUnreduced = 15,
                   kPerValueAlso = 16, kTensorShardingReduction = 17;
}

}  // namespace tpu::compiler::bytecode
