/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Encoding: one text at a time becomes token ids, in steps of a bounded time.
 *
 *     text       Hi <|im_end|> there, it's me
 *     sections  [Hi ]  token  [ there, it's me]       at added tokens
 *     normalized, split into pieces: " there" "," " it" "'s" " me"
 *     merged, piece by piece
 *
 * Sections do not depend on one another: the ids of the text before the end of
 * a special token are the same whatever follows.  Such an end is a cut, from
 * which a text can be encoded without what is before it.
 *
 * An encoder is for one thread and one tokenizer, and can be used again and
 * again, also when an encoding was not carried to its end.
 */


#ifndef KVR_ENCODER_H_INCLUDED
#define KVR_ENCODER_H_INCLUDED


#include "kvr_pieces.h"
#include "kvr_tokenizer.h"


typedef struct kvr_encoder_s  kvr_encoder_t;


typedef enum {
    KVR_ENCODER_DONE = 0,
    KVR_ENCODER_AGAIN = 1,              /* there is more to do */

    /* the text has no ids; those that are there must not be used */
    KVR_ENCODER_BAD_UTF8 = -1,
    KVR_ENCODER_REGEX = -2,             /* PCRE2 gave up */
    KVR_ENCODER_MEMORY = -3,
    KVR_ENCODER_TOO_LONG = -4           /* beyond a limit */
} kvr_encoder_rc_t;


/* of kvr_encoder_begin() */
#define KVR_ENCODER_ADD_SPECIAL  1      /* the ids around a text: BOS, EOS */


/* Bytes; 0: the default. */
typedef struct {
    size_t    text;                     /* 2^31 - 1 */
    size_t    piece;                    /* 256 KB */
} kvr_encoder_limits_t;


/* The end of a special token. */
typedef struct {
    size_t    byte;                     /* bytes of the text before it */
    size_t    ids;                      /* ids of these, without those that a
                                           text begins with */
} kvr_encoder_cut_t;


/*
 * An encoder.  The tokenizer and the pieces (NULL: without) must outlive it.
 * limits: NULL: the defaults.  NULL: no memory.
 */
kvr_encoder_t *kvr_encoder_new(const kvr_tokenizer_t *t, kvr_pieces_t *pieces,
    const kvr_encoder_limits_t *limits);
void kvr_encoder_free(kvr_encoder_t *e);

/*
 * Begins a text, which must stay until it is done.  KVR_ENCODER_AGAIN, or an
 * error.
 */
kvr_encoder_rc_t kvr_encoder_begin(kvr_encoder_t *e, const char *text,
    size_t len, uint32_t flags);

/*
 * The same from a cut of this text on.  The ids are the n given ones, which
 * are copied, and those of text[cut..len); those that a text begins with are
 * left out.  The text before the cut is not looked at.
 */
kvr_encoder_rc_t kvr_encoder_begin_at(kvr_encoder_t *e, const char *text,
    size_t len, size_t cut, const uint32_t *ids, size_t n, uint32_t flags);

/* Goes on for about so many nanoseconds; 0: to the end. */
kvr_encoder_rc_t kvr_encoder_step(kvr_encoder_t *e, uint64_t budget_ns);

/* The ids: all of them when it is done, else those that are known by now. */
const uint32_t *kvr_encoder_ids(const kvr_encoder_t *e, size_t *n);

/* The cuts that were passed by now, in the text's order. */
const kvr_encoder_cut_t *kvr_encoder_cuts(const kvr_encoder_t *e, size_t *n);

/*
 * Finds the cuts of a text without encoding it: *at, 0 or a cut, becomes the
 * next cut.  False: there is none in the next `size` bytes; *at becomes the
 * place to go on from, the text's end when there is nothing more.
 */
bool kvr_encoder_next_cut(kvr_encoder_t *e, const char *text, size_t len,
    size_t *at, size_t size);

/* A sentence for each result. */
const char *kvr_encoder_error(kvr_encoder_rc_t rc);


#endif /* KVR_ENCODER_H_INCLUDED */
