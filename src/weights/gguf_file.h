// One GGUF file: its header, and its tensors on demand.
#pragma once

#include <map>
#include <string>

#include <headwise/weights.h>

#include "weights/file.h"
#include "weights/gguf_header.h"

namespace headwise {

// By its first bytes, or by the ending of its name: a file of either kind is read, or refused, as GGUF.
bool is_gguf(const InputFile& file);

class GgufFile {
public:
    GgufFile(InputFile file, const FileLimits& limits);

    const std::string& path() const noexcept { return file_.path(); }
    const GgufHeader& header() const noexcept { return header_; }
    const GgufEntry* find(const std::string& name) const noexcept;  // null if there is none

    // F32, F16, BF16, F64, I32 and I64 as they are, blocks of small integers as f32. Throws bad_data if there is no
    // tensor of that name, unsupported for other types.
    Tensor load(const std::string& name) const;

    // Scalars and strings of the metadata, as text.
    std::map<std::string, std::string> metadata_text() const;

private:
    void decode(const GgufEntry& entry, float* to) const;

    InputFile file_;
    GgufHeader header_;
};

}  // namespace headwise
