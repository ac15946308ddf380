// Two keys, one head: the query looks at the first key only, so the output is the first value.
#include <headwise/headwise.h>

#include <cstdio>

int main() {
    namespace hw = headwise;
    const float q[] = {100, 0}, k[] = {1, 0, -1, 0}, v[] = {0.25f, 4};
    float out[1] = {};
    hw::attend({.q = {q, hw::DType::f32, {1, 1, 1, 2}},
                .k = {k, hw::DType::f32, {1, 2, 1, 2}},
                .v = {v, hw::DType::f32, {1, 2, 1, 1}}},
               {.out = {out, hw::DType::f32, {1, 1, 1, 1}}});
    try {
        hw::window(-2, 0);
    } catch (const hw::Error& error) {  // the type crosses the border of a shared library
        std::printf("headwise %s gives %g\n", hw::version(), out[0]);
        return error.code() == hw::ErrorCode::invalid_argument ? 0 : 1;
    }
    return 1;
}
