/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kvr_hit() beside the sentences of kvr_hit.h, block by block.
 *
 *     test_hit [rounds [seed]]
 */


#include "groups.h"


#define ROUNDS     60
#define ROW        200                  /* blocks of a row */


static void
random_row(uint64_t *row)
{
    uint32_t  i, n, at, held;

    memset(row, 0, (ROW / 64 + 1) * sizeof(uint64_t));
    held = below(2);

    for (at = 0; at < ROW; at += n) {
        n = 1 + below(below(4) ? 4 : 60);

        for (i = at; i < at + n && i < ROW && held; i++) {
            row[i / 64] |= UINT64_C(1) << (i % 64);
        }

        held = !held;
    }
}


static void
test_rule(uint32_t rounds)
{
    uint32_t         i, round, n, span, full, limit, wrong, zero, whole;
    uint64_t         bits[KVR_CLASSES_MAX][ROW / 64 + 1];
    const uint64_t  *rows[KVR_CLASSES_MAX];
    kvr_class_t      classes[KVR_CLASSES_MAX];
    kvr_hit_rule_t   rule;

    static const kvr_group_kind_t  kinds_of[] = {
        KVR_GROUP_INDEXED, KVR_GROUP_WINDOW, KVR_GROUP_MAMBA,
        KVR_GROUP_CHUNKED
    };

    wrong = 0;
    zero = 0;
    whole = 0;

    for (round = 0; round < rounds * 2000; round++) {

        n = below(KVR_CLASSES_MAX + 1);
        span = 1 + below(3);
        full = below(ROW);
        limit = below(2) ? full : below(ROW);
        rule.drop = below(4) == 0;
        rule.chunk = below(4) ? (1 + below(8)) * span : below(3);

        for (i = 0; i < n; i++) {
            random_row(bits[i]);
            rows[i] = bits[i];
            classes[i].kind = kinds_of[below(4)];
            classes[i].window = below(3) ? below(12) : below(1000000000);
            classes[i].span = span;

            if (classes[i].window * (uint64_t) span > UINT32_MAX / 2) {
                classes[i].window = ROW;
            }
        }

        i = kvr_hit(classes, n, rows, span, full, limit, &rule);

        if (i != naive_hit(classes, n, rows, span, kvr_min(full, limit),
                           &rule))
        {
            wrong++;
        }

        zero += i == 0;
        whole += i && i == kvr_min(full, limit) / span * span;
    }

    note("%u hits, %u of them 0, %u all that was held", round, zero, whole);
    ok(wrong == 0 && zero > rounds && whole > rounds && zero + whole < round,
       "the hit is the largest number that all classes accept");
}


int
main(int argc, char **argv)
{
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 20261122;

    test_rule(argc > 1 ? (uint32_t) strtoul(argv[1], NULL, 0) : ROUNDS);

    return done();
}
