/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Model directories: which are taken, which are refused, and which model is
 * taken over.
 */


#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"

#include "model/kvr_model.h"
#include "model/kvr_model_file.h"


#define VECTORS  "t/vectors/model"


static char    dir[] = "/tmp/kvr-model-XXXXXX";
static char    why[KVR_MODEL_WHY];
static char   *tokenizer;
static size_t  tokenizer_len;


static const char *
path(const char *name)
{
    static char  out[4096];

    (void) snprintf(out, sizeof(out), "%s/%s", dir, name);

    return out;
}


static void
put(const char *name, const void *data, size_t len)
{
    FILE  *file;

    file = fopen(path(name), "wb");
    (void) fwrite(data, 1, len, file);
    (void) fclose(file);
    (void) chmod(path(name), 0644);
}


static void
put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}


static void
gone(const char *name)
{
    (void) unlink(path(name));
}


static char *
slurp(const char *name, size_t *len)
{
    char  *data;
    FILE  *file;

    file = fopen(name, "rb");
    (void) fseek(file, 0, SEEK_END);
    *len = ftell(file);
    rewind(file);
    data = malloc(*len + 1);
    data[fread(data, 1, *len, file)] = '\0';
    (void) fclose(file);

    return data;
}


static kvr_model_t *
load(const char *engine)
{
    kvr_model_t  *m;

    why[0] = '\0';

    return kvr_model_load(&m, dir, engine, NULL, 0, why) == KVR_OK
           ? m : NULL;
}


static void
refuses(const char *part, const char *name)
{
    kvr_model_t  *m;

    m = load("vllm");

    if (!ok(m == NULL && strstr(why, part), "%s", name)) {
        printf("# %s\n", m ? "it is taken" : why);
    }

    kvr_model_put(m);
}


static const char *
router(const char *members)
{
    char         sha256[KVR_MODEL_SHA256];
    static char  out[8192];

    (void) kvr_model_sha256(tokenizer, tokenizer_len, sha256);
    (void) snprintf(out, sizeof(out), "{\"format\": 1, \"engine\": \"vllm\", "
                    "\"files\": {\"tokenizer.json\": {\"sha256\": \"%s\"}}%s}",
                    sha256, members);
    return out;
}


static void
directories(void)
{
    kvr_model_t  *m;

    ok(kvr_model_load(&m, "/nowhere", NULL, NULL, 0, why)
       == KVR_INVALID && strstr(why, "No such"), "a directory must be there");

    refuses("neither \"router.json\" nor", "an empty directory is no model");

    put("tokenizer.json", tokenizer, tokenizer_len);

    m = load(NULL);
    ok(m == NULL && strstr(why, "say \"engine=\""),
       "a directory of Hugging Face needs the engine's name");

    m = load("sglang");
    ok(m && kvr_model_tokenizer(m)
       && strcmp(kvr_model_engine(m), "sglang") == 0
       && kvr_model_strings(m) == 0,
       "with the name it is taken, and nothing is compared");
    kvr_model_put(m);

    put_text("config.json", "{\"model_type\": \"gpt_oss\"}");
    m = load("vllm");
    ok(m && kvr_model_tokenizer(m) == NULL
       && strstr(kvr_model_refused(m), "harmony"),
       "a model that engines encode by Python code is refused");
    kvr_model_put(m);

    put_text("config.json", "{\"model_type\": ");
    refuses("\"config.json\" is no JSON", "half a config.json is told");
    gone("config.json");

    put_text("tekken.json", "{}");
    m = load("vllm");
    ok(m && strstr(kvr_model_refused(m), "mistral_common"),
       "a directory with a tekken.json is refused");
    kvr_model_put(m);
    gone("tekken.json");
}


static void
routers(void)
{
    kvr_model_t  *m;

    put_text("router.json", router(""));
    m = load(NULL);
    ok(m && kvr_model_tokenizer(m)
       && strcmp(kvr_model_engine(m), "vllm") == 0,
       "router.json says the engine");
    kvr_model_put(m);

    m = load("sglang");
    ok(m == NULL && strstr(why, "was made for \"vllm\""),
       "another engine than router.json's is told");

    put_text("router.json", "{\"format\": 2}");
    refuses("another format", "another format is told");

    put_text("router.json", "{\"format\": 1, \"engine\": \"vllm\"}");
    refuses("names no \"tokenizer.json\"", "a tokenizer must be named");

    put_text("router.json", "{\"format\": 1, \"engine\": \"vllm\", \"files\": "
             "{\"tokenizer.json\": {\"sha256\": \"00\"}}}");
    refuses("has the SHA-256", "another SHA-256 is told");

    put_text("router.json", "{\"format\": 1, \"engine\": \"vllm\", \"files\": "
             "{\"../x\": {\"sha256\": \"00\"}, \"tokenizer.json\": {}}}");
    refuses("can't be taken", "no file outside of the directory is read");

    put_text("router.json", "[]");
    refuses("is no JSON object", "router.json must be an object");

    put_text("router.json", router(", \"strings\": [[\"a\", [4294967295]]]"));
    m = load(NULL);
    ok(m && kvr_model_tokenizer(m) == NULL
       && strstr(kvr_model_refused(m), "text 1 of \"strings\""),
       "a string with other ids refuses the model");
    kvr_model_put(m);

    put_text("router.json", router(", \"strings\": [[\"a\"]]"));
    m = load(NULL);
    ok(m && strstr(kvr_model_refused(m), "is no text with token ids"),
       "a string without ids refuses the model");
    kvr_model_put(m);
}


/* A router.json that ends anywhere is told, and harms nothing. */

static void
torn(void)
{
    char         *text;
    size_t        i, len, taken;
    kvr_model_t  *m;

    text = strdup(router(", \"model_type\": \"x\", \"unicode\": {\"tokenizers\""
                         ": 16}, \"strings\": [[\"\", []]], \"conversations\":"
                         " [{\"a\": 1},\n {\"b\": [2]}]"));
    len = strlen(text);
    taken = 0;

    for (i = 0; i < len; i++) {
        put("router.json", text, i);
        m = load(NULL);

        if (m) {
            taken++;
            kvr_model_put(m);
        }
    }

    is_u64(taken, 0, "no part of a router.json is taken");

    put("router.json", text, len);
    m = load(NULL);
    text[0] = '\0';

    if (ok(m != NULL, "the whole of it is")) {
        is_u64(kvr_model_strings(m), 1, "its string was compared");
        ok(strcmp(kvr_model_text(m, "conversations", &len),
                  "{\"a\": 1}\n{\"b\": [2]}\n") == 0,
           "its conversations are lines");
        ok(strstr(kvr_model_text(m, "router.json", &len), "\"x\"")
           && !strstr(kvr_model_text(m, "router.json", &len), "strings"),
           "its other members are kept, without the strings");
        ok(kvr_model_text(m, "tokenizer.json", &len) == NULL,
           "the file of the tokenizer is not kept");
    }

    kvr_model_put(m);
    free(text);
}


static void
files(void)
{
    kvr_model_t  *m;

    put_text("router.json", router(""));

    (void) chmod(path("router.json"), 0646);
    refuses("say chmod o-w", "a file that everybody can write is told");
    (void) chmod(path("router.json"), 0644);

    (void) chmod(dir, 0707);
    refuses("can be written by everybody", "the same of the directory");
    (void) chmod(dir, 0700);

    gone("router.json");
    (void) mkfifo(path("router.json"), 0644);
    refuses("no regular file", "a FIFO is told, and nobody waits for it");
    gone("router.json");

    (void) mkdir(path("router.json"), 0755);
    refuses("no regular file", "the same of a folder");
    (void) rmdir(path("router.json"));

    (void) truncate(path("tokenizer.json"), KVR_MODEL_TOKENIZER_MAX + 1);
    m = load("vllm");
    ok(m == NULL && strstr(why, "it must have 67108864 at most"),
       "a file that is too large is told");

    put("tokenizer.json", tokenizer, tokenizer_len);
}


static void
taken_over(void)
{
    kvr_model_t  *first, *second, *third;

    put_text("router.json", router(""));
    first = load(NULL);
    second = NULL;

    (void) kvr_model_load(&second, dir, NULL, &first, 1, why);
    ok(second == first && kvr_model_users(first) == 2,
       "files that were read again, and are the same, are the same model");

    put_text("router.json", router(", \"more\": 1"));
    third = NULL;
    (void) kvr_model_load(&third, dir, NULL, &first, 1, why);
    ok(third && third != first
       && strcmp(kvr_model_digest(third), kvr_model_digest(first)) != 0,
       "another router.json is another model");

    ok(!kvr_model_proven(first), "no conversation was compared");
    kvr_model_prove(first);
    ok(kvr_model_proven(second) && !kvr_model_proven(third),
       "a model whose conversations were compared stays so");

    kvr_model_put(second);
    is_u64(kvr_model_users(first), 1, "a model has users until the last one");
    kvr_model_put(first);
    kvr_model_put(third);
}


int
main(void)
{
    static const char *const  names[] = {
        "router.json", "tokenizer.json", "config.json", "tekken.json"
    };

    unsigned  i;

    tokenizer = slurp(VECTORS "/tokenizer.json", &tokenizer_len);

    if (mkdtemp(dir) == NULL) {
        printf("Bail out!  no folder: %s\n", strerror(errno));
        return 1;
    }

    directories();
    routers();
    torn();
    files();
    taken_over();

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        gone(names[i]);
    }

    (void) rmdir(dir);
    free(tokenizer);

    return done();
}
