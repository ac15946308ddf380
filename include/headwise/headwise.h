// Everything that headwise offers to C++.
#pragma once

#include <headwise/attend.h>
#include <headwise/cpu.h>
#include <headwise/error.h>
#include <headwise/mask.h>
#include <headwise/mha.h>
#include <headwise/tensor.h>
#include <headwise/trace.h>
#include <headwise/weights.h>
