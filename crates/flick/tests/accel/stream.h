// The checked stream of the programs here: each byte follows from its offset.
#pragma once
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES_MAX = 1 << 17 };
static unsigned char buffer[BYTES_MAX];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

// The byte at an offset of the stream.
static unsigned char at(uint64_t offset) { return (unsigned char)((offset * 0x9e3779b97f4a7c15u) >> 56); }

// Of the random lengths.
static uint32_t state = 1;

// A length from 1 to `max`, mostly short.
static inline size_t odd(size_t max) {
    state = state * 1664525u + 1013904223u;
    size_t limit = (state >> 28) == 0 ? max : (state >> 28) < 4 ? 5000 : 200;
    size_t n = (state >> 8) % limit + 1;
    return n < max ? n : max;
}
