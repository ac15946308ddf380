// A whole safetensors file, beside the simple reader of the tests: what that one accepts, ours must accept and read
// alike. (It understands less JSON, so that the reverse does not hold.)
#include <cstring>
#include <optional>

#include <headwise/weights.h>

#include "safetensors_support.h"
#include "target.h"

using namespace headwise;
using headwise::fuzz::require;
using testing_support::SimpleFile;

namespace {

void compare(const TensorFile& file, const SimpleFile& simple) {
    require(file.names().size() == simple.tensors.size() && file.metadata() == simple.metadata);
    for (const auto& [name, expected] : simple.tensors) {
        const auto info = file.find(name);
        require(info && info->stored_dtype == expected.dtype && info->sizes == expected.shape);
        fuzz::accepts([&] {
            const Tensor tensor = file.load(name);
            require(std::memcmp(tensor.data<char>(), expected.bytes.data(), expected.bytes.size()) == 0);
        });
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes = fuzz::as_text(data, size);
    std::optional<SimpleFile> simple;
    try {
        simple = testing_support::read_simply(bytes);
    } catch (const std::runtime_error&) {
    }
    const fuzz::MemoryFile input(bytes);
    std::optional<TensorFile> file;
    const bool accepted = fuzz::accepts([&] { file.emplace(input.path()); });
    require(accepted || !simple);
    if (simple) compare(*file, *simple);
    if (!accepted) return 0;
    for (const std::string& name : file->names()) fuzz::accepts([&] { file->load(name); });
    return 0;
}
