// The text of an index: whatever is accepted stays inside its directory.
#include "weights/shard_index.h"

#include "target.h"

using namespace headwise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        for (const auto& [name, shard] : parse_shard_index(fuzz::as_text(data, size), {}, "index.json")) {
            fuzz::require(shard.ends_with(".safetensors") &&
                          shard.find_first_of(std::string_view("/\\\0", 3)) == shard.npos);
            fuzz::require(name.size() <= 4096);
        }
    });
    return 0;
}
