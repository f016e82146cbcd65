/* The edges that a program takes, counted for tests/kernel/fuzzing.py: gcc calls this in every block of code, with
   -fsanitize-coverage=trace-pc. An edge is two blocks after each other; several may share a count. */
#include <stdint.h>

#define EDGES 65536

uint8_t edges[EDGES];
static uintptr_t before;

void __sanitizer_cov_trace_pc(void) {
    uintptr_t here = (uintptr_t)__builtin_return_address(0) * UINT64_C(0x9E3779B97F4A7C15) >> 40;
    edges[(here ^ before) % EDGES]++;
    before = here >> 1;
}
