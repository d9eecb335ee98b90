/*
 * Copyright (C) the nginx-kv-router authors
 *
 * TensorRT-LLM's events.
 */


#include "decode.h"


#define EV(i)  (&got.event[i].ev)


/* "[1,2]" becomes a list of tokens as the engine writes them. */
static char *
tokens(char *out, unsigned from, unsigned n)
{
    char      *p;
    unsigned   i;

    p = out;
    *p++ = '[';

    for (i = 0; i < n; i++) {
        p += sprintf(p, "%s{'type':'unique_token','token_id':%u,"
                     "'token_extra_id':0}", i == 0 ? "" : ",", from + i);
    }

    strcpy(p, "]");

    return out;
}


/* A block of n tokens, counted from its hash on. */
static char *
block(char *out, const char *hash, unsigned from, unsigned n, int level,
    const char *more)
{
    char  list[4096];

    sprintf(out, "{'type':'stored_block','block_hash':%s,'tokens':%s,"
            "'cache_level':%d,'priority':35%s}", hash, tokens(list, from, n),
            level, more);

    return out;
}


static void
stored(const char *parent, const char *blocks, const char *more)
{
    char  json[32768];

    snprintf(json, sizeof(json), "[{'event_id':5,'data':{'type':'stored',"
             "'parent_hash':%s,'blocks':[%s]}%s}]", parent, blocks, more);
    decode_json(json);
}


/* Blocks one after another. */
static void
test_stored(void)
{
    char  a[4096], b[4096], c[4096], all[16384];

    block(a, "18446744073709551615", 10, 4, 0, ",'mm_keys':[],"
          "'cache_salt':null,'lora_id':null");
    block(b, "9007199254740993", 20, 4, 0, "");
    block(c, "7", 30, 3, 0, "");
    snprintf(all, sizeof(all), "%s,%s", a, b);

    stored("null", all, ",'window_size':4096,'attention_dp_rank':3");

    ok(got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 1
       && got.msg.form == KVR_FORM_BARE && !got.msg.counted,
       "a list of events is a bare batch, that counts nothing");

    ok(EV(0)->kind == KVR_STORE && EV(0)->verdict == KVR_KEEP
       && EV(0)->rank == 3 && EV(0)->has_event_id && EV(0)->event_id == 5
       && EV(0)->tier == KVR_DEVICE && !EV(0)->has_parent
       && EV(0)->nhandles == 2 && got.event[0].handles[0] == UINT64_MAX
       && got.event[0].handles[1] == 9007199254740993u
       && EV(0)->ntokens == 8 && EV(0)->block_size == 4
       && got.event[0].tokens[0] == 10 && got.event[0].tokens[7] == 23
       && EV(0)->window == 4096 && EV(0)->worker == NULL,
       "a store has all its fields, and hashes all their bits");

    snprintf(all, sizeof(all), "%s,%s,%s", a, b, c);
    stored("'12345678901234567890'", all, "");

    ok(got.n == 2 && EV(0)->verdict == KVR_KEEP && EV(0)->nhandles == 2
       && EV(0)->has_parent && EV(0)->parent == 12345678901234567890u
       && EV(1)->verdict == KVR_FILTERED && EV(1)->why == KVR_WHY_PARTIAL
       && EV(1)->nhandles == 1 && got.event[1].handles[0] == 7
       && EV(1)->has_parent && EV(1)->parent == 9007199254740993u
       && EV(1)->event_id == 5 && EV(1)->at == 1,
       "a partial last block is filtered, the blocks before it are kept");

    block(a, "-1", 10, 4, 0, "");
    block(b, "'00000000000000ff00000000000000ab'", 20, 4, 1, "");
    block(c, "'-9223372036854775808'", 30, 4, 1, "");
    snprintf(all, sizeof(all), "%s,%s,%s", a, b, c);
    stored("null", all, "");

    ok(got.n == 2 && EV(0)->nhandles == 1 && EV(0)->tier == KVR_DEVICE
       && EV(1)->nhandles == 2 && EV(1)->tier == KVR_HOST
       && EV(1)->has_parent && EV(1)->parent == UINT64_MAX
       && got.event[0].handles[0] == UINT64_MAX
       && got.event[1].handles[0] == 0xab
       && got.event[1].handles[1] == 1ull << 63
       && got.event[0].tokens[0] == 10 && EV(0)->ntokens == 4
       && got.event[1].tokens[0] == 20 && EV(1)->ntokens == 8,
       "blocks in two tiers are two stores, the second below the first");

    ok(true, "hashes may be signed, decimal in a string, or hexadecimal");

    block(c, "9", 30, 4, 7, "");
    snprintf(all, sizeof(all), "%s,%s,%s", a, b, c);
    stored("null", all, "");
    ok(got.n == 3 && EV(2)->verdict == KVR_FILTERED
       && EV(2)->why == KVR_WHY_MEDIUM && EV(1)->verdict == KVR_KEEP,
       "a block in a level that we don't know is filtered");

    kvr_decoder_conf(decoder)->window = 0;

    stored("null", "", "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->nhandles == 0,
       "a store of no blocks is one");

    decode_json("[{'event_id':'5','window_size':'64','attention_dp_rank':'2',"
                "'data':{'blocks':[{'tokens':[{'token_id':'3'},{'token_id':"
                "'4294967295'}],'cache_level':'1','block_hash':'6'}],"
                "'parent_hash':'8','type':'stored'}}]");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->event_id == 5
       && EV(0)->window == 64 && EV(0)->rank == 2 && EV(0)->parent == 8
       && EV(0)->tier == KVR_HOST && got.event[0].tokens[0] == 3
       && got.event[0].tokens[1] == UINT32_MAX
       && got.event[0].handles[0] == 6,
       "numbers may be strings, and the type comes last");
}


static void
test_sizes(void)
{
    char  a[4096], b[4096], all[16384];

    block(a, "1", 10, 5, 0, "");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_PARTIAL,
       "a block whose size is no power of two is partial");

    block(a, "1", 10, 4, 0, "");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->block_size == 4,
       "another one is whole where nothing is known");

    kvr_decoder_conf(decoder)->contract = (kvr_contract_t) { 8, false };
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_PARTIAL,
       "but partial when it is smaller than the index's blocks");

    block(a, "1", 10, 16, 0, "");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->block_size == 16,
       "and whole when it is larger");

    block(a, "1", 10, 4, 0, "");
    block(b, "2", 20, 4, 0, "");
    snprintf(all, sizeof(all), "%s,%s", a, b);
    stored("null", all, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->block_size == 4
       && EV(0)->nhandles == 2,
       "a block that another follows is whole, whatever its size");

    kvr_decoder_conf(decoder)->contract = (kvr_contract_t) { 0, false };

    block(b, "2", 20, 8, 0, "");
    snprintf(all, sizeof(all), "%s,%s", a, b);
    stored("null", all, "");
    ok(got.n == 2 && EV(0)->verdict == KVR_KEEP
       && EV(1)->verdict == KVR_REFUSED && EV(1)->why == KVR_WHY_LENGTH,
       "a larger block behind a smaller one is refused");

    block(a, "1", 10, 3, 0, "");
    block(b, "2", 20, 3, 0, "");
    snprintf(all, sizeof(all), "%s,%s", b, a);
    stored("null", all, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->block_size == 3,
       "blocks of equal size are whole");

    block(a, "1", 10, 0, 1, "");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->ntokens == 0
       && EV(0)->block_size == 0 && EV(0)->tier == KVR_HOST,
       "a block without tokens adds a tier");

}


static void
test_keys(void)
{
    char  a[4096], b[4096], all[16384];

#define MM  "{'type':'mm_key','hash':'0123456789abcdeffedcba9876543210',"     \
            "'start_offset':0}"

    block(a, "1", 10, 4, 0, ",'mm_keys':[" MM "]");
    block(b, "2", 20, 4, 0, ",'mm_keys':[]");
    snprintf(all, sizeof(all), "%s,%s", a, b);
    stored("null", all, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->mm_start != NULL
       && got.event[0].mm_start[0] == 0 && got.event[0].mm_start[1] == 1
       && got.event[0].mm_start[2] == 1
       && got.event[0].mm[0] == 0x0123456789abcdefu,
       "multimodal keys are of the block they are with");

    snprintf(all, sizeof(all), "%s,%s", b, a);
    stored("null", all, "");
    ok(got.n == 1 && got.event[0].mm_start[1] == 0
       && got.event[0].mm_start[2] == 1, "the second block too");

    block(a, "1", 10, 4, 0, ",'mm_keys':[{'type':'mm_key','hash':'uuid'}]");
    snprintf(all, sizeof(all), "%s,%s", b, a);
    stored("null", all, "");
    ok(got.n == 2 && EV(0)->verdict == KVR_KEEP
       && EV(1)->why == KVR_WHY_EXTRA_KEY,
       "a key without hexadecimal digits can't be classified");

    snprintf(all, sizeof(all), "%s,%s", a, b);
    stored("null", all, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_FILTERED && EV(0)->nhandles == 2,
       "what follows a block that is filtered is filtered");

    block(a, "1", 10, 4, 0, ",'mm_keys':[7]");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_EXTRA_KEY, "a key is an object");

    block(a, "1", 10, 4, 0, ",'mm_keys':[{'type':'mm_key','start_offset':0}]");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_EXTRA_KEY,
       "a key without a hash is not plain");

    block(a, "1", 10, 4, 0, ",'mm_keys':[{'hash':null},{}]");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_EXTRA_KEY,
       "nor is one whose hash is null");

    block(a, "1", 10, 4, 0, ",'mm_keys':[" MM ",{}]");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_EXTRA_KEY,
       "nor is one beside another that has it");

    block(a, "1", 10, 4, 0, ",'mm_keys':null");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP, "without keys a block is");

    block(a, "1", 10, 4, 0, ",'cache_salt':'s3cret'");
    block(b, "2", 20, 4, 0, ",'cache_salt':'s3cret'");
    snprintf(all, sizeof(all), "%s,%s", a, b);
    stored("null", all, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP
       && strcmp(got.event[0].salt, "s3cret") == 0, "blocks have a salt");

    block(b, "2", 20, 4, 0, "");
    snprintf(all, sizeof(all), "%s,%s", a, b);
    stored("null", all, "");
    ok(got.n == 2 && EV(0)->verdict == KVR_KEEP
       && EV(1)->why == KVR_WHY_EXTRA_KEY,
       "a block without the salt of the first can't be hashed");

    snprintf(all, sizeof(all), "%s,%s", b, a);
    stored("null", all, "");
    ok(got.n == 2 && got.event[0].salt[0] == '\0'
       && EV(1)->why == KVR_WHY_EXTRA_KEY, "nor one that is salted later");

    block(a, "1", 10, 4, 0, ",'lora_id':0");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP
       && strcmp(got.event[0].lora, "0") == 0,
       "a LoRA known by number only has the number as its name");

    block(b, "2", 20, 4, 0, ",'lora_id':7");
    snprintf(all, sizeof(all), "%s,%s", a, b);
    stored("null", all, "");
    ok(got.n == 2 && strcmp(got.event[0].lora, "0") == 0
       && EV(1)->why == KVR_WHY_LORA_ID,
       "a block of another number than the first is filtered");

    block(a, "1", 10, 4, 0, ",'lora_id':-1");
    stored("null", a, "");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_LORA_ID,
       "a LoRA with neither a name nor a number is filtered");

    decode_json("{'event_id':1,'data':{'type':'stored','parent_hash':null,"
                "'blocks':[{'block_hash':1,'lora_id':7,'tokens':"
                "[{'token_id':3},{'token_id':4}]}],'lora_name':'ad'}}");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP
       && strcmp(got.event[0].lora, "ad") == 0,
       "one with a number and a name is known");

    decode_json("{'event_id':1,'data':{'type':'stored','parent_hash':null,"
                "'lora_name':'ad','blocks':[{'block_hash':1,'tokens':"
                "[{'token_id':3},{'token_id':4}]}]}}");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP
       && strcmp(got.event[0].lora, "ad") == 0,
       "a LoRA's name comes with the event, which may stand alone");

    decode_json("[{'event_id':1,'data':{'type':'stored','parent_hash':null,"
                "'blocks':[{'block_hash':1,'tokens':[{'token_id':3,"
                "'token_extra_id':1},{'token_id':4}]}]}}]");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_EXTRA_KEY,
       "tokens with an extra id are not plain");

    decode_json("[{'event_id':1,'data':{'type':'stored','parent_hash':null,"
                "'blocks':[{'block_hash':1,'tokens':[{'token_id':'9f0c'},"
                "{'token_id':4}]}]}}]");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_EXTRA_KEY,
       "nor is one that stands for a part of an image");
}


static void
test_changes(void)
{
    uint32_t  i;

    decode_json("[{'event_id':6,'data':{'type':'removed','block_hashes':"
                "[1,'2',18446744073709551615]},'window_size':64,"
                "'attention_dp_rank':1}]");

    for (i = 0; i < 3; i++) {
        ok(got.n == 3 && EV(i)->kind == KVR_REMOVE
           && EV(i)->verdict == KVR_KEEP && EV(i)->tier == (kvr_tier_t) i
           && EV(i)->nhandles == 3 && got.event[i].handles[2] == UINT64_MAX
           && EV(i)->remaining != NULL && got.event[i].remaining[2] == 0
           && EV(i)->event_id == 6 && EV(i)->rank == 1 && EV(i)->at == i,
           "a removal is one from tier %u, with no copy left", i);
    }

    decode_json("[{'event_id':7,'data':{'type':'updated','block_hash':9,"
                "'cache_level':{'type':'event_diff','new_value':1,"
                "'old_value':0},'priority':null}}]");
    ok(got.n == 2 && EV(0)->kind == KVR_STORE && EV(0)->tier == KVR_HOST
       && EV(0)->ntokens == 0 && got.event[0].handles[0] == 9
       && EV(1)->kind == KVR_REMOVE && EV(1)->tier == KVR_DEVICE
       && got.event[1].handles[0] == 9 && got.event[1].remaining[0] == 0,
       "a block that moves is stored there, and then removed here");

    decode_json("[{'event_id':7,'data':{'type':'updated','block_hash':9,"
                "'cache_level':null,'priority':{'type':'event_diff',"
                "'new_value':1,'old_value':0}}}]");
    ok(got.n == 1 && EV(0)->verdict == KVR_KEEP && EV(0)->kind == KVR_STORE
       && EV(0)->nhandles == 0 && EV(0)->event_id == 7,
       "a new priority changes nothing, but its number counts");

    decode_json("[{'event_id':7,'data':{'type':'updated','block_hash':9,"
                "'cache_level':{'new_value':5,'old_value':1}}}]");
    ok(got.n == 2 && EV(0)->why == KVR_WHY_MEDIUM
       && EV(1)->kind == KVR_REMOVE && EV(1)->tier == KVR_HOST,
       "a block that goes to a level that we don't know is gone");

    decode_json("[{'event_id':7,'data':{'type':'updated',"
                "'cache_level':{'new_value':1,'old_value':0}}}]");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_SYNTAX,
       "an update says which block");

    decode_json("[{'event_id':0,'data':{'type':'created',"
                "'num_blocks_per_cache_level':[101230,0]},"
                "'attention_dp_rank':2},{'event_id':1,'data':{'type':"
                "'created','num_blocks_per_cache_level':[5,0]}}]");
    ok(got.n == 2 && EV(0)->kind == KVR_CLEAR && EV(0)->rank == 2
       && EV(1)->kind == KVR_STORE && EV(1)->nhandles == 0
       && EV(1)->verdict == KVR_KEEP && EV(1)->event_id == 1,
       "an engine that begins clears its rank, once");
}


static void
test_windows(void)
{
#define REMOVED(window)                                                       \
    "{'event_id':9,'data':{'type':'removed','block_hashes':[4]},"             \
    "'window_size':" window "}"
#define CREATED(id, window)                                                   \
    "{'event_id':" id ",'data':{'type':'created',"                            \
    "'num_blocks_per_cache_level':[1]},'window_size':" window "}"

    kvr_decoder_conf(decoder)->window = 0;

    decode_json("[" CREATED("0", "128") "," CREATED("1", "4096") ","
                REMOVED("128") "," REMOVED("4096") "]");
    ok(got.n == 6 && EV(0)->kind == KVR_CLEAR && EV(0)->window == 128
       && EV(1)->window == 4096
       && EV(2)->verdict == KVR_FILTERED && EV(2)->why == KVR_WHY_GROUP
       && EV(2)->nhandles == 1 && EV(2)->group == 128
       && EV(2)->group_kind == KVR_GROUP_OTHER
       && EV(3)->verdict == KVR_KEEP && EV(3)->group == 0
       && EV(5)->tier == KVR_DISK,
       "only the largest window is indexed, others are groups of their own");

    ok(EV(2)->source == 2 && EV(3)->source == 3 && EV(3)->more
       && EV(4)->source == 3 && EV(4)->more
       && EV(5)->source == 3 && !EV(5)->more && !EV(2)->more,
       "parts are of one event, and the last one is known");

    decode_json("[{'event_id':7,'data':{'type':'updated','block_hash':9,"
                "'cache_level':{'new_value':1,'old_value':0}}},"
                "{'event_id':8,'data':{'type':'updated','block_hash':9,"
                "'cache_level':{'new_value':5,'old_value':7}}},"
                "{'event_id':9,'data':{'type':'stored','blocks':["
                "{'block_hash':1,'cache_level':0},"
                "{'block_hash':2,'cache_level':1}]}},"
                "{'event_id':10,'data':{'type':'created'}}]");
    ok(got.n == 6 && EV(0)->more && EV(1)->source == 0 && !EV(1)->more
       && EV(2)->source == 1 && !EV(2)->more && EV(3)->source == 2
       && EV(3)->more && EV(4)->source == 2 && !EV(4)->more
       && EV(5)->source == 3, "of updates and stores, too");

    decode_json("[" REMOVED("128") "]");
    ok(got.n == 1 && EV(0)->why == KVR_WHY_GROUP && EV(0)->window == 4096,
       "the window holds for the next message");

    kvr_decoder_conf(decoder)->window = 64;
    decode_json("[" REMOVED("128") "]");
    ok(got.n == 3 && EV(0)->verdict == KVR_KEEP && EV(0)->window == 128,
       "and can be said for another worker");

    kvr_decoder_conf(decoder)->window = 4096;
    decode_json("[" CREATED("0", "128") "," REMOVED("128") "]");
    ok(got.n == 4 && EV(1)->verdict == KVR_KEEP && EV(1)->window == 128,
       "an engine that begins anew has its windows anew");

    decode_json("[" REMOVED("null") "]");
    ok(got.n == 3 && EV(0)->verdict == KVR_KEEP,
       "an older engine says no window, and has but one");

    kvr_decoder_conf(decoder)->window = 0;
}


static bool
refused(const char *event, kvr_why_t why)
{
    bool  good;
    char  json[4096];

    snprintf(json, sizeof(json), "[%s,%s,%s]", CREATED("0", "1"), event,
             CREATED("0", "1"));
    decode_json(json);

    good = got.opened == KVR_OK && got.ended == KVR_DONE && got.n == 3
           && EV(0)->kind == KVR_CLEAR && EV(1)->verdict == KVR_REFUSED
           && EV(1)->why == why && EV(2)->kind == KVR_CLEAR
           && EV(2)->verdict == KVR_KEEP && got.event[1].detail[0] != '\0';

    if (!good) {
        note("n %u, why %s", got.n, kvr_why_name(EV(1)->why));
    }

    return good;
}


static void
test_isolation(void)
{
    size_t  i;

    static const struct {
        const char  *json;
        kvr_why_t    why;
        const char  *name;
    } bad[] = {
        { "7", KVR_WHY_TYPE, "a number" },
        { "[[]]", KVR_WHY_TYPE, "a list" },
        { "{}", KVR_WHY_TYPE, "an empty object" },
        { "{'data':5}", KVR_WHY_SYNTAX, "data that is a number" },
        { "{'data':null}", KVR_WHY_SYNTAX, "data that is null" },
        { "{'data':{'type':'merged'}}", KVR_WHY_TYPE, "an unknown type" },
        { "{'data':{'type':7}}", KVR_WHY_SYNTAX, "a type that is a number" },
        { "{'event_id':-1,'data':{'type':'created'}}", KVR_WHY_SYNTAX,
          "an event_id below zero" },
        { "{'event_id':1.5,'data':{'type':'created'}}", KVR_WHY_SYNTAX,
          "an event_id with a point" },
        { "{'attention_dp_rank':1024,'data':{'type':'created'}}",
          KVR_WHY_RANK, "a rank out of range" },
        { "{'window_size':4294967296,'data':{'type':'created'}}",
          KVR_WHY_SYNTAX, "a window of 2^32" },
        { "{'data':{'type':'removed'}}", KVR_WHY_SYNTAX,
          "a removal without hashes" },
        { "{'data':{'type':'removed','blocks':[]}}", KVR_WHY_SYNTAX,
          "or with blocks in their place" },
        { "{'data':{'type':'stored','parent_hash':null}}", KVR_WHY_SYNTAX,
          "a store without blocks" },
        { "{'data':{'type':'removed','block_hashes':[1,null]}}",
          KVR_WHY_SYNTAX, "a hash that is null" },
        { "{'data':{'type':'removed','block_hashes':['x']}}",
          KVR_WHY_SYNTAX, "a hash that is no hash" },
        { "{'data':{'type':'removed','block_hashes':[1e3]}}",
          KVR_WHY_SYNTAX, "a hash with an exponent" },
        { "{'data':{'type':'removed','block_hashes':[18446744073709551616]}}",
          KVR_WHY_SYNTAX, "a hash of 2^64" },
        { "{'data':{'type':'removed','block_hashes':7}}", KVR_WHY_SYNTAX,
          "hashes that are no list" },
        { "{'data':{'type':'removed','block_hashes':[[1]]}}", KVR_WHY_SYNTAX,
          "a hash that is a list" },
        { "{'data':{'type':'stored','blocks':[7]}}", KVR_WHY_SYNTAX,
          "a block that is a number" },
        { "{'data':{'type':'stored','blocks':{}}}", KVR_WHY_SYNTAX,
          "blocks that are an object" },
        { "{'data':{'type':'stored','blocks':[{'tokens':[]}]}}",
          KVR_WHY_SYNTAX, "a block without a hash" },
        { "{'data':{'type':'stored','blocks':[{'block_hash':null,"
          "'tokens':[]}]}}", KVR_WHY_SYNTAX, "a block whose hash is null" },
        { "{'data':{'type':'stored','blocks':[{'block_hash':1,"
          "'tokens':[{'token_id':null}]}]}}", KVR_WHY_SYNTAX,
          "a token that is null" },
        { "{'data':{'type':'created'},'x':[[[[[[[[[{}]]]]]]]]]}",
          KVR_WHY_LIMIT, "nested too deep" }
    };

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ok(refused(bad[i].json, bad[i].why),
           "%s: refused, the events before and after are kept", bad[i].name);
    }

    decode_json("[" CREATED("0", "1") ",{'data':{,]");
    ok(got.opened == KVR_OK && got.ended == KVR_INVALID && got.n == 1
       && got.detail[0] != '\0', "what comes before a syntax error is kept");

    decode_json(CREATED("0", "1") "\n" CREATED("1", "1") "\n");
    ok(got.n == 2 && got.ended == KVR_DONE, "events may come line by line");

    decode_json("[{'later':{'a':['}']},'event_id':0,'hash_algo':'v2',"
                "'layer_group_id':3,'data':{'type':'created','x':[{}]}}]");
    ok(got.n == 1 && EV(0)->kind == KVR_CLEAR,
       "unknown fields are passed over, before what tells the dialect too");
}


static void
test_limits(void)
{
    char    *p, *text;
    size_t   n, k;

    text = malloc(32u << 20);

    for (n = KVR_EVENT_TOKENS_MAX; n <= KVR_EVENT_TOKENS_MAX + 1; n++) {
        p = text;
        p += sprintf(p, "[{\"data\":{\"type\":\"stored\",\"blocks\":["
                     "{\"block_hash\":1,\"tokens\":[");

        for (k = 0; k < n; k++) {
            p += sprintf(p, "%s1", k == 0 ? "" : ",");
        }

        p += sprintf(p, "]}]}},{\"event_id\":0,\"data\":{\"type\":"
                     "\"created\"}}]");
        decode_bytes(text, (size_t) (p - text));

        ok(got.n == 2 && EV(0)->why == KVR_WHY_LIMIT
           && EV(1)->kind == KVR_CLEAR,
           "a block of %zu tokens is too large, the next event is kept", n);
    }

    for (n = KVR_EVENT_BLOCKS_MAX; n <= KVR_EVENT_BLOCKS_MAX + 1; n++) {
        p = text;
        p += sprintf(p, "[{\"data\":{\"type\":\"stored\",\"blocks\":[");

        for (k = 0; k < n; k++) {
            p += sprintf(p, "%s{\"block_hash\":%zu,\"tokens\":[1,2]}",
                         k == 0 ? "" : ",", k);
        }

        p += sprintf(p, "]}},{\"event_id\":0,\"data\":{\"type\":"
                     "\"created\"}}]");
        decode_bytes(text, (size_t) (p - text));

        ok(got.n == 2 && EV(1)->kind == KVR_CLEAR
           && EV(0)->why == (n == KVR_EVENT_BLOCKS_MAX ? KVR_WHY_NONE
                                                       : KVR_WHY_LIMIT),
           "an event of %zu blocks is %s", n,
           n == KVR_EVENT_BLOCKS_MAX ? "kept" : "refused");
    }

    free(text);
}


int
main(void)
{
    decoder = kvr_decoder_create();

    test_stored();
    test_sizes();
    test_keys();
    test_changes();
    test_windows();
    test_isolation();
    test_limits();

    kvr_decoder_destroy(decoder);

    return done();
}
