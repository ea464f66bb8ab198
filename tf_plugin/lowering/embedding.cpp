// Programs for the tables of embeddings: a lookup, and the update that its gradients make. The rows
// of a table are divided between the cores. Each core tells all others the ids that it wants. The
// core that has a row adds it to the vector of each sample that wants it, and the sums of these
// parts go to the cores of the samples. Gradients go the other way, to the core that has the row.
#include "lowering/lowered.hpp"
#include "lowering/outcome.hpp"
#include "tensorflow/c/tf_tensor.h"
#include "tensorflow/core/protobuf/tpu/optimization_parameters.pb.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tpu::tensorflow {
namespace {

namespace tf = ::tensorflow;
using Config = tf::tpu::TPUEmbeddingConfiguration;
using Optimization = tf::tpu::OptimizationParameters;
using xla::XlaOp;

absl::StatusOr<Config> config_of(absl::string_view bytes) {
  Config config;
  if (!config.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the configuration of TPUEmbedding is damaged");
  }
  return config;
}

absl::Status unsupported(const Config::TableDescriptor& table, absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("TPUEmbedding, table ", table.name(), ": ", what,
                   "; expected tf.tpu.experimental.embedding.SGD, Adagrad, Adam or FTRL"));
}

// How many arrays the optimizer has for a table, with the parameters.
absl::StatusOr<size_t> arrays_of(const Config::TableDescriptor& table) {
  const Optimization& how = table.optimization_parameters();
  if (how.simulated_quantization().enabled()) {
    return unsupported(table, "simulated quantization is not supported");
  }
  switch (how.parameters_case()) {
    case Optimization::kStochasticGradientDescent:
      return 1;
    case Optimization::kAdagrad:
      return 2;
    case Optimization::kAdam:
      return how.adam().use_non_lazy_adam()
                 ? absl::StatusOr<size_t>(unsupported(
                       table, "Adam with lazy_adam=False, which changes rows without a gradient"))
                 : 3;
    case Optimization::kFtrl:
      return 3;
    default:
      return unsupported(table, absl::StrCat("found the optimizer with field ",
                                             static_cast<int>(how.parameters_case()),
                                             " of OptimizationParameters"));
  }
}

// Each TPUStrategy with a device assignment says so, also with one core for each replica.
bool several_cores(const Config::SpmdSharding& sharding) {
  return sharding.enabled() && sharding.num_cores_per_replica() > 1;
}

absl::Status check(const Config& config) {
  if (config.num_hosts() != 1 || several_cores(config.spmd_sharding())) {
    return absl::UnimplementedError(absl::StrCat(
        "TPUEmbedding on ", config.num_hosts(),
        " hosts, or with several cores for one replica: expected one host, and replicas on one "
        "core each"));
  }
  if (config.feature_descriptor().empty() || config.num_tensor_cores() < 1) {
    return absl::UnimplementedError(
        "TPUEmbedding without features in its configuration: expected the class "
        "tf.tpu.experimental.embedding.TPUEmbedding");
  }
  for (const auto& feature : config.feature_descriptor()) {
    if (feature.table_id() < 0 || feature.table_id() >= config.table_descriptor_size()) {
      return absl::InvalidArgumentError(absl::StrCat("TPUEmbedding, feature ", feature.name(),
                                                     ": there is no table ", feature.table_id()));
    }
  }
  return absl::OkStatus();
}

absl::Status read(absl::string_view bytes, Embeddings& embeddings) {
  TF_ASSIGN_OR_RETURN(const Config config, config_of(bytes));
  TF_RETURN_IF_ERROR(check(config));
  embeddings.config = std::string(bytes);
  embeddings.cores = config.num_tensor_cores();
  for (const auto& table : config.table_descriptor()) {
    TF_ASSIGN_OR_RETURN(const size_t arrays, arrays_of(table));
    constexpr int64_t kMost = int64_t{1} << 30;
    if (table.vocabulary_size() > kMost) {
      return absl::UnimplementedError(absl::StrCat("TPUEmbedding, table ", table.name(), ": ",
                                                   table.vocabulary_size(),
                                                   " rows; expected at most ", kMost));
    }
    embeddings.tables.push_back({table.name(), table.vocabulary_size(), table.dimension(), arrays});
    const auto& rate = table.optimization_parameters().learning_rate();
    if (rate.has_dynamic()) {
      embeddings.rates = std::max(embeddings.rates, static_cast<size_t>(rate.dynamic().tag()) + 1);
    }
  }
  for (const auto& feature : config.feature_descriptor()) {
    embeddings.features.push_back({feature.name(),
                                   static_cast<size_t>(feature.table_id()),
                                   {feature.input_shape().begin(), feature.input_shape().end()}});
  }
  return absl::OkStatus();
}

xla::Shape f32(absl::Span<const int64_t> dims) { return xla::ShapeUtil::MakeShape(xla::F32, dims); }

xla::Shape vectors_of(const Embeddings& embeddings, const EmbeddingFeature& feature) {
  std::vector<int64_t> dims = feature.dims;
  dims.push_back(embeddings.tables[feature.table].width);
  return f32(dims);
}

/// Builds a lookup or an update.
class Builder {
 public:
  Builder(const Embeddings& embeddings, const Config& config, const std::vector<EmbeddingIds>& ids,
          const char* name)
      : embeddings_(embeddings), config_(config), ids_(ids), builder_(name) {}

  absl::StatusOr<xla::XlaComputation> lookup() {
    std::vector<XlaOp> tables, results;
    for (size_t t = 0; t < embeddings_.tables.size(); ++t) {
      tables.push_back(table_parameter(t, 0));
    }
    for (size_t f = 0; f < embeddings_.features.size(); ++f) {
      results.push_back(looked_up(f, ids_of(f), tables[embeddings_.features[f].table]));
    }
    xla::Tuple(&builder_, results);
    return builder_.Build();
  }

  absl::StatusOr<xla::XlaComputation> update() {
    std::vector<std::vector<XlaOp>> tables(embeddings_.tables.size());
    std::vector<XlaOp> gradients, rates, results;
    for (size_t t = 0; t < tables.size(); ++t) {
      for (size_t i = 0; i < embeddings_.tables[t].arrays; ++i) {
        tables[t].push_back(table_parameter(t, i));
      }
    }
    std::vector<Ids> ids;
    for (size_t f = 0; f < embeddings_.features.size(); ++f) {
      ids.push_back(ids_of(f));
      gradients.push_back(parameter(vectors_of(embeddings_, embeddings_.features[f]), "gradient"));
    }
    for (size_t i = 0; i < embeddings_.rates; ++i) {
      rates.push_back(parameter(f32({}), "rate"));
    }
    for (size_t t = 0; t < tables.size(); ++t) {
      const auto [gradient, touched] = summed(t, ids, gradients);
      TF_ASSIGN_OR_RETURN(
          const std::vector<XlaOp> updated,
          optimized(config_.table_descriptor(static_cast<int>(t)), tables[t], gradient, rates));
      for (size_t i = 0; i < updated.size(); ++i) {
        results.push_back(xla::Select(touched, updated[i], tables[t][i]));
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      builder_.SetUpAlias({static_cast<int64_t>(i)}, static_cast<int64_t>(i), {});
    }
    xla::Tuple(&builder_, results);
    return builder_.Build();
  }

 private:
  /// Of a feature on this core, and what all cores want, one after the other.
  struct Ids {
    XlaOp own_samples, own_weights, all;
  };

  XlaOp parameter(const xla::Shape& shape, const char* name) {
    const int64_t number = parameters_++;
    return xla::Parameter(&builder_, number, shape, absl::StrCat(name, number));
  }
  XlaOp table_parameter(size_t table, size_t array) {
    return parameter(f32({embeddings_.rows_by_core(table), embeddings_.tables[table].width}),
                     array == 0 ? "table" : "slot");
  }
  XlaOp zeros(const xla::Shape& shape) { return xla::Zeros(&builder_, shape); }
  XlaOp s32(int64_t value) { return xla::ConstantR0<int32_t>(&builder_, static_cast<int>(value)); }
  XlaOp number_of_core() { return xla::ConvertElementType(xla::ReplicaId(&builder_), xla::S32); }
  XlaOp of_all_cores(XlaOp own) { return xla::AllGather(own, 0, embeddings_.cores); }
  // A number for each row, beside the columns.
  XlaOp by_row(XlaOp numbers, int64_t rows, int64_t width) {
    return xla::BroadcastInDim(numbers, {rows, width}, {0});
  }

  Ids ids_of(size_t feature) {
    const EmbeddingIds& form = ids_[feature];
    const auto list = [&](xla::PrimitiveType type) {
      return xla::ShapeUtil::MakeShape(type, {form.count});
    };
    Ids ids;
    ids.all = of_all_cores(parameter(list(xla::S32), "ids"));
    if (form.combined) {
      ids.own_samples = parameter(list(xla::S32), "samples");
      ids.own_weights = parameter(list(xla::F32), "weights");
    }
    return ids;
  }

  /// Places in the part of the table that this core has; others are below 0, or too large.
  XlaOp places(XlaOp all_ids, size_t table) {
    return all_ids - number_of_core() * s32(embeddings_.rows_by_core(table));
  }
  XlaOp is_here(XlaOp places, size_t table) {
    return xla::And(xla::Ge(places, s32(0)), xla::Lt(places, s32(embeddings_.rows_by_core(table))));
  }

  static XlaOp rows_at(XlaOp array, XlaOp places, int64_t width) {
    xla::GatherDimensionNumbers dims;
    dims.add_offset_dims(1);
    dims.add_collapsed_slice_dims(0);
    dims.add_start_index_map(0);
    dims.set_index_vector_dim(1);
    return xla::Gather(array, places, dims, {1, width});
  }

  /// Rows are added to the ones at these places; a place that is not there counts for nothing.
  XlaOp with_added(XlaOp array, XlaOp places, XlaOp rows) {
    xla::ScatterDimensionNumbers dims;
    dims.add_update_window_dims(1);
    dims.add_inserted_window_dims(0);
    dims.add_scatter_dims_to_operand_dims(0);
    dims.set_index_vector_dim(1);
    return xla::Scatter(array, places, rows, sum(), dims);
  }

  xla::XlaComputation sum() { return xla::CreateScalarAddComputation(xla::F32, &builder_); }

  XlaOp looked_up(size_t f, const Ids& ids, XlaOp table) {
    const EmbeddingFeature& feature = embeddings_.features[f];
    const int64_t width = embeddings_.tables[feature.table].width, cores = embeddings_.cores;
    const int64_t all = cores * ids_[f].count, samples = feature.samples();
    const XlaOp at = places(ids.all, feature.table);
    const XlaOp there = xla::Clamp(s32(0), at, s32(embeddings_.rows_by_core(feature.table) - 1));
    XlaOp vectors = xla::Select(by_row(is_here(at, feature.table), all, width),
                                rows_at(table, there, width), zeros(f32({all, width})));
    if (ids_[f].combined) {
      const XlaOp weights = of_all_cores(ids.own_weights);
      const XlaOp to = of_all_cores(ids.own_samples + number_of_core() * s32(samples));
      vectors = with_added(zeros(f32({cores * samples, width})), to,
                           vectors * by_row(weights, all, width));
    }
    const XlaOp own = xla::ReduceScatter(vectors, sum(), 0, cores);
    return xla::Reshape(own, vectors_of(embeddings_, feature).dimensions());
  }

  /// For the part of the table that this core has, the sum of the gradients of each row, and which
  /// rows have one.
  std::pair<XlaOp, XlaOp> summed(size_t table, const std::vector<Ids>& ids,
                                 const std::vector<XlaOp>& gradients) {
    const int64_t rows = embeddings_.rows_by_core(table), width = embeddings_.tables[table].width;
    XlaOp sums = zeros(f32({rows, width})), touched = zeros(f32({rows, 1}));
    for (size_t f = 0; f < ids.size(); ++f) {
      const EmbeddingFeature& feature = embeddings_.features[f];
      if (feature.table != table) {
        continue;
      }
      const int64_t count = ids_[f].count;
      XlaOp own = xla::Reshape(gradients[f], {feature.samples(), width});
      if (ids_[f].combined) {
        own = rows_at(own, ids[f].own_samples, width) * by_row(ids[f].own_weights, count, width);
      }
      const XlaOp at = places(ids[f].all, table);
      const XlaOp here = xla::Select(is_here(at, table), at,
                                     xla::Broadcast(s32(rows), {embeddings_.cores * count}));
      sums = with_added(sums, here, of_all_cores(own));
      touched = with_added(
          touched, here,
          xla::Broadcast(xla::ConstantR0<float>(&builder_, 1.0F), {embeddings_.cores * count, 1}));
    }
    const XlaOp any = xla::Gt(xla::Reshape(touched, {rows}), zeros(f32({rows})));
    return {sums, by_row(any, rows, width)};
  }

  XlaOp number(double value) {
    return xla::ConstantR0<float>(&builder_, static_cast<float>(value));
  }

  XlaOp limited(XlaOp values, const tf::tpu::ClippingLimits& limits) {
    if (limits.has_lower()) {
      values = xla::Max(values, number(limits.lower().value()));
    }
    if (limits.has_upper()) {
      values = xla::Min(values, number(limits.upper().value()));
    }
    return values;
  }

  /// The arrays of a table when each row has this gradient: as the comments of
  /// optimization_parameters.proto have it.
  absl::StatusOr<std::vector<XlaOp>> optimized(const Config::TableDescriptor& table,
                                               const std::vector<XlaOp>& old, XlaOp gradient,
                                               const std::vector<XlaOp>& rates) {
    const Optimization& how = table.optimization_parameters();
    const XlaOp rate = how.learning_rate().has_dynamic()
                           ? rates.at(static_cast<size_t>(how.learning_rate().dynamic().tag()))
                           : number(how.learning_rate().constant());
    gradient = limited(gradient, how.gradient_clipping_limits());
    XlaOp parameters = old[0];
    if (how.weight_decay_factor() != 0) {
      XlaOp decay = number(how.weight_decay_factor());
      if (how.multiply_weight_decay_factor_by_learning_rate()) {
        decay = decay * rate;
      }
      parameters = parameters - decay * parameters;
    }
    std::vector<XlaOp> made;
    switch (how.parameters_case()) {
      case Optimization::kStochasticGradientDescent:
        made = {parameters - rate * gradient};
        break;
      case Optimization::kAdagrad: {
        const XlaOp squares = old[1] + gradient * gradient;
        made = {parameters - rate * gradient * xla::Rsqrt(squares), squares};
        break;
      }
      case Optimization::kAdam:
        made = adam(how.adam(), parameters, old, gradient, rate);
        break;
      case Optimization::kFtrl:
        made = ftrl(how.ftrl(), parameters, old, gradient, rate);
        break;
      default:
        return unsupported(table, "the optimizer is not supported");
    }
    made[0] = limited(made[0], how.clipping_limits());
    return made;
  }

  // The program's learning rate has the correction of the first steps, as the interface says.
  std::vector<XlaOp> adam(const tf::tpu::AdamParameters& how, XlaOp parameters,
                          const std::vector<XlaOp>& old, XlaOp gradient, XlaOp rate) {
    const XlaOp momenta =
        number(how.beta1()) * old[1] + number(1.0 - double{how.beta1()}) * gradient;
    const XlaOp velocities =
        number(how.beta2()) * old[2] + number(1.0 - double{how.beta2()}) * gradient * gradient;
    const double epsilon = how.epsilon();
    const XlaOp divisor = how.use_sum_inside_sqrt()
                              ? xla::Sqrt(velocities + number(epsilon * epsilon))
                              : xla::Sqrt(velocities) + number(epsilon);
    return {parameters - rate * momenta / divisor, momenta, velocities};
  }

  std::vector<XlaOp> ftrl(const tf::tpu::FtrlParameters& how, XlaOp parameters,
                          const std::vector<XlaOp>& old, XlaOp gradient, XlaOp rate) {
    const auto power = [&](XlaOp squares) {
      return how.lr_power() == -0.5F ? xla::Sqrt(squares)
                                     : xla::Pow(squares, number(-double{how.lr_power()}));
    };
    const bool scaled = how.multiply_linear_by_lr();
    const XlaOp one = scaled ? number(1.0) : rate;  // what the terms are divided by
    const XlaOp squares = old[1] + gradient * gradient;
    const XlaOp linear = old[2] + (scaled ? gradient * rate : gradient) -
                         (power(squares) - power(old[1])) / one * parameters;
    const XlaOp l1 = scaled ? number(how.l1()) * rate : number(how.l1());
    const XlaOp l2 = scaled ? number(2.0 * how.l2()) * rate : number(2.0 * how.l2());
    const XlaOp quadratic = (power(squares) + number(how.beta())) / one + l2;
    const XlaOp made = (xla::Sign(linear) * l1 - linear) / quadratic;
    return {xla::Select(xla::Gt(xla::Abs(linear), xla::Broadcast(l1, dims_of(linear))), made,
                        zeros(f32(dims_of(linear)))),
            squares, linear};
  }

  std::vector<int64_t> dims_of(XlaOp op) {
    const auto dims = builder_.GetShape(op).value().dimensions();
    return {dims.begin(), dims.end()};
  }

  const Embeddings& embeddings_;
  const Config& config_;
  const std::vector<EmbeddingIds>& ids_;
  xla::XlaBuilder builder_;
  int64_t parameters_ = 0;
};

absl::Status make_program(const Embeddings& embeddings, bool update,
                          const std::vector<EmbeddingIds>& ids, Lowered& lowered) {
  TF_ASSIGN_OR_RETURN(const Config config, config_of(embeddings.config));
  Builder builder(embeddings, config, ids, update ? "embedding_update" : "embedding_lookup");
  TF_ASSIGN_OR_RETURN(const xla::XlaComputation made, update ? builder.update() : builder.lookup());
  lowered.hlo = made.proto().SerializeAsString();
  return absl::OkStatus();
}

absl::Status make_call(const Embeddings& embeddings, EmbeddingCall call, Lowered& lowered) {
  xla::XlaBuilder builder("embedding_call");
  const xla::Shape nothing = xla::ShapeUtil::MakeTupleShape({});
  std::vector<xla::Shape> vectors;
  for (const EmbeddingFeature& feature : embeddings.features) {
    vectors.push_back(vectors_of(embeddings, feature));
  }
  if (call == EmbeddingCall::kDeduplicate) {
    xla::Tuple(&builder, {});
  } else if (call == EmbeddingCall::kReceive) {
    xla::Parameter(&builder, 0, nothing, "deduplicated");
    xla::CustomCall(&builder, kEmbeddingsReceived, {}, xla::ShapeUtil::MakeTupleShape(vectors), "",
                    /*has_side_effect=*/true);
  } else {
    const std::vector<xla::Shape> rates(embeddings.rates, f32({}));
    const XlaOp gradients =
        xla::Parameter(&builder, 0, xla::ShapeUtil::MakeTupleShape(vectors), "gradients");
    const XlaOp learning =
        xla::Parameter(&builder, 1, xla::ShapeUtil::MakeTupleShape(rates), "rates");
    xla::Parameter(&builder, 2, nothing, "deduplicated");
    std::vector<XlaOp> sent;
    for (size_t i = 0; i < vectors.size(); ++i) {
      sent.push_back(xla::GetTupleElement(gradients, static_cast<int64_t>(i)));
    }
    for (size_t i = 0; i < rates.size(); ++i) {
      sent.push_back(xla::GetTupleElement(learning, static_cast<int64_t>(i)));
    }
    xla::CustomCall(&builder, kEmbeddingsSent, sent, nothing, "", /*has_side_effect=*/true);
  }
  TF_ASSIGN_OR_RETURN(const xla::XlaComputation made, builder.Build());
  lowered.hlo = made.proto().SerializeAsString();
  return absl::OkStatus();
}

}  // namespace
}  // namespace tpu::tensorflow

#pragma GCC visibility push(default)
extern "C" {

void tpuboard_tf_embeddings(const char* config, size_t size, tpu::tensorflow::Embeddings& read,
                            tpu::tensorflow::Outcome& outcome) {
  outcome = tpu::tensorflow::outcome_of(tpu::tensorflow::read({config, size}, read));
}

void tpuboard_tf_embedding_program(const tpu::tensorflow::Embeddings& embeddings, bool update,
                                   const std::vector<tpu::tensorflow::EmbeddingIds>& ids,
                                   tpu::tensorflow::Lowered& lowered) {
  tpu::tensorflow::answer(tpu::tensorflow::make_program(embeddings, update, ids, lowered), lowered);
}

void tpuboard_tf_embedding_call(const tpu::tensorflow::Embeddings& embeddings,
                                tpu::tensorflow::EmbeddingCall call,
                                tpu::tensorflow::Lowered& lowered) {
  tpu::tensorflow::answer(tpu::tensorflow::make_call(embeddings, call, lowered), lowered);
}

void tpuboard_tf_host_tensor(const void* tensor, tpu::tensorflow::HostTensor& read) {
  const auto* const given = static_cast<const TF_Tensor*>(tensor);
  read.type = TF_TensorType(given);
  for (int i = 0; i < TF_NumDims(given); ++i) {
    read.dims.push_back(TF_Dim(given, i));
  }
  read.bytes = TF_TensorData(given);
}

}  // extern "C"
#pragma GCC visibility pop
