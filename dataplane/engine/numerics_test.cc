#include "dataplane/engine/numerics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tidepool::engine {
namespace {

TEST(NumericsTest, EveryArithmeticHasItsOwnId) {
  std::set<std::string> ids;
  for (const auto mode : {ComputeMode::kFloat32, ComputeMode::kBFloat16}) {
    for (const auto isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16})
      EXPECT_TRUE(ids.insert(NumericsId(mode, isa)).second);
  }
  EXPECT_EQ(NumericsId(ComputeMode::kBFloat16, Isa::kAvx512Bf16),
            "cpu-bf16-avx512bf16-v1");
}

TEST(NumericsTest, NamesParse) {
  for (const auto isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512Bf16})
    EXPECT_EQ(*ParseIsa(NameOf(isa)), isa);
  for (const auto mode : {ComputeMode::kFloat32, ComputeMode::kBFloat16})
    EXPECT_EQ(*ParseComputeMode(NameOf(mode)), mode);
  EXPECT_EQ(ParseIsa("avx1024").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParseComputeMode("int8").status().code(), Code::kInvalidArgument);
}

TEST(NumericsTest, ThePortableKernelsRunEverywhere) {
  EXPECT_THAT(SupportedIsas(), testing::Contains(Isa::kPortable));
  EXPECT_EQ(*ResolveIsa(std::nullopt), SupportedIsas().back());
  EXPECT_EQ(*ResolveIsa(Isa::kPortable), Isa::kPortable);
}

TEST(NumericsTest, LayoutFollowsTheMode) {
  const model::ModelConfig config{
      .num_layers = 3, .num_heads = 8, .num_kv_heads = 2, .head_dim = 48};
  const KvLayout layout = KvLayoutFor(config, ComputeMode::kBFloat16, 32);
  EXPECT_EQ(layout.slice_bytes(), 2 * 2 * 32 * 48 * 2);
  EXPECT_EQ(layout.page_bytes(), 3 * layout.slice_bytes());
  EXPECT_EQ(KvLayoutFor(config, ComputeMode::kFloat32, 32).element_bytes, 4);
}

}  // namespace
}  // namespace tidepool::engine
