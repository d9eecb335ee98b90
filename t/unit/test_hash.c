/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Block hashes against t/vectors/block_hashes.json, made by Dynamo's rules.
 * The folder of the vectors: argv[1], else $KVR_VECTORS, else t/vectors.
 */


#include "core/kvr_hash.h"

#include "tap.h"

#include <stdlib.h>
#include <yajl/yajl_tree.h>


#define MAX    4096


static char  text[1 << 20];


static yajl_val
get(yajl_val node, const char *name, yajl_type type)
{
    const char  *path[] = { name, NULL };

    return yajl_tree_get(node, path, type);
}


static uint64_t
number(yajl_val v)
{
    return strtoull(YAJL_IS_STRING(v) ? YAJL_GET_STRING(v)
                                      : YAJL_GET_NUMBER(v), NULL, 10);
}


static const char *
string(yajl_val node, const char *name)
{
    yajl_val  v;

    v = get(node, name, yajl_t_string);

    return v ? YAJL_GET_STRING(v) : "";
}


static void
is_list(const uint64_t *got, yajl_val want, const char *name,
    const char *what)
{
    size_t  i;

    for (i = 0; i < want->u.array.len; i++) {
        is_u64(got[i], number(want->u.array.values[i]), "%s: %s hash %zu",
               name, what, i);
    }
}


static void
blocks(yajl_val c, const char *name)
{
    bool           pairs;
    size_t         i, k, n, count, block;
    uint32_t       tokens[MAX];
    uint64_t       mm[64], local[MAX], sequence[MAX];
    yajl_val       list, hashes;
    const char    *lora, *salt;
    kvr_hasher_t   h;

    list = get(c, "tokens", yajl_t_array);
    n = list->u.array.len;

    for (i = 0; i < n; i++) {
        tokens[i] = (uint32_t) number(list->u.array.values[i]);
    }

    block = number(get(c, "block_size", yajl_t_number));
    lora = string(c, "lora_name");
    salt = string(c, "cache_salt");

    h.ready = false;
    kvr_hasher_init(&h, kvr_hash_seed(lora, strlen(lora), salt,
                                      strlen(salt)));

    hashes = get(c, "mm_hashes", yajl_t_array);
    pairs = get(c, "eagle", yajl_t_true) != NULL;
    count = (n - pairs) / block;

    if (hashes) {
        for (i = 0; i < count; i++) {
            list = hashes->u.array.values[i];

            for (k = 0; k < list->u.array.len; k++) {
                mm[k] = number(list->u.array.values[k]);
            }

            local[i] = kvr_hash_block_mm(&h, tokens + i * block,
                                         (uint32_t) (block + pairs), mm,
                                         list->u.array.len);
        }

    } else if (pairs) {
        i = kvr_hash_pairs(&h, tokens, n, (uint32_t) block, local);

    } else {
        i = kvr_hash_blocks(&h, tokens, n, (uint32_t) block, local);
    }

    is_u64(i, count, "%s: only complete blocks", name);

    kvr_hash_sequence(local, i, sequence);

    is_list(local, get(c, "local", yajl_t_array), name, "local");
    is_list(sequence, get(c, "sequence", yajl_t_array), name, "sequence");
}


/*
 * Every way this CPU can go, at every length and on both sides of each change
 * of method (16, 128, 240, 1024 bytes), against xxhash without a prepared
 * secret; data at any address.
 */

static void
ways(void)
{
    size_t                 i, n, bytes, wrong;
    uint8_t                data[3 * KVR_BLOCK_SIZE_MAX * 4 + 3];
    uint64_t               out[3];
    kvr_hasher_t           h;
    const kvr_hash_way_t  *way;

    for (i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t) ((i * 2654435761u) >> 13);
    }

    h.ready = false;
    kvr_hasher_init(&h, UINT64_C(0x123456789abcdef0));

    ok(h.way == kvr_hash_way(0), "a hasher goes the fastest way");

    for (i = 0; kvr_hash_way(i) != NULL; i++) {
        way = kvr_hash_way(i);
        wrong = 0;

        for (bytes = 0; bytes <= KVR_BLOCK_SIZE_MAX * 4; bytes++) {
            way->blocks(&h, data + bytes % 4, bytes, 3, out);

            for (n = 0; n < 3; n++) {
                wrong += out[n] != kvr_hash_bytes(data + bytes % 4 + n * bytes,
                                                  bytes, h.seed);
            }
        }

        is_u64(wrong, 0, "\"%s\" answers what xxhash answers, for 0..%zu "
               "bytes", way->name, bytes - 1);
    }

    ok(strcmp(kvr_hash_way(i - 1)->name, "base") == 0 && i <= 2,
       "the last way is that of every CPU");

    printf("# the ways of this CPU: %zu, the fastest is \"%s\"\n", i,
           kvr_hash_way(0)->name);
}


int
main(int argc, char **argv)
{
    FILE          *f;
    char           path[1024], error[256];
    size_t         i, n;
    uint32_t       tokens[1024];
    uint64_t       a[2], b[2], mm[3] = { 3, 1, 2 }, sorted[3] = { 1, 2, 3 };
    yajl_val       root, cases, c;
    const char    *dir, *bytes;
    kvr_hasher_t   h;

    dir = argc > 1 ? argv[1] : getenv("KVR_VECTORS");
    snprintf(path, sizeof(path), "%s/block_hashes.json",
             dir ? dir : "t/vectors");

    f = fopen(path, "r");
    n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    if (f) {
        fclose(f);
    }

    text[n] = '\0';
    root = yajl_tree_parse(text, error, sizeof(error));

    if (root == NULL) {
        printf("Bail out! %s: %s\n", path, error);
        return 1;
    }

    cases = get(root, "cases", yajl_t_array);

    for (i = 0; i < cases->u.array.len; i++) {
        c = cases->u.array.values[i];
        bytes = string(c, "bytes");

        if (*bytes) {
            is_u64(kvr_hash_bytes(bytes, strlen(bytes),
                                  number(get(c, "seed", yajl_t_number))),
                   number(get(c, "xxh3_64", yajl_t_string)), "raw bytes");

        } else {
            blocks(c, string(c, "name"));
        }
    }

    yajl_tree_free(root);

    /* blocks on both sides of XXH3's change of method at 240 bytes */

    for (i = 0; i < 1024; i++) {
        tokens[i] = (uint32_t) (i * 2654435761u);
    }

    h.ready = false;
    kvr_hasher_init(&h, 1337);

    for (n = 1; n <= 512; n = n * 2 + 1) {
        (void) kvr_hash_blocks(&h, tokens, n * 2, (uint32_t) n, a);
        b[0] = kvr_hash_bytes(tokens, n * 4, 1337);
        b[1] = kvr_hash_bytes(tokens + n, n * 4, 1337);
        ok(a[0] == b[0] && a[1] == b[1], "the prepared secret changes "
           "nothing for blocks of %zu tokens", n);
    }

    a[0] = kvr_hash_block_mm(&h, tokens, 16, mm, 3);
    a[1] = kvr_hash_block_mm(&h, tokens, 16, sorted, 3);
    is_u64(a[0], a[1], "multimodal hashes are sorted first");
    ok(kvr_hash_block_mm(&h, tokens, 16, mm, 0)
       == kvr_hash_bytes(tokens, 64, 1337), "none of them change nothing");
    ok(kvr_hash_seed("a", 1, "", 0) != kvr_hash_seed("", 0, "a", 1),
       "a LoRA and a salt of the same name are two seeds");

    ways();

    return done();
}
