// Symbol visibility: everything is hidden in the shared library except what carries HEADWISE_API.
#pragma once

#if defined(__GNUC__)
#define HEADWISE_API __attribute__((visibility("default")))
#else
#define HEADWISE_API
#endif
