#pragma once
// glibc's malloc.h, which Swift's Glibc module does not contain: mallopt(), mallinfo2() and malloc_trim().
#include <malloc.h>
