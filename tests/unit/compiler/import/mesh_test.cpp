// Meshes and shardings of Shardy and GSPMD: one mesh of atoms says them all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/gspmd.hpp"
#include "import/import.hpp"

namespace tpu::compiler {
namespace {

using frontend::GspmdSharding;
using frontend::MeshAtoms;
using frontend::Numbering;
using testing::HasSubstr;
using DimAxes = std::vector<std::vector<int>>;

Module load(const std::string& name) {
  return import_vhlo_file(std::string(TPU_TEST_DATA) + "/" + name + ".mlirbc");
}

std::string error_of(const std::string& name) {
  try {
    load(name);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Of the constraints of main, in order.
std::vector<ShardingAttrs> constraints(const Module& m) {
  std::vector<ShardingAttrs> all;
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kShardingConstraint) {
      all.push_back(op->as<ShardingAttrs>());
    }
  }
  return all;
}

std::vector<const ManualAttrs*> shard_maps(const Module& m) {
  std::vector<const ManualAttrs*> all;
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kManualComputation) {
      all.push_back(&op->as<ManualAttrs>());
    }
  }
  return all;
}

std::vector<std::string> names(const Mesh& mesh) {
  std::vector<std::string> all;
  for (const MeshAxis& axis : mesh.axes) {
    all.push_back(axis.name + "=" + std::to_string(axis.size));
  }
  return all;
}

TEST(MeshAtoms, AxesAreCutIntoPrimes) {
  MeshAtoms atoms;
  EXPECT_FALSE(atoms.known());
  atoms.adopt({"", {{"a", 12}, {"one", 1}, {"b", 2}}, {}});
  EXPECT_EQ(names(atoms.mesh()),
            (std::vector<std::string>{"a:(1)2=2", "a:(2)2=2", "a:(4)3=3", "b=2"}));
}

TEST(MeshAtoms, FindsWhatNumbersTheDevicesAlike) {
  MeshAtoms atoms;
  atoms.adopt({"", {{"a", 4}, {"b", 2}}, {}});
  EXPECT_EQ(atoms.find({{0, 1, 2, 3, 4, 5, 6, 7}, 8}), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(atoms.find({{0, 2, 0, 2, 1, 3, 1, 3}, 4}), (std::vector<int>{2, 0}));
  EXPECT_EQ(atoms.find({{0, 0, 0, 0, 0, 0, 0, 0}, 1}), std::vector<int>());
  EXPECT_EQ(atoms.find({{0, 1, 1, 0, 0, 1, 1, 0}, 2}), std::nullopt);
}

// Whatever a mesh is, its axes are atoms once its devices are put in another order.
TEST(MeshAtoms, AnyMeshHasAnOrder) {
  MeshAtoms atoms;
  atoms.adopt({"", {{"a", 3}, {"b", 2}}, {}});
  const Mesh turned{"", {{"c", 2}, {"d", 3}}, {5, 0, 3, 1, 4, 2}};
  const std::vector<int64_t> order = atoms.order_of(turned);
  for (const frontend::Numbering& axis : frontend::numberings(turned)) {
    EXPECT_TRUE(atoms.find(frontend::reordered(axis, order)));
  }
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 6u);
  EXPECT_TRUE(atoms.order_of({"", {{"x", 1}, {"y", 3}, {"z", 2}}, {}}).empty());
}

TEST(MeshAtoms, KeepsTheOrderOfTheFirstMesh) {
  MeshAtoms atoms;
  const Mesh ring{"", {{"a", 4}}, {0, 1, 3, 2}};
  atoms.adopt(ring);
  EXPECT_EQ(atoms.mesh().coordinates(3), (Dims{1, 0}));
  EXPECT_EQ(atoms.find(frontend::numberings(ring)[0]), (std::vector<int>{0, 1}));
  EXPECT_EQ(atoms.find({{0, 1, 2, 3}, 4}), std::nullopt);
}

TEST(ImportMeshes, PartsOfAxes) {
  const Module m = load("mesh_parts");
  const auto all = constraints(m);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].sharding.dim_axes, (DimAxes{{0}, {2, 1}}));
  EXPECT_EQ(all[1].sharding.dim_axes, (DimAxes{{}, {2}}));
  EXPECT_EQ(all[1].open, (std::vector<bool>{true, false}));
}

TEST(ImportMeshes, SeveralMeshesAreOne) {
  const Module m = load("mesh_several");
  EXPECT_EQ(names(m.mesh), (std::vector<std::string>{"a:(1)2=2", "a:(2)2=2", "b=2"}));
  const auto all = constraints(m);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].sharding.dim_axes, (DimAxes{{0, 1}, {2}}));
  EXPECT_EQ(all[1].sharding, all[0].sharding);
  EXPECT_EQ(all[2].sharding.dim_axes, (DimAxes{{0, 1, 2}, {}}));
  EXPECT_TRUE(all[3].sharding.is_replicated());
  EXPECT_TRUE(all[4].sharding.is_replicated());
}

TEST(ImportMeshes, DevicesInAnotherOrder) {
  const Module m = load("mesh_of_another_order");
  EXPECT_EQ(m.mesh.device_ids, (std::vector<int64_t>{0, 1, 2, 3, 6, 7, 4, 5}));
  EXPECT_EQ(constraints(m)[0].sharding.shard_index(m.mesh, 6, 2), (Dims{4, 0}));
}

TEST(ImportMeshes, TwoOrdersOfTheDevices) {
  const Module m = load("mesh_two_orders");
  const auto all = constraints(m);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].sharding.order.empty());
  EXPECT_EQ(all[1].sharding.order, (std::vector<int64_t>{0, 1, 2, 3, 6, 7, 4, 5}));
  EXPECT_EQ(all[1].sharding.shard_index(m.mesh, 6, 2), (Dims{4, 0}));
}

TEST(ImportMeshes, RefusesContradictions) {
  EXPECT_THAT(error_of("bad_mesh_size"),
              HasSubstr("the mesh has 4 devices but the program 8 partitions"));
  EXPECT_THAT(error_of("bad_mesh_axis"),
              HasSubstr("sdy.sharding_constraint: the sharding names the axis 'rows'; the mesh has "
                        "x, y"));
  EXPECT_THAT(error_of("bad_mesh_axis_twice"),
              HasSubstr("sdy.sharding_constraint: the sharding names the axis 'rows' twice; an "
                        "axis can shard an array only once"));
  for (const char* name : {"bad_mesh_size", "bad_mesh_axis", "bad_mesh_axis_twice"}) {
    EXPECT_THROW(load(name), Contradiction) << name;
  }
}

TEST(ImportMeshes, UnreducedAxes) {
  const auto all = constraints(load("mesh_unreduced"));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].sharding.dim_axes, (DimAxes{{0, 1}, {}}));
  EXPECT_EQ(all[0].sharding.unreduced, (std::vector<int>{2}));
  EXPECT_TRUE(all[1].sharding.dim_axes.empty());
  EXPECT_EQ(all[1].sharding.unreduced, (std::vector<int>{1, 2}));
}

// The op has no result: what is returned is the constraint's.
TEST(ImportMeshes, GroupsOfArraysThatLieAlike) {
  const Module m = load("sharding_group");
  const auto all = constraints(m);
  ASSERT_EQ(all.size(), 2u);
  for (const ShardingAttrs& a : all) {
    ASSERT_TRUE(a.group);
    EXPECT_EQ(*a.group, *all[0].group);
    EXPECT_TRUE(a.sharding.is_replicated());
    EXPECT_EQ(a.open, (std::vector<bool>{true, true}));
  }
  EXPECT_EQ(m.main->body.terminator()->operands[0], m.main->body.ops[1]->result());
  EXPECT_THAT(error_of("bad_sharding_group"),
              HasSubstr("sdy.sharding_group: an array of shape [8,4] cannot lie like those of "
                        "group "));
}

TEST(ImportGspmd, ArgumentsAreCut) {
  const Module m = load("gspmd_argument");
  ASSERT_TRUE(m.main->args[0].wanted);
  EXPECT_EQ(m.main->args[0].wanted->sharding.dim_axes, (DimAxes{{0, 1, 2}}));
  EXPECT_EQ(m.mesh.size(), 8);
}

TEST(ImportGspmd, ShardMapIsAnOp) {
  const Module m = load("gspmd_shard_map");
  EXPECT_EQ(m.main->args[0].wanted->sharding.dim_axes, (DimAxes{{0, 1}, {2}}));
  EXPECT_EQ(m.main->args[1].wanted->sharding.dim_axes, (DimAxes{{}, {2}}));
  const auto maps = shard_maps(m);
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_EQ(maps[0]->manual_axes, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(maps[0]->in[0].sharding.dim_axes, (DimAxes{{0, 1}, {2}}));
  EXPECT_EQ(maps[0]->in[1].sharding.dim_axes, (DimAxes{{2}, {}}));
  EXPECT_EQ(maps[0]->out[0].sharding.dim_axes, (DimAxes{{0, 1}, {}}));
  EXPECT_EQ(maps[0]->out[1].sharding.dim_axes, (DimAxes{{2}, {}}));
  EXPECT_EQ(maps[1]->manual_axes, (std::vector<int>{0, 1}));
  EXPECT_TRUE(maps[1]->out[0].sharding.is_replicated());
  const auto all = constraints(m);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].open, (std::vector<bool>{false, true}));
}

class ReadGspmd : public testing::Test {
 protected:
  DimAxes cut(std::string_view text, size_t rank) {
    return frontend::read_gspmd(text, rank, 8, atoms_).attrs.sharding.dim_axes;
  }
  std::string error(std::string_view text, size_t rank) {
    try {
      cut(text, rank);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  MeshAtoms atoms_;
};

TEST_F(ReadGspmd, Tiles) {
  EXPECT_EQ(cut("{devices=[8,1]<=[8]}", 2), (DimAxes{{0, 1, 2}, {}}));
  EXPECT_EQ(cut("{devices=[2,4]<=[4,2]T(1,0)}", 2), (DimAxes{{2}, {0, 1}}));
  EXPECT_EQ(cut("{devices=[2,4]0,2,4,6,1,3,5,7}", 2), (DimAxes{{2}, {0, 1}}));
  EXPECT_EQ(cut("{devices=[1,2,2,2]<=[8] last_tile_dim_replicate}", 3), (DimAxes{{}, {0}, {1}}));
  EXPECT_EQ(cut("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", 2), (DimAxes{{}, {2}}));
  EXPECT_EQ(cut("{{devices=[8]<=[8]}}", 1), (DimAxes{{0, 1, 2}}));
}

TEST_F(ReadGspmd, CopiesMayBeInAnyOrder) {
  EXPECT_EQ(cut("{devices=[2,1,4]3,0,2,1,7,5,6,4 last_tile_dim_replicate}", 2), (DimAxes{{0}, {}}));
}

TEST_F(ReadGspmd, Words) {
  for (const char* whole : {"{replicated}", "{devices=[1,1,8]<=[8] last_tile_dim_replicate}",
                            "{maximal device=3}", "{manual}", "{unknown}"}) {
    EXPECT_EQ(cut(whole, 2), DimAxes()) << whole;
  }
  EXPECT_TRUE(frontend::read_gspmd("{manual}", 2, 8, atoms_).manual);
  EXPECT_TRUE(frontend::read_gspmd("{unknown}", 2, 8, atoms_).unknown);
}

TEST_F(ReadGspmd, Groups) {
  EXPECT_FALSE(frontend::read_gspmd("{unknown}", 2, 8, atoms_).attrs.group);
  for (const char* text : {"{unknown shard_as 12}", "{unknown shard_like 12}"}) {
    const GspmdSharding s = frontend::read_gspmd(text, 2, 8, atoms_);
    EXPECT_EQ(s.attrs.group, 12) << text;
    EXPECT_EQ(s.attrs.open, (std::vector<bool>{true, true})) << text;
  }
  EXPECT_THAT(error("{unknown shard_as x}", 1), HasSubstr("expected a number"));
}

TEST_F(ReadGspmd, ManualAxes) {
  const GspmdSharding s = frontend::read_gspmd(
      "{devices=[1,2,2,2]<=[8] last_tile_dims={manual, replicated}}", 2, 8, atoms_);
  EXPECT_EQ(s.attrs.sharding.dim_axes, (DimAxes{{}, {0}}));
  EXPECT_EQ(s.manual_axes, std::vector<int>{1});
}

TEST_F(ReadGspmd, AListInAnotherOrderIsTheMesh) {
  EXPECT_EQ(cut("{devices=[8]0,1,2,3,6,7,4,5}", 1), (DimAxes{{0, 1, 2}}));
  EXPECT_EQ(atoms_.mesh().device_ids, (std::vector<int64_t>{0, 1, 2, 3, 6, 7, 4, 5}));
  const Sharding other = frontend::read_gspmd("{devices=[8]<=[8]}", 1, 8, atoms_).attrs.sharding;
  EXPECT_EQ(other.dim_axes, (DimAxes{{0, 1, 2}}));
  EXPECT_EQ(other.order, (std::vector<int64_t>{0, 1, 2, 3, 6, 7, 4, 5}));
}

TEST_F(ReadGspmd, RefusesOthers) {
  for (const char* text :
       {"", "{", "{devices=[1,1", "{devices=[4,1]<=[4]}", "{devices=[8]<=[4,2]}x(",
        "{devices=[8,1]0,1}", "{devices=[8]0,1,2,3,4,5,6,6}", "{tiles}",
        "{devices=[8]<=[4,2]T(1,1)}", "{devices=[8]<=[8] last_tile_dims={both}}",
        "{devices=[99999999999999999999]<=[8]}"}) {
    EXPECT_THAT(error(text, 1), HasSubstr("the sharding '")) << text;
  }
}

TEST(MeshGroups, AlongAxesAreListsOfCores) {
  const Module m = load("groups_along_axes");
  std::vector<Groups> all;
  for (const auto& op : m.main->body.ops) {
    if (op->kind == Kind::kAllGather) {
      all.push_back(op->as<CollectiveAttrs>().groups);
    }
  }
  EXPECT_EQ(all,
            (std::vector<Groups>{{{0, 4, 1, 5}, {2, 6, 3, 7}}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}}));
  EXPECT_THAT(error_of("bad_groups_axis_twice"), HasSubstr("named twice"));
}

}  // namespace
}  // namespace tpu::compiler
