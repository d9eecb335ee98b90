/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What a fuzz target is: LLVMFuzzerTestOneInput(), which takes any bytes and
 * returns 0.  What must not be is told by fuzz_fail(), which aborts.
 *
 *     make fuzz      links a target with libFuzzer
 *     make check     links it with driver.c
 */


#ifndef FUZZ_H_INCLUDED
#define FUZZ_H_INCLUDED


#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* How many inputs driver.c makes: some seconds with sanitizers. */
extern const uint32_t  fuzz_inputs;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);


#define fuzz_fail(...)                                                        \
    (fprintf(stderr, "fuzz: " __VA_ARGS__), fputc('\n', stderr), abort())


/* A copy of just that size, so that a sanitizer sees what is beyond. */
static inline void *
fuzz_copy(const void *bytes, size_t len)
{
    void  *copy;

    copy = malloc(len ? len : 1);

    if (copy == NULL) {
        fuzz_fail("out of memory");
    }

    if (len) {
        memcpy(copy, bytes, len);
    }

    return copy;
}


#endif /* FUZZ_H_INCLUDED */
