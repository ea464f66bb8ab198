// The extension by which a framework partitions its custom calls: what it is asked, and what its
// answers may be. JAX's own answers: partitioning_test.py.
#include <gmock/gmock.h>

#include <functional>

#include "plugin_calls.hpp"

namespace tpu::test {
namespace {

using testing::HasSubstr;
using String = JAX_CustomCallPartitioner_string;
using PartitionArgs = JAX_CustomCallPartitioner_Partition_Args;

const PJRT_Custom_Partitioner_Extension& partitioners() {
  const PJRT_Extension_Base* extension = api().extension_start;
  while (extension->type != PJRT_Extension_Type_Custom_Partitioner) {
    extension = extension->next;
  }
  return *reinterpret_cast<const PJRT_Custom_Partitioner_Extension*>(extension);
}

String view(const std::string& text) { return {text.data(), text.size()}; }
std::string text_of(const String& view) { return {view.data, view.size}; }

// Answers as `answer` says; strings live until the plugin frees the answer.
struct Framework {
  std::function<void(PartitionArgs&)> answer;
  std::string program, sharding, error;
  String operand{};
  int asked = 0, freed = 0;

  static Framework& of(void* data) { return *static_cast<Framework*>(data); }
  static void partition(JAX_CustomCallPartitioner_Callbacks* callbacks, PartitionArgs* args) {
    Framework& self = of(callbacks->private_data);
    ++self.asked;
    args->header.data = &self;
    args->header.cleanup_fn = [](void* data) { ++of(data).freed; };
    self.answer(*args);
  }
};

class PjrtPartitioner : public testing::Test {
 protected:
  PjrtPartitioner() {
    framework_.program = graph("data/own_partitioning_part.mlirbc");
    callbacks_ = {};
    callbacks_.version = 1;
    callbacks_.private_data = &framework_;
    callbacks_.partition = Framework::partition;
    EXPECT_EQ(registered(callbacks_).text, "");
  }
  ~PjrtPartitioner() override {  // the table of the library lives on
    static JAX_CustomCallPartitioner_Callbacks nobody{};
    static Framework none;
    none.answer = [](PartitionArgs& args) { args.header.has_error = true; };
    nobody.private_data = &none;
    nobody.partition = Framework::partition;
    registered(nobody);
  }

  static Outcome registered(JAX_CustomCallPartitioner_Callbacks& callbacks) {
    const std::string name = "CustomSPMDPartitioning";
    auto args = args_of<PJRT_Register_Custom_Partitioner_Args>();
    args.name = name.data();
    args.name_size = name.size();
    args.callbacks = &callbacks;
    return outcome_of(partitioners().register_custom_partitioner(&args));
  }

  // Arrays lie as they do; `program` and `sharding` where they are set.
  void answers(PartitionArgs& args) {
    framework_.sharding =
        framework_.sharding.empty() ? text_of(args.op_args[0].sharding) : framework_.sharding;
    framework_.operand = view(framework_.sharding);
    args.mlir_module = view(framework_.program);
    args.args_sharding = &framework_.operand;
    args.result_sharding = framework_.operand;
  }

  Outcome compiled() {
    PJRT_Client* client = make_client();
    const auto [executable, outcome] =
        compile(client, graph("data/own_partitioning.mlirbc"), "mlir", partitions(8));
    EXPECT_EQ(framework_.freed, framework_.asked);
    if (executable != nullptr) {
      auto args = args_of<PJRT_LoadedExecutable_Destroy_Args>();
      args.executable = executable;
      EXPECT_EQ(api().PJRT_LoadedExecutable_Destroy(&args), nullptr);
    }
    auto args = args_of<PJRT_Client_Destroy_Args>();
    args.client = client;
    EXPECT_EQ(api().PJRT_Client_Destroy(&args), nullptr);
    return outcome;
  }

  Framework framework_;
  JAX_CustomCallPartitioner_Callbacks callbacks_;
};

TEST_F(PjrtPartitioner, IsAskedWithShapesAndTiles) {
  framework_.answer = [this](PartitionArgs& args) {
    EXPECT_EQ(args.num_args, 1u);
    EXPECT_EQ(text_of(args.backend_config), "key");
    // ShapeProto: F32 (11), dimensions 8 and 6, none dynamic
    EXPECT_EQ(text_of(args.op_args[0].shape),
              std::string("\x10\x0b\x1a\x02\x08\x06\x32\x02\0\0", 10));
    // OpSharding: OTHER, tiles 4 x 1 x 2 copies of cores 0 .. 7
    EXPECT_EQ(text_of(args.op_args[0].sharding),
              std::string("\x08\x03\x1a\x03\x04\x01\x02\x22\x08\0\1\2\3\4\5\6\7\x30\x01", 19));
    EXPECT_EQ(text_of(args.op_result.sharding), "");
    answers(args);
  };
  EXPECT_EQ(compiled().text, "");
  EXPECT_EQ(framework_.asked, 1);
  EXPECT_EQ(compiled().text, "");
  EXPECT_EQ(framework_.asked, 2);  // no cache knows the program
}

TEST_F(PjrtPartitioner, ItsErrorIsThatOfTheCompilation) {
  framework_.answer = [this](PartitionArgs& args) {
    framework_.error = "no way";
    args.header.has_error = true;
    args.header.error_msg = view(framework_.error);
  };
  const Outcome outcome = compiled();
  EXPECT_EQ(outcome.code, PJRT_Error_Code_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.text, HasSubstr("stablehlo.custom_call: custom_partitioning: no way"));
}

TEST_F(PjrtPartitioner, AnswersThatCannotBeReadAreErrors) {
  framework_.answer = [this](PartitionArgs& args) { answers(args); };
  // a length behind the end; a list of devices that is one short; a device alone
  for (const std::string& sharding :
       {std::string("\x1a\x7f"), std::string("\x08\x03\x1a\x02\x08\x01\x22\x07\0\1\2\3\4\5\6", 15),
        std::string("\x08\x01\x1a\x01\x01\x22\x01\0", 8)}) {
    framework_.sharding = sharding;
    EXPECT_NE(compiled().code, PJRT_Error_Code_OK);
  }
  framework_.sharding.clear();
  for (const std::string& program : {std::string(), std::string("ML\xefR"), std::string("text")}) {
    framework_.program = program;
    EXPECT_NE(compiled().code, PJRT_Error_Code_OK);
  }
}

TEST_F(PjrtPartitioner, AnotherVersionIsRefused) {
  JAX_CustomCallPartitioner_Callbacks newer = callbacks_;
  newer.version = 2;
  EXPECT_EQ(registered(newer).code, PJRT_Error_Code_UNIMPLEMENTED);
}

}  // namespace
}  // namespace tpu::test
