// Only carries the precompiled header that all tests share.
