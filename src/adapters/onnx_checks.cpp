#include "adapters/onnx_checks.h"

#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "core/check_memory.h"
#include "core/dtype.h"

namespace headwise::onnx {

template <class Data>
BasicView<Data> by_token(const BasicView<Data>& x, std::int64_t heads, const char* where, const char* name,
                         const char* attribute) {
    check(x.rank == 3 || x.rank == 4, where, ": ", name, " is ", x,
          ", expected [B,heads,sequence,width] or [B,sequence,heads*width]");
    check_memory(x, where, name);
    check(x.size(x.rank - 1) <= 1 || x.stride(x.rank - 1) == 1, where, ": ", name, " is ", x,
          "; its innermost stride must be 1 (other strides are free)");
    if (x.rank == 4) {
        check(heads == 0 || heads == x.size(1), where, ": ", name, " is ", x, " but ", attribute, " is ", heads);
        return x.swap_axes(1, 2);
    }
    check(heads > 0, where, ": ", name, " is ", x, ", which does not say its heads; give ", attribute);
    check(x.size(2) % heads == 0, where, ": ", name, " is ", x, ", whose width ", attribute, " = ", heads,
          " does not divide");
    return x.split_axis(2, heads, x.size(2) / heads);
}
template ConstTensorView by_token(const ConstTensorView&, std::int64_t, const char*, const char*, const char*);
template TensorView by_token(const TensorView&, std::int64_t, const char*, const char*, const char*);

namespace {

constexpr const char* kWhere = "onnx::attention";

template <class Data>
void check_shape(const BasicView<Data>& x, const char* name, std::initializer_list<std::int64_t> sizes,
                 DType dtype) {
    bool fits = x.rank == static_cast<int>(sizes.size()) && x.dtype == dtype;
    std::string expected;
    int axis = 0;
    for (const std::int64_t size : sizes) {
        fits = fits && x.size(axis++) == size;
        expected += text(axis == 1 ? "" : ", ", size);
    }
    check(fits, kWhere, ": ", name, " is ", x, ", expected ", dtype, " [", expected, "]");
    check_memory(x, kWhere, name);
}

template <class Data>
void check_unit_stride(const BasicView<Data>& x, const char* name) {
    const int last = x.rank - 1;
    check(x.size(last) <= 1 || x.stride(last) == 1, kWhere, ": ", name, " is ", x,
          "; its innermost stride must be 1");
}

void check_attributes(const AttentionInputs& in, const AttentionAttributes& a) {
    check(a.opset >= 23 && a.opset <= 25, kWhere, ": opset ", a.opset, " has no such operator; 23 to 25 have");
    check(a.qk_matmul_output_mode >= 0 && a.qk_matmul_output_mode <= 3, kWhere, ": qk_matmul_output_mode is ",
          a.qk_matmul_output_mode, ", expected 0, 1, 2 or 3");
    const int p = a.softmax_precision;
    check(p == 0 || p == 1 || p == 10 || p == 11 || p == 16, kWhere, ": softmax_precision is ", p,
          ", expected 1 (f32), 10 (f16), 11 (f64) or 16 (bf16)");
    check(a.left_window_size >= -1 && a.right_window_size >= -1, kWhere, ": the window is ", a.left_window_size,
          " and ", a.right_window_size, ", expected -1 (open) or a number of keys");
    check(std::isfinite(a.softcap), kWhere, ": softcap is ", a.softcap, ", expected a finite number; 0 for none");
    const double largest = in.q.dtype == DType::f64 ? std::numeric_limits<double>::max()
                                                    : static_cast<double>(std::numeric_limits<float>::max());
    check(!a.scale || std::abs(*a.scale) <= largest, kWhere, ": scale is ", a.scale.value_or(0),
          ", expected a finite number");
    check(a.opset >= 25 || (a.left_window_size == -1 && a.right_window_size == -1), kWhere,
          ": windows came with opset 25, this is opset ", a.opset);
    check(a.opset >= 24 || in.nonpad_kv_seqlen.empty(), kWhere,
          ": nonpad_kv_seqlen came with opset 24, this is opset ", a.opset);
    const bool counts = a.q_num_heads != 0 || a.kv_num_heads != 0;
    check(in.q.rank != 4 || a.opset < 25 || !counts, kWhere,
          ": q_num_heads and kv_num_heads belong to inputs of rank 3; Q has rank 4");
    check(in.q.rank == in.k.rank && in.q.rank == in.v.rank, kWhere, ": Q, K and V have ranks ", in.q.rank, ", ",
          in.k.rank, " and ", in.v.rank, ", expected one rank");
}

void check_lengths(const AttentionInputs& in, const AttentionShapes& s) {
    const ConstTensorView& lengths = in.nonpad_kv_seqlen;
    if (lengths.empty()) return;
    check(in.past_key.empty(), kWhere, ": nonpad_kv_seqlen and past_key exclude each other");
    check(lengths.dtype == DType::i64 || lengths.dtype == DType::i32, kWhere, ": nonpad_kv_seqlen is ", lengths,
          ", expected i64 [", s.B, "]");
    check_shape(lengths, "nonpad_kv_seqlen", {s.B}, lengths.dtype);
    for (std::int64_t b = 0; b < s.B; ++b) {
        const std::int64_t length = integer_at(lengths, b);
        check(length >= 0 && length <= s.fresh, kWhere, ": nonpad_kv_seqlen[", b, "] is ", length,
              ", expected a count of the ", s.fresh, " keys");
    }
}

void check_mask(const AttentionInputs& in, const AttentionShapes& s, int opset) {
    const ConstTensorView& mask = in.attn_mask;
    if (mask.empty()) return;
    check(mask.dtype == DType::boolean || is_float(mask.dtype), kWhere, ": attn_mask is ", mask,
          ", expected bool (true = attend) or a float type (added to scores); integers could mean either");
    const std::int64_t sizes[4] = {s.B, s.H, s.T, s.keys()};
    bool fits = mask.rank <= 4;
    for (int axis = 0; fits && axis < mask.rank; ++axis) {
        const bool last = axis == mask.rank - 1;
        fits = mask.size(axis) == 1 || mask.size(axis) == sizes[4 - mask.rank + axis] ||
               (last && mask.size(axis) < s.keys());
    }
    check(fits, kWhere, ": attn_mask is ", mask, ", which does not broadcast to [B,H,T,S] = [", s.B, ", ", s.H,
          ", ", s.T, ", ", s.keys(),
          "]; axes are aligned from the right and may be 1, and the last may be shorter");
    check_memory(mask, kWhere, "attn_mask");
    const std::int64_t reach = mask_reach(in, opset, s.keys());
    for (std::int64_t b = 0; !in.nonpad_kv_seqlen.empty() && b < s.B; ++b) {
        const ConstTensorView& lengths = in.nonpad_kv_seqlen;
        const std::int64_t length = integer_at(lengths, b);
        check(length <= reach, kWhere, ": attn_mask covers ", reach, " keys, but nonpad_kv_seqlen[", b, "] is ",
              length);
    }
}

void check_outputs(const AttentionInputs& in, const AttentionOutputs& out, AttentionShapes& s) {
    check(!out.y.empty(), kWhere, ": Y is missing");
    check(out.y.rank == in.q.rank, kWhere, ": Y is ", out.y, ", expected rank ", in.q.rank, " like Q");
    s.y = by_token(out.y, in.q.rank == 3 ? s.H : 0, kWhere, "Y", "q_num_heads");
    check_shape(s.y, "Y as [B,T,H,Dv]", {s.B, s.T, s.H, s.Dv}, in.q.dtype);
    check_writable(out.y, kWhere, "Y");
    for (const auto& [given, placed, width, name] :
         {std::tuple{&out.present_key, &s.present_key, s.D, "present_key"},
          std::tuple{&out.present_value, &s.present_value, s.Dv, "present_value"}}) {
        if (given->empty()) continue;
        check_shape(*given, name, {s.B, s.G, s.keys(), width}, in.q.dtype);
        check_unit_stride(*given, name);
        check_writable(*given, kWhere, name);
        *placed = given->swap_axes(1, 2);
    }
    if (out.qk_matmul_output.empty()) return;
    check_shape(out.qk_matmul_output, "qk_matmul_output", {s.B, s.H, s.T, s.keys()}, in.q.dtype);
    check_writable(out.qk_matmul_output, kWhere, "qk_matmul_output");
    s.scores = out.qk_matmul_output;
}

}  // namespace

std::int64_t mask_reach(const AttentionInputs& in, int opset, std::int64_t keys) {
    const ConstTensorView& mask = in.attn_mask;
    if (mask.empty() || mask.rank == 0) return keys;
    const std::int64_t last = mask.size(mask.rank - 1);
    return last == 1 && opset == 23 ? keys : last;
}

AttentionShapes check_attention(const AttentionInputs& in, const AttentionAttributes& a,
                                const AttentionOutputs& out) {
    check(!in.q.empty() && !in.k.empty() && !in.v.empty(), kWhere, ": Q, K or V is missing");
    check_attributes(in, a);
    check(is_float(in.q.dtype), kWhere, ": Q is ", in.q, ", expected f32, bf16, f16 or f64");
    AttentionShapes s{};
    s.q = by_token(in.q, a.q_num_heads, kWhere, "Q", "q_num_heads");
    s.k = by_token(in.k, a.kv_num_heads, kWhere, "K", "kv_num_heads");
    s.v = by_token(in.v, a.kv_num_heads, kWhere, "V", "kv_num_heads");
    s.B = s.q.size(0), s.T = s.q.size(1), s.H = s.q.size(2), s.D = s.q.size(3);
    check(s.D > 0, kWhere, ": Q is ", in.q, "; a head width of 0 leaves nothing to score by");
    s.fresh = s.k.size(1), s.G = s.k.size(2), s.Dv = s.v.size(3);
    check(s.G == 0 ? s.H == 0 : s.H % s.G == 0, kWhere, ": Q has ", s.H, " heads, which the ", s.G,
          " heads of K do not divide");
    check_shape(s.k, "K as [B,L,G,D]", {s.B, s.fresh, s.G, s.D}, in.q.dtype);
    check_shape(s.v, "V as [B,L,G,Dv]", {s.B, s.fresh, s.G, s.Dv}, in.q.dtype);
    check(in.past_key.empty() == in.past_value.empty(), kWhere, ": ",
          in.past_key.empty() ? "past_value" : "past_key", " came alone; give both or none");
    if (!in.past_key.empty()) {
        s.past = in.past_key.rank == 4 ? in.past_key.size(2) : 0;
        check_shape(in.past_key, "past_key", {s.B, s.G, s.past, s.D}, in.q.dtype);
        check_shape(in.past_value, "past_value", {s.B, s.G, s.past, s.Dv}, in.q.dtype);
        check_unit_stride(in.past_key, "past_key");
        check_unit_stride(in.past_value, "past_value");
        s.past_key = in.past_key.swap_axes(1, 2), s.past_value = in.past_value.swap_axes(1, 2);
    }
    std::int64_t keys = 0;
    check(!__builtin_add_overflow(s.past, s.fresh, &keys), kWhere, ": ", s.past, " past and ", s.fresh,
          " new keys are more than memory can hold");
    check_lengths(in, s);
    check_mask(in, s, a.opset);
    check_outputs(in, out, s);
    return s;
}

}  // namespace headwise::onnx
