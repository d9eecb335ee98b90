/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The pointer of a snapshot, as anybody may have written it.
 */


#include <stdarg.h>
#include <stdlib.h>

#include "wire/kvr_pointer.h"
#include "tap.h"


static kvr_pointer_t  pointer;
static char           why[KVR_POINTER_WHY];


/* Reads copies of its own, so that a read beyond their ends is seen. */

static kvr_rc_t
read_fields(const char *first, ...)
{
    char       *copies[KVR_POINTER_ROUTER];
    size_t      len[KVR_POINTER_ROUTER];
    va_list     args;
    uint32_t    i;
    kvr_rc_t    rc;
    const char *value;

    va_start(args, first);

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {
        value = i ? va_arg(args, const char *) : first;
        copies[i] = NULL;
        len[i] = value ? strlen(value) : 0;

        if (value) {
            copies[i] = malloc(len[i] + (len[i] == 0));
            memcpy(copies[i], value, len[i]);
        }
    }

    va_end(args);

    why[0] = '\0';
    memset(&pointer, 0, sizeof(pointer));
    rc = kvr_pointer_read(&pointer, (const char *const *) copies, len, why);

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {
        free(copies[i]);
    }

    return rc;
}


static void
wrong(const char *version, const char *epoch, const char *seq,
    const char *complete, const char *parts, const char *block_size,
    const char *what)
{
    ok(read_fields(version, epoch, seq, complete, parts, block_size,
                   NULL, NULL)
       == KVR_INVALID && why[0] != '\0', "%s", what);
}


int
main(void)
{
    ok(read_fields("1", "1700000000000", "7", "1", "3", "16", NULL, NULL)
       == KVR_OK,
       "a pointer is read");
    ok(pointer.head.epoch == 1700000000000 && pointer.head.seq == 7
       && pointer.head.complete && pointer.parts == 3
       && pointer.head.contract.block_size == 16, "each of its fields");
    ok(read_fields(NULL, NULL, NULL, NULL, NULL, NULL, "0", NULL)
       == KVR_DECLINED,
       "where there is none, there is no snapshot");
    ok(read_fields("1", "281474976710655", "281474976710655", "0",
                   "65536", "4294967295", NULL, NULL) == KVR_OK,
       "what is just in the bounds is taken");

    ok(read_fields("1", "1", "7", "1", "3", "16", "1", NULL) == KVR_OK
       && pointer.head.contract.pairs
       && read_fields("1", "1", "7", "1", "3", "16", "0", NULL) == KVR_OK
       && !pointer.head.contract.pairs, "it may say what its blocks are of");
    ok(read_fields("1", "1", "7", "1", "3", "16", "2", NULL) == KVR_INVALID
       && read_fields("1", "1", "7", "1", "3", "16", "", NULL) == KVR_INVALID
       && read_fields("1", "1", "7", "1", "3", "16", "on", NULL)
          == KVR_INVALID,
       "by 0 or 1");
    ok(read_fields("1", "1", "7", "1", "3", "16", NULL, "1") == KVR_OK
       && pointer.head.hybrid
       && read_fields("1", "1", "7", "1", "3", "16", NULL, "0") == KVR_OK
       && !pointer.head.hybrid, "it may say that its model is hybrid");
    ok(read_fields("1", "1", "7", "1", "3", "16", NULL, "2") == KVR_INVALID
       && read_fields("1", "1", "7", "1", "3", "16", NULL, "yes")
          == KVR_INVALID, "by 0 or 1 as well");

    wrong("1", "1", NULL, "1", "3", "16", "a field that is missing");
    wrong("1", "1", "", "1", "3", "16", "a field that is empty");
    wrong("1", "1", "7x", "1", "3", "16", "a field that is no number");
    wrong("1", "1", "-7", "1", "3", "16", "a number below zero");
    wrong("1", "1", "18446744073709551616", "1", "3", "16",
          "a number of more than 64 bits");
    wrong("2", "1", "7", "1", "3", "16", "another version");
    ok(strcmp(why, "a snapshot of version 2, and this router reads 1: "
              "upgrade the router") == 0, "which names both");
    wrong("1", "0", "7", "1", "3", "16", "an epoch of 0");
    wrong("1", "281474976710656", "7", "1", "3", "16",
          "an epoch that is no time");
    wrong("1", "1", "0", "1", "3", "16", "a number of 0");
    wrong("1", "1", "281474976710656", "1", "3", "16",
          "a number that none could follow");
    wrong("1", "1", "18446744073709551615", "1", "3", "16",
          "the largest of 64 bits");
    wrong("1", "1", "7", "2", "3", "16", "neither complete nor not");
    wrong("1", "1", "7", "1", "65537", "16", "too many parts");
    wrong("1", "1", "7", "1", "3", "4294967296", "too large a block");

    return done();
}
