/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_msgpack.h"


static uint64_t kvr_msgpack_u64(const char *pos);
static kvr_rc_t kvr_msgpack_read_any(kvr_msgpack_t *in,
    kvr_msgpack_item_t *item);
static kvr_rc_t kvr_msgpack_broken(kvr_msgpack_t *in);
static uint64_t kvr_msgpack_children(const kvr_msgpack_item_t *item);
static size_t kvr_msgpack_integer_size(const kvr_msgpack_t *in);


kvr_rc_t
kvr_msgpack_read(kvr_msgpack_t *in, kvr_msgpack_item_t *item)
{
    uint8_t  c;

    if (in->left == 0) {
        return KVR_INVALID;
    }

    /* the most frequent types are read here, without a call for each */

    c = (uint8_t) in->pos[0];

    item->count = 0;
    item->number = 0;
    item->bytes = NULL;

    if (c < 0x80) {
        item->type = MPACK_TOKEN_UINT;
        item->number = c;

    } else if (c == 0xc0) {
        item->type = MPACK_TOKEN_NIL;

    } else if (c == 0xcf && in->left >= 9) {
        item->type = MPACK_TOKEN_UINT;
        item->number = kvr_msgpack_u64(in->pos + 1);
        in->pos += 8;
        in->left -= 8;

    } else if ((c & 0xe0) == 0xa0 && in->left > (c & 0x1fu)) {
        item->type = MPACK_TOKEN_STR;
        item->count = c & 0x1f;
        item->bytes = in->pos + 1;
        in->pos += item->count;
        in->left -= item->count;

    } else if ((c & 0xf0) == 0x90 && in->left > (c & 0x0fu)) {
        item->type = MPACK_TOKEN_ARRAY;
        item->count = c & 0x0f;

    } else {
        return kvr_msgpack_read_any(in, item);
    }

    in->pos++;
    in->left--;

    return KVR_OK;
}


static uint64_t
kvr_msgpack_u64(const char *pos)
{
    uint32_t  i;
    uint64_t  n;

    n = 0;

    for (i = 0; i < 8; i++) {
        n = n << 8 | (uint8_t) pos[i];
    }

    return n;
}


static kvr_rc_t
kvr_msgpack_read_any(kvr_msgpack_t *in, kvr_msgpack_item_t *item)
{
    mpack_token_t   token;
    mpack_tokbuf_t  buf;

    /* the token is complete or the message broken: no state is kept */

    buf.ppos = 0;
    buf.plen = 0;
    buf.passthrough = 0;

    if (mpack_read(&buf, &in->pos, &in->left, &token) != MPACK_OK) {
        return kvr_msgpack_broken(in);
    }

    item->type = token.type;

    switch (token.type) {

    case MPACK_TOKEN_BOOLEAN:
    case MPACK_TOKEN_UINT:
        item->number = (uint64_t) token.data.value.hi << 32
                       | token.data.value.lo;
        break;

    case MPACK_TOKEN_SINT:
        item->number = (uint64_t) token.data.value.hi << 32
                       | token.data.value.lo;

        if (token.length < 8) {
            item->number |= UINT64_MAX << (token.length * 8);
        }

        break;

    case MPACK_TOKEN_STR:
    case MPACK_TOKEN_BIN:
    case MPACK_TOKEN_EXT:
        if (token.length > in->left) {
            return kvr_msgpack_broken(in);
        }

        item->count = token.length;
        item->bytes = in->pos;
        in->pos += token.length;
        in->left -= token.length;
        break;

    case MPACK_TOKEN_ARRAY:
    case MPACK_TOKEN_MAP:
        item->count = token.length;

        if (kvr_msgpack_children(item) > in->left) {
            return kvr_msgpack_broken(in);
        }

        break;

    default:
        break;
    }

    return KVR_OK;
}


kvr_rc_t
kvr_msgpack_skip_rest(kvr_msgpack_t *in, const kvr_msgpack_item_t *item,
    uint32_t room)
{
    size_t              size;
    kvr_rc_t            rc;
    uint32_t            depth;
    uint64_t            n, todo[KVR_MSGPACK_DEPTH];
    kvr_msgpack_item_t  inner;

    n = kvr_msgpack_children(item);

    if (n == 0) {
        return KVR_OK;
    }

    rc = (room == 0) ? KVR_FULL : KVR_OK;
    depth = 0;
    todo[0] = n;

    for ( ;; ) {

        while (todo[depth] != 0) {
            size = kvr_msgpack_integer_size(in);

            if (size == 0) {
                break;
            }

            in->pos += size;
            in->left -= size;
            todo[depth]--;
        }

        if (todo[depth] == 0) {
            if (depth == 0) {
                return rc;
            }

            depth--;
            continue;
        }

        if (kvr_msgpack_read(in, &inner) != KVR_OK) {
            return KVR_INVALID;
        }

        todo[depth]--;
        n = kvr_msgpack_children(&inner);

        if (n == 0) {
            continue;
        }

        if (depth + 1 < kvr_min(room, KVR_MSGPACK_DEPTH)) {
            todo[++depth] = n;
            continue;
        }

        /* too deep for its own level: count its values at this level */

        todo[depth] += n;
        rc = KVR_FULL;
    }
}


kvr_rc_t
kvr_msgpack_skip(kvr_msgpack_t *in, uint32_t room)
{
    kvr_msgpack_item_t  item;

    if (kvr_msgpack_read(in, &item) != KVR_OK) {
        return KVR_INVALID;
    }

    return kvr_msgpack_skip_rest(in, &item, room);
}


uint32_t
kvr_msgpack_u32s(kvr_msgpack_t *in, uint32_t *out, uint32_t n)
{
    size_t              left;
    uint32_t            i;
    kvr_msgpack_t       next;
    kvr_msgpack_item_t  item;
    const uint8_t      *p;

    p = (const uint8_t *) in->pos;
    left = in->left;

    for (i = 0; i < n && left != 0; i++) {

        /* the four forms that token ids have, without a call for each */

        if (p[0] < 0x80) {
            out[i] = p[0];
            p += 1;
            left -= 1;
            continue;
        }

        if (p[0] == 0xcd && left >= 3) {
            out[i] = (uint32_t) p[1] << 8 | p[2];
            p += 3;
            left -= 3;
            continue;
        }

        if (p[0] == 0xce && left >= 5) {
            out[i] = (uint32_t) p[1] << 24 | (uint32_t) p[2] << 16
                     | (uint32_t) p[3] << 8 | p[4];
            p += 5;
            left -= 5;
            continue;
        }

        if (p[0] == 0xcc && left >= 2) {
            out[i] = p[1];
            p += 2;
            left -= 2;
            continue;
        }

        next.pos = (const char *) p;
        next.left = left;

        if (kvr_msgpack_read(&next, &item) != KVR_OK
            || item.type != MPACK_TOKEN_UINT || item.number > UINT32_MAX)
        {
            break;
        }

        out[i] = (uint32_t) item.number;
        p = (const uint8_t *) next.pos;
        left = next.left;
    }

    in->pos = (const char *) p;
    in->left = left;

    return i;
}


bool
kvr_msgpack_equals(const kvr_msgpack_item_t *item, const char *text)
{
    size_t  len;

    if (item->type != MPACK_TOKEN_STR) {
        return false;
    }

    len = strlen(text);

    return item->count == len && memcmp(item->bytes, text, len) == 0;
}


static kvr_rc_t
kvr_msgpack_broken(kvr_msgpack_t *in)
{
    in->left = 0;

    return KVR_INVALID;
}


static uint64_t
kvr_msgpack_children(const kvr_msgpack_item_t *item)
{
    switch (item->type) {

    case MPACK_TOKEN_ARRAY:
        return item->count;

    case MPACK_TOKEN_MAP:
        return (uint64_t) item->count * 2;

    default:
        return 0;
    }
}


/* The size of the integer that comes next; 0: no integer, or cut short. */
static size_t
kvr_msgpack_integer_size(const kvr_msgpack_t *in)
{
    size_t   size;
    uint8_t  c;

    if (in->left == 0) {
        return 0;
    }

    c = (uint8_t) in->pos[0];

    if (c < 0x80 || c >= 0xe0) {
        return 1;
    }

    if (c < 0xcc || c > 0xd3) {
        return 0;
    }

    size = 1 + ((size_t) 1 << (c & 3));

    return size <= in->left ? size : 0;
}
