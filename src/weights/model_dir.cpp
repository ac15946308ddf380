#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <headwise/weights.h>

#include "core/check.h"
#include "weights/config.h"
#include "weights/gguf_layer.h"
#include "weights/layer_names.h"
#include "weights/layout.h"
#include "weights/plan.h"
#include "weights/quote.h"

namespace headwise {
namespace {

using Shape = std::vector<std::int64_t>;

std::string describe_shape(const Shape& shape) {
    std::string result = "[";
    for (const std::int64_t size : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(size);
    return result + "]";
}

LayerPlan read_plan(const std::string& directory, const LayerOptions& options) {
    const std::string path = directory + "/config.json";
    return plan_layer(read_config(path, options.limits), path,
                      {.layer = options.layer, .part = options.part, .causal = options.causal});
}

// Reads the tensors of one layer, after all of them have been checked.
class LayerReader {
public:
    LayerReader(const LayerPlan& plan, const TensorFile& file, const std::string& directory)
        : plan_(plan), file_(file), directory_(directory), place_(find_layer(plan, file, directory)) {
        refuse_unknown_tensors(plan, place_, file, directory);
        for (const PlannedMatrix& matrix : plan.matrices) check_matrix(matrix);
        for (const PlannedTensor& tensor : plan.tensors) check_tensor(tensor);
    }

    LayerWeights read() {
        LayerWeights layer;
        for (std::size_t i = 0; i < plan_.matrices.size(); ++i) read_matrix(i, layer);
        for (const PlannedTensor& tensor : plan_.tensors) read_tensor(tensor, layer);
        layer.tensors = std::move(used_);
        return layer;
    }

private:
    std::string weight_name(const PlannedMatrix& matrix) const {
        return text(place_.module, matrix.name, ".weight");
    }
    std::string bias_name(const PlannedMatrix& matrix) const { return text(place_.module, matrix.name, ".bias"); }
    std::string name_of(const PlannedTensor& tensor, std::int64_t number) const {
        std::string name = tensor.name;
        if (const std::size_t mark = name.find('#'); mark != std::string::npos) {
            name.replace(mark, 1, std::to_string(number));
        }
        return (tensor.outside ? place_.base : place_.module) + name;
    }

    void check_stored(const std::string& name, const Shape& shape) const {
        const auto info = file_.find(name);
        if (!info) fail(ErrorCode::bad_data, directory_, ": tensor ", quote(name), " is missing");
        if (info->sizes != shape) {
            fail(ErrorCode::bad_data, directory_, ": tensor ", quote(name), " has the shape ",
                 describe_shape(info->sizes), ", but config.json asks for ", describe_shape(shape));
        }
        const std::string& type = info->stored_dtype;
        if (type != "F32" && type != "BF16" && type != "F16" && type != "F64") {
            fail(ErrorCode::unsupported, directory_, ": tensor ", quote(name), " is stored as ", type,
                 "; weights may be F32, BF16, F16 or F64");
        }
    }
    void check_matrix(const PlannedMatrix& matrix) const {
        const Shape shape =
            matrix.in_out ? Shape{matrix.columns, matrix.rows} : Shape{matrix.rows, matrix.columns};
        check_stored(weight_name(matrix), shape);
        if (matrix.bias) check_stored(bias_name(matrix), {matrix.rows});
    }
    void check_tensor(const PlannedTensor& tensor) const {
        for (std::int64_t i = 0; i < std::max<std::int64_t>(tensor.stack, 1); ++i) {
            check_stored(name_of(tensor, i), tensor.shape);
        }
    }

    Tensor load(const std::string& name) {
        Tensor stored = file_.load(name);
        used_.push_back(name);
        return stored.dtype() == DType::f64 ? convert(stored, DType::f32) : std::move(stored);
    }

    void cut(Tensor stored, const std::vector<Piece>& pieces, Tensor LayerWeights::*Piece::*which,
             LayerWeights& layer) const {
        for (const Piece& piece : pieces) {
            const bool whole = piece.rows.size() == 1 && piece.rows[0].count == stored.view().size(0);
            layer.*(piece.*which) = whole ? std::move(stored) : gather_rows(stored, piece.rows);
        }
    }
    void read_matrix(std::size_t index, LayerWeights& layer) {
        const PlannedMatrix& matrix = plan_.matrices[index];
        const std::vector<Piece> pieces = pieces_of(plan_, index);
        Tensor weight = load(weight_name(matrix));
        if (matrix.in_out) weight = transpose(weight);
        cut(std::move(weight), pieces, &Piece::weight, layer);
        if (matrix.bias) cut(load(bias_name(matrix)), pieces, &Piece::bias, layer);
    }
    void read_tensor(const PlannedTensor& tensor, LayerWeights& layer) {
        if (tensor.stack == 0) {
            layer.*tensor.to = load(name_of(tensor, 0));
            return;
        }
        const Tensor first = load(name_of(tensor, 0));
        Shape shape = tensor.shape;
        shape.insert(shape.begin(), tensor.stack);
        Tensor stacked(first.dtype(), shape);
        const std::size_t bytes = static_cast<std::size_t>(first.count()) * size_of(first.dtype());
        for (std::int64_t i = 0; i < tensor.stack; ++i) {
            const Tensor one = i == 0 ? convert(first, first.dtype()) : load(name_of(tensor, i));
            if (one.dtype() != first.dtype()) {
                fail(ErrorCode::unsupported, directory_, ": tensors ", quote(name_of(tensor, 0)), " and ",
                     quote(name_of(tensor, i)), " have different types");
            }
            std::memcpy(stacked.data<std::byte>() + static_cast<std::size_t>(i) * bytes, one.data<std::byte>(),
                        bytes);
        }
        layer.*tensor.to = std::move(stacked);
    }

    const LayerPlan& plan_;
    const TensorFile& file_;
    const std::string& directory_;
    LayerPlace place_;
    std::vector<std::string> used_;
};

double dot(const Tensor& a, const Tensor& b) {
    const Tensor x = convert(a, DType::f32), y = convert(b, DType::f32);
    double sum = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) {
        sum += static_cast<double>(x.data<float>()[i]) * static_cast<double>(y.data<float>()[i]);
    }
    return sum;
}

// What is computed from tensors and sizes instead of read.
void derive(const LayerPlan& plan, LayerWeights& layer) {
    if (plan.alibi_scale != 0) {
        layer.alibi_slopes = alibi_slopes(plan.config.heads, plan.alibi_scale, plan.alibi_bf16);
    }
    if (plan.difference) {
        layer.config.difference->lambda = std::exp(dot(layer.lambda_q1, layer.lambda_k1)) -
                                          std::exp(dot(layer.lambda_q2, layer.lambda_k2)) +
                                          plan.difference->initial;
    }
}

}  // namespace

MhaWeights LayerWeights::weights() const {
    return {.q = q,
            .k = k,
            .v = v,
            .o = o,
            .q_bias = q_bias,
            .k_bias = k_bias,
            .v_bias = v_bias,
            .o_bias = o_bias,
            .q_norm = q_norm,
            .k_norm = k_norm,
            .q_norm_bias = q_norm_bias,
            .k_norm_bias = k_norm_bias,
            .sinks = sinks,
            .alibi_slopes = alibi_slopes,
            .relative_bias = relative_bias,
            .gate = gate,
            .gate_bias = gate_bias,
            .merged_norm = merged_norm,
            .q_down = q_down,
            .q_down_bias = q_down_bias,
            .q_down_norm = q_down_norm,
            .kv_down = kv_down,
            .kv_down_bias = kv_down_bias,
            .kv_down_norm = kv_down_norm,
            .kv_up = kv_up,
            .router = router,
            .expert_q = expert_q,
            .expert_o = expert_o};
}

LayerWeights load_layer(const std::string& directory, const LayerOptions& options) {
    const DType dtype = options.dtype.value_or(DType::f32);
    check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "load_layer: dtype ", name_of(dtype),
          " is not a storage type of attention; use f32, bf16 or f16");
    if (is_gguf_file(directory)) return load_gguf_layer(directory, options);
    const LayerPlan plan = read_plan(directory, options);
    if (plan.kind == LayerKind::other) {
        fail(ErrorCode::unsupported, directory, ": layer ", plan.layer, " is ", quote(plan.kind_name),
             ", which is no softmax attention");
    }
    const TensorFile file(directory, options.limits);
    LayerReader reader(plan, file, directory);
    LayerWeights layer = reader.read();
    layer.config = plan.config;
    layer.config.dtype = dtype;
    layer.family = plan.family->model_type;
    derive(plan, layer);
    return layer;
}

std::vector<std::int64_t> stored_layers(const std::string& directory, const LayerOptions& options) {
    if (is_gguf_file(directory)) return stored_gguf_layers(directory, options.limits);
    const LayerPlan plan = read_plan(directory, {.part = options.part, .limits = options.limits});
    return complete_layers(plan, TensorFile(directory, options.limits).names());
}

}  // namespace headwise
