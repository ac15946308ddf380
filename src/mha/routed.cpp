// Stages 1 and 5 of a routed layer: tokens are gathered per expert, so that the weights of each are read once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "core/storage.h"
#include "mha/rows.h"
#include "mha/stages.h"

namespace headwise {
namespace {

// Which experts every token has, and with which gates; and the same sorted by expert.
class Routes {
public:
    Routes(const Routing& routing, const TensorView& router)
        : k_(routing.top_k),
          tokens_(router.size(0) * router.size(1)),
          memory_(
              static_cast<std::size_t>((2 * tokens_ * k_ + routing.experts + 1) * kWord + tokens_ * k_ * kGate)) {
        chosen_ = memory_.data<std::int64_t>();
        slots_ = chosen_ + tokens_ * k_;
        starts_ = slots_ + tokens_ * k_;
        gates_ = reinterpret_cast<float*>(starts_ + routing.experts + 1);
        std::fill_n(starts_, routing.experts + 1, std::int64_t{0});
        for (std::int64_t n = 0; n < tokens_; ++n) choose(router, n, routing.experts);
        for (std::int64_t e = 0; e < routing.experts; ++e) starts_[e + 1] += starts_[e];
        // Filled from the end: afterwards starts_[e + 1] is where the slots of expert e begin.
        for (std::int64_t slot = tokens_ * k_; slot-- > 0;) slots_[--starts_[chosen_[slot] + 1]] = slot;
    }

    // Slots of expert e, rising; slot = token * top_k + rank.
    const std::int64_t* begin(std::int64_t e) const { return slots_ + starts_[e + 1]; }
    std::int64_t count(std::int64_t e, std::int64_t experts) const {
        const std::int64_t end = e + 1 < experts ? starts_[e + 2] : tokens_ * k_;
        return end - starts_[e + 1];
    }
    std::int64_t token(std::int64_t slot) const { return slot / k_; }
    std::int64_t rank(std::int64_t slot) const { return slot % k_; }
    float gate(std::int64_t slot) const { return gates_[slot]; }

private:
    static constexpr std::int64_t kWord = sizeof(std::int64_t), kGate = sizeof(float);

    static double logit(const TensorView& router, std::int64_t n, std::int64_t e) {
        const std::int64_t tokens = router.size(1);
        return load_f64(router.data, router.dtype,
                        n / tokens * router.stride(0) + n % tokens * router.stride(1) + e);
    }

    // The k largest logits, the lower index first among equals; gates are their softmax. NaN counts
    // as the largest, as sorting has it, and makes the token NaN.
    void choose(const TensorView& router, std::int64_t n, std::int64_t experts) {
        std::int64_t* own = chosen_ + n * k_;
        std::int64_t held = 0;
        for (std::int64_t e = 0; e < experts; ++e) {
            const double value = logit(router, n, e);
            std::int64_t at = held;
            while (at > 0 && better(value, logit(router, n, own[at - 1]))) --at;
            if (at == k_) continue;
            held = std::min(held + 1, k_);
            for (std::int64_t j = held - 1; j > at; --j) own[j] = own[j - 1];
            own[at] = e;
        }
        const double largest = logit(router, n, own[0]);
        double sum = 0;
        for (std::int64_t j = 0; j < k_; ++j) sum += std::exp(logit(router, n, own[j]) - largest);
        for (std::int64_t j = 0; j < k_; ++j) {
            gates_[n * k_ + j] = static_cast<float>(std::exp(logit(router, n, own[j]) - largest) / sum);
            ++starts_[own[j] + 1];
        }
    }
    static bool better(double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

    std::int64_t k_, tokens_;
    Scratch memory_;
    std::int64_t *chosen_, *slots_, *starts_;
    float* gates_;
};

std::int64_t token_at(const ConstTensorView& rows, std::int64_t n) {
    return n / rows.size(1) * rows.stride(0) + n % rows.size(1) * rows.stride(1);
}

// Dense rows [count, width] of scratch.
TensorView dense(std::byte* memory, DType dtype, std::int64_t count, std::int64_t width) {
    return TensorView(memory, dtype, {1, count, width});
}

std::size_t bytes_of(DType dtype, std::int64_t count) { return static_cast<std::size_t>(count) * size_of(dtype); }

}  // namespace

// Head g * top_k + j of a token is head g of its expert of rank j, so that contiguous groups read kv head g.
void route_queries(const Block& block, const Flow& flow, const Execution& execution) {
    const MhaConfig& c = block.config;
    const Routes routes(*c.routing, flow.router);
    const std::int64_t tokens = flow.x.size(0) * flow.x.size(1), width = c.kv_heads * c.head_dim;
    const Scratch gathered(bytes_of(flow.x.dtype, tokens * c.embed_dim)), made(bytes_of(c.dtype, tokens * width));
    for (std::int64_t e = 0; e < c.routing->experts; ++e) {
        const std::int64_t count = routes.count(e, c.routing->experts);
        const std::int64_t* slots = routes.begin(e);
        const TensorView from = dense(gathered.data(), flow.x.dtype, count, c.embed_dim);
        const TensorView to = dense(made.data(), c.dtype, count, width);
        for (std::int64_t i = 0; i < count; ++i)
            std::memcpy(element(from, i * c.embed_dim), element(flow.x, token_at(flow.x, routes.token(slots[i]))),
                        bytes_of(from.dtype, c.embed_dim));
        block.routed->q[static_cast<std::size_t>(e)].run(rows_of(ConstTensorView(from)), out_rows_of(to),
                                                         execution);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t token = token_at(ConstTensorView(flow.q), routes.token(slots[i]));
            for (std::int64_t g = 0; g < c.kv_heads; ++g) {
                const std::int64_t head = g * c.routing->top_k + routes.rank(slots[i]);
                std::memcpy(element(flow.q, token + head * flow.q.stride(2)),
                            element(to, i * width + g * c.head_dim), bytes_of(c.dtype, c.head_dim));
            }
        }
    }
}

// y = bias + sum over the experts of a token, in the order of their indices, of gate * W_O,e out_e.
void route_outputs(const Block& block, const Flow& flow, const Execution& execution) {
    const MhaConfig& c = block.config;
    const Routes routes(*c.routing, flow.router);
    const std::int64_t tokens = flow.x.size(0) * flow.x.size(1), width = c.kv_heads * c.value_dim;
    const Scratch gathered(bytes_of(DType::f32, tokens * width)), made(bytes_of(DType::f32, tokens * c.out_dim));
    const Scratch sums(bytes_of(DType::f32, tokens * c.out_dim));
    std::fill_n(sums.data<float>(), tokens * c.out_dim, 0.0f);
    for (std::int64_t e = 0; e < c.routing->experts; ++e) {
        const std::int64_t count = routes.count(e, c.routing->experts);
        const std::int64_t* slots = routes.begin(e);
        const TensorView from = dense(gathered.data(), DType::f32, count, width);
        const TensorView to = dense(made.data(), DType::f32, count, c.out_dim);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t token = token_at(ConstTensorView(flow.all_heads), routes.token(slots[i]));
            for (std::int64_t g = 0; g < c.kv_heads; ++g) {
                const std::int64_t head = g * c.routing->top_k + routes.rank(slots[i]);
                std::memcpy(element(from, i * width + g * c.value_dim),
                            element(flow.all_heads, token + head * flow.all_heads.stride(2)),
                            bytes_of(DType::f32, c.value_dim));
            }
        }
        block.routed->o[static_cast<std::size_t>(e)].run(rows_of(ConstTensorView(from)), out_rows_of(to),
                                                         execution);
        for (std::int64_t i = 0; i < count; ++i) {
            float* sum = sums.data<float>() + routes.token(slots[i]) * c.out_dim;
            const float* part = made.data<float>() + i * c.out_dim;
            const float gate = routes.gate(slots[i]);
            for (std::int64_t n = 0; n < c.out_dim; ++n) sum[n] += gate * part[n];
        }
    }
    const float* bias = block.routed->o_bias.empty() ? nullptr : block.routed->o_bias.data<float>();
    for (std::int64_t n = 0; n < tokens; ++n) {
        float* sum = sums.data<float>() + n * c.out_dim;
        if (bias != nullptr)
            for (std::int64_t i = 0; i < c.out_dim; ++i) sum[i] += bias[i];
        copy_elements(element(flow.y, token_at(ConstTensorView(flow.y), n)), flow.y.dtype, sum, DType::f32,
                      c.out_dim);
    }
}

}  // namespace headwise
