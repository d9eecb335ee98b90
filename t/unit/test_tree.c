/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The picture of a zone's tree: runs, those before them, and who holds them.
 */


#include "router_fixture.h"


#define SYSTEM    1             /* handles of the block that prompts share */
#define CHAT      100000


static kvr_tree_node_t  nodes[KVR_TREE_NODES];


static uint32_t
draw(kvr_router_t *k, bool *cut)
{
    uint32_t  n;

    ok(kvr_router_tree(k, nodes, &n, cut) == KVR_OK, "a picture is drawn");

    return n;
}


/* The number of nodes whose parent does not come before them. */

static uint32_t
orphans(uint32_t n)
{
    uint32_t  i, p, bad;

    bad = 0;

    for (i = 0; i < n; i++) {

        for (p = 0; p < i; p++) {
            if (nodes[p].run == nodes[i].parent
                && nodes[p].shard == nodes[i].shard)
            {
                break;
            }
        }

        bad += nodes[i].parent && p == i;
    }

    return bad;
}


static void
test_small(void)
{
    bool          cut;
    uint32_t      n, i, root;
    kvr_router_t  k;

    fresh(&k);
    is_u64(draw(&k, &cut), 0, "an empty zone has no runs");
    ok(!cut, "and nothing is cut off");

    put(&k, "a", "127.0.0.1:1");
    put(&k, "b", "127.0.0.1:2");

    (void) store(&k, "a", 0, SYSTEM, 6);
    (void) store(&k, "a", SYSTEM + 5, CHAT, 3);
    (void) store(&k, "b", 0, SYSTEM, 4);
    (void) store(&k, "b", SYSTEM + 3, 2 * CHAT, 2);

    n = draw(&k, &cut);

    if (kind == KVR_INDEX_POSITIONAL) {
        is_u64(n, 0, "a positional index has no runs");
        kvr_router_detach(&k);
        return;
    }

    ok(!cut, "all of a small tree is shown");
    is_u64(orphans(n), 0, "a run comes behind the run that it hangs on");

    root = UINT32_MAX;

    for (i = 0; i < n; i++) {
        if (nodes[i].parent == 0 && (shards == 1 || nodes[i].blocks == 9)) {
            root = i;
        }
    }

    ok(root != UINT32_MAX, "the run that prompts begin with is shown");

    if (shards == 1 && root != UINT32_MAX) {
        is_u64(nodes[root].blocks, 9, "with its blocks");
        is_u64(nodes[root].below, 2, "and the blocks of its branch");
        is_u64(nodes[root].holders, 2, "two hold it");
        is_u64(nodes[root].held[0].blocks + nodes[root].held[1].blocks, 13,
               "nine and four blocks of it");
        is_u64(n, 2, "one branch hangs on it");
        is_u64(nodes[1].offset, 4, "behind its fourth block");
        is_u64(nodes[1].nholders, 1, "one holds the branch");
    }

    (void) kvr_router_remove_worker(&k, "b", 1);

    n = draw(&k, &cut);

    for (i = 0, root = 0; i < n; i++) {
        root += nodes[i].holders;
    }

    is_u64(root, 1, "a worker that is gone holds nothing");

    kvr_router_detach(&k);
}


static void
test_large(void)
{
    bool          cut;
    char          id[] = "a";
    uint32_t      i, n;
    kvr_router_t  k;

    fresh(&k);

    for (i = 0; i < 16; i++) {
        id[0] = (char) ('a' + i);
        put(&k, id, "127.0.0.1:1");
        (void) store(&k, id, 0, SYSTEM, 8);
    }

    for (i = 0; i < 20000; i++) {
        (void) store(&k, "a", SYSTEM + 7, CHAT + 8 * i, 2);
    }

    n = draw(&k, &cut);
    ok(n <= KVR_TREE_NODES, "a large tree is %u nodes", n);

    if (kind == KVR_INDEX_RADIX) {
        ok(cut, "the rest is cut off");
        ok(n > KVR_TREE_NODES / (2 * shards), "much of it is shown");
        is_u64(orphans(n), 0, "no run without the run that it hangs on");
    }

    if (kind == KVR_INDEX_RADIX && shards == 1) {
        is_u64(nodes[0].blocks, 8 + 2, "the shared beginning comes first");
        is_u64(nodes[0].holders, 16, "all who hold it are counted");
        is_u64(nodes[0].nholders, KVR_TREE_HOLDERS, "and 16 are told");
    }

    kvr_router_detach(&k);
}


int
main(void)
{
    for (kind = 0; kind < KVR_INDEX_KINDS; kind++) {
        for (shards = 1; shards <= 4; shards += 3) {
            note("%s, %u shards", kvr_index_name(kind), shards);
            test_small();
            test_large();
        }
    }

    return done();
}
