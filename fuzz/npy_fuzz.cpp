// A whole .npy file. An accepted row-major tensor holds exactly the last bytes of the file.
#include <cstring>

#include <headwise/weights.h>

#include "target.h"

using namespace headwise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const fuzz::MemoryFile input(fuzz::as_text(data, size));
    Tensor tensor;
    if (!fuzz::accepts([&] { tensor = load_npy(input.path()); })) return 0;
    const auto bytes = static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
    fuzz::require(bytes < size);
    const std::string_view header = fuzz::as_text(data, size - bytes);
    if (header.find("True") == header.npos)
        fuzz::require(std::memcmp(tensor.data<char>(), data + size - bytes, bytes) == 0);
    return 0;
}
