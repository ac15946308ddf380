// A whole GGUF file: what is accepted lies inside the file, and every tensor is loaded or refused by its type.
#include <headwise/weights.h>

#include "target.h"
#include "weights/gguf_header.h"

using namespace headwise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const fuzz::MemoryFile input(fuzz::as_text(data, size));
    fuzz::accepts([&] {
        const InputFile file(input.path());
        const GgufHeader header = read_gguf_header(file, {});
        for (const auto& [name, entry] : header.tensors) {
            fuzz::require(entry.begin >= 0 && entry.end >= entry.begin);
            fuzz::require(entry.begin == entry.end || header.data_begin + entry.end <= file.size());
        }
        const TensorFile tensors(input.path());
        fuzz::require(tensors.names().size() == header.tensors.size());
        for (const std::string& name : tensors.names()) {
            const bool loaded = fuzz::accepts([&] { tensors.load(name); });
            fuzz::require(loaded == header.tensors.at(name).type->loadable());
        }
    });
    return 0;
}
