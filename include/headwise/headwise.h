// Everything that headwise offers to C++.
#pragma once

#include <headwise/attend.h>
#include <headwise/cpu.h>
#include <headwise/error.h>
#include <headwise/heads.h>
#include <headwise/kv_cache.h>
#include <headwise/mask.h>
#include <headwise/mha.h>
#include <headwise/mha_config.h>
#include <headwise/onnx.h>
#include <headwise/scores.h>
#include <headwise/tensor.h>
#include <headwise/torch_mha.h>
#include <headwise/trace.h>
#include <headwise/weights.h>
