/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A tokenizer.json of any bytes: it is refused with a sentence, or it encodes
 * a text, whose ids are the same in one step and in many.
 */


#include "fuzz.h"

#include "token/kvr_encoder.h"


static void encode(const kvr_tokenizer_t *t);
static kvr_encoder_rc_t ids(kvr_encoder_t *e, uint64_t budget);


const uint32_t  fuzz_inputs = 100000;

static const char  sample[] = "It's 1,024 blocks,\n\n  n\xc3\xa4mlich "
                              "e\xcc\x81 \xe4\xb8\xad\xe6\x96\x87 <|im_end|> "
                              "\xe1\xb2\x89\xe1\xa0\x8e\0x";


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char             *text, why[KVR_TOKENIZER_WHY];
    kvr_tokenizer_t  *t;

    text = fuzz_copy(bytes, len);
    why[0] = '\0';

    t = kvr_tokenizer_load(text, len, KVR_UNICODE_16, why, sizeof(why));

    free(text);

    if (t == NULL) {
        if (why[0] == '\0' || memchr(why, '\0', sizeof(why)) == NULL) {
            fuzz_fail("a tokenizer is refused without a sentence");
        }

        return 0;
    }

    encode(t);
    kvr_tokenizer_free(t);

    return 0;
}


static void
encode(const kvr_tokenizer_t *t)
{
    size_t             n, again;
    uint32_t          *copy;
    kvr_pieces_t      *pieces;
    kvr_encoder_t     *e;
    const uint32_t    *found;
    kvr_encoder_rc_t   rc;

    pieces = kvr_pieces_new(16);
    e = kvr_encoder_new(t, pieces, NULL);

    rc = ids(e, 0);
    found = kvr_encoder_ids(e, &n);
    copy = fuzz_copy(found, n * sizeof(*found));

    if (ids(e, 1) != rc) {
        fuzz_fail("in steps the result is not %d", rc);
    }

    found = kvr_encoder_ids(e, &again);

    if (rc == KVR_ENCODER_DONE
        && (n != again || (n && memcmp(found, copy, n * sizeof(*found)))))
    {
        fuzz_fail("in steps there are other ids");
    }

    free(copy);
    kvr_encoder_free(e);
    kvr_pieces_free(pieces);
}


static kvr_encoder_rc_t
ids(kvr_encoder_t *e, uint64_t budget)
{
    kvr_encoder_rc_t  rc;

    rc = kvr_encoder_begin(e, sample, sizeof(sample) - 1,
                           KVR_ENCODER_ADD_SPECIAL);

    while (rc == KVR_ENCODER_AGAIN) {
        rc = kvr_encoder_step(e, budget);
    }

    return rc;
}
