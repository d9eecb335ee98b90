/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The Test Anything Protocol for the C unit tests:
 *
 *     ok(p != NULL, "an arena of one page can be had");
 *     is_u64(n, 7, "seven blocks are found");
 *     return done();
 *
 * Each is a sentence, and may have printf's arguments.
 */


#ifndef TAP_H_INCLUDED
#define TAP_H_INCLUDED


#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>


static unsigned  tap_tests;
static unsigned  tap_failed;


static inline bool
tap_report(bool good, const char *fmt, va_list args)
{
    tap_tests++;

    if (!good) {
        tap_failed++;
    }

    printf("%sok %u - ", good ? "" : "not ", tap_tests);
    vprintf(fmt, args);
    printf("\n");
    fflush(stdout);

    return good;
}


/* Returns what it was told, so that a test can say more when it fails. */
__attribute__((format(printf, 2, 3)))
static inline bool
ok(bool good, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    tap_report(good, fmt, args);
    va_end(args);

    return good;
}


__attribute__((format(printf, 3, 4)))
static inline bool
is_u64(uint64_t got, uint64_t want, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    tap_report(got == want, fmt, args);
    va_end(args);

    if (got != want) {
        printf("#   got:  %" PRIu64 "\n#   want: %" PRIu64 "\n", got, want);
    }

    return got == want;
}


__attribute__((format(printf, 1, 2)))
static inline void
note(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    printf("# ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}


/* Prints the plan; what main() returns. */
static inline int
done(void)
{
    printf("1..%u\n", tap_tests);

    if (tap_failed != 0) {
        printf("# %u of %u failed\n", tap_failed, tap_tests);
    }

    return tap_failed != 0;
}


#endif /* TAP_H_INCLUDED */
