/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_pieces.h"


static size_t kvr_pieces_cut(const char *text, size_t len);


kvr_rc_t
kvr_pieces_open(kvr_pieces_t *p, const yajl_callbacks *callbacks, void *ctx,
    const kvr_msgpack_t *in)
{
    memset(p, 0, sizeof(kvr_pieces_t));

    p->parser = yajl_alloc(callbacks, NULL, ctx);
    if (p->parser == NULL) {
        return KVR_FULL;
    }

    yajl_config(p->parser, yajl_allow_multiple_values, 1);

    p->pos = in->pos;
    p->left = in->left;

    return KVR_OK;
}


void
kvr_pieces_feed(kvr_pieces_t *p)
{
    size_t                len;
    const unsigned char  *text;

    if (p->left == 0) {
        p->over = true;
        p->rc = (yajl_complete_parse(p->parser) == yajl_status_ok)
                ? KVR_DONE : KVR_INVALID;
        return;
    }

    len = kvr_pieces_cut(p->pos, p->left);

    text = (const unsigned char *) p->pos;
    p->pos += len;
    p->left -= len;

    if (yajl_parse(p->parser, text, len) != yajl_status_ok) {
        p->over = true;
        p->rc = KVR_INVALID;
    }
}


/*
 * Finds the first closing brace outside of strings.  A piece must end where a
 * token ends: if a token is cut, yajl keeps it, and reads it from its
 * beginning with each piece that is added, so that the time grows with the
 * square of its length.
 */
static size_t
kvr_pieces_cut(const char *text, size_t len)
{
    bool    string;
    size_t  i;

    string = false;

    for (i = 0; i < len; i++) {

        if (text[i] == '"') {
            string = !string;

        } else if (string) {
            i += (text[i] == '\\');

        } else if (text[i] == '}') {
            return i + 1;
        }
    }

    return len;
}


void
kvr_pieces_close(kvr_pieces_t *p)
{
    if (p->parser != NULL) {
        yajl_free(p->parser);
        p->parser = NULL;
    }
}
