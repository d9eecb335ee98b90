/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>


#define KVR_MODEL_NS  1000000000


static kvr_rc_t kvr_model_file_take(kvr_model_file_t *file, int fd,
    size_t bound, char *why);
static kvr_rc_t kvr_model_file_look(kvr_model_stamp_t *stamp, int fd,
    size_t bound, char *why);
static void kvr_model_stamp(kvr_model_stamp_t *stamp, const struct stat *st);
static bool kvr_model_stamp_equal(const kvr_model_stamp_t *a,
    const kvr_model_stamp_t *b);


kvr_rc_t
kvr_model_file_read(kvr_model_file_t *file, const char *dir, const char *name,
    size_t bound, char *why)
{
    int       fd;
    char      path[PATH_MAX];
    kvr_rc_t  rc;

    memset(file, 0, sizeof(kvr_model_file_t));
    (void) snprintf(file->stamp.name, sizeof(file->stamp.name), "%s", name);

    if (snprintf(path, sizeof(path), "%s/%s", dir, name)
        >= (int) sizeof(path))
    {
        return kvr_model_why(why, "the path of \"%s\" is too long, it must "
                             "have less than %d bytes", name, PATH_MAX);
    }

    /* a FIFO would wait for a writer */

    fd = open(path, O_RDONLY|O_CLOEXEC|O_NONBLOCK);

    if (fd == -1) {

        if (errno == ENOENT) {
            return KVR_DECLINED;
        }

        return kvr_model_why(why, "\"%s\" can't be opened: %s; nginx must be "
                             "able to read it", name, strerror(errno));
    }

    rc = kvr_model_file_take(file, fd, bound, why);

    (void) close(fd);

    if (rc != KVR_OK) {
        kvr_model_file_free(file);
    }

    return rc;
}


static kvr_rc_t
kvr_model_file_take(kvr_model_file_t *file, int fd, size_t bound, char *why)
{
    size_t             n;
    ssize_t            got;
    kvr_model_stamp_t  after;

    if (kvr_model_file_look(&file->stamp, fd, bound, why) != KVR_OK) {
        return KVR_INVALID;
    }

    n = file->stamp.size;
    file->data = malloc(n + 1);

    if (file->data == NULL) {
        return kvr_model_why(why, "\"%s\" has %zu bytes, and there is no "
                             "memory for them", file->stamp.name, n);
    }

    while (file->len < n) {
        got = read(fd, file->data + file->len, n - file->len);

        if (got == -1 && errno == EINTR) {
            continue;
        }

        if (got <= 0) {
            return kvr_model_why(why, "\"%s\" can't be read: %s",
                                 file->stamp.name,
                                 got ? strerror(errno) : "it became shorter");
        }

        file->len += got;
    }

    file->data[n] = '\0';
    after = file->stamp;

    if (kvr_model_file_look(&after, fd, bound, why) != KVR_OK) {
        return KVR_INVALID;
    }

    if (!kvr_model_stamp_equal(&after, &file->stamp)) {
        return kvr_model_why(why, "\"%s\" was changed while it was read; "
                             "start again when kv-model-dump has ended",
                             file->stamp.name);
    }

    if (kvr_model_sha256(file->data, file->len, file->sha256) != KVR_OK) {
        return kvr_model_why(why, "the SHA-256 of \"%s\" can't be computed",
                             file->stamp.name);
    }

    return KVR_OK;
}


static kvr_rc_t
kvr_model_file_look(kvr_model_stamp_t *stamp, int fd, size_t bound, char *why)
{
    struct stat  st;

    if (fstat(fd, &st) == -1) {
        return kvr_model_why(why, "\"%s\" can't be looked at: %s", stamp->name,
                             strerror(errno));
    }

    if (!S_ISREG(st.st_mode)) {
        return kvr_model_why(why, "\"%s\" is no regular file", stamp->name);
    }

    if (st.st_mode & S_IWOTH) {
        return kvr_model_why(why, "\"%s\" can be written by everybody (mode "
                             "%04o); say chmod o-w", stamp->name,
                             (unsigned) st.st_mode & 07777);
    }

    if ((uint64_t) st.st_size > bound) {
        return kvr_model_why(why, "\"%s\" has %llu bytes, it must have %zu at "
                             "most", stamp->name,
                             (unsigned long long) st.st_size, bound);
    }

    kvr_model_stamp(stamp, &st);

    return KVR_OK;
}


static void
kvr_model_stamp(kvr_model_stamp_t *stamp, const struct stat *st)
{
    int64_t          now;
    struct timespec  ts;

    stamp->there = true;
    stamp->device = st->st_dev;
    stamp->inode = st->st_ino;
    stamp->size = st->st_size;
    stamp->modified = (int64_t) st->st_mtim.tv_sec * KVR_MODEL_NS
                      + st->st_mtim.tv_nsec;
    stamp->changed = (int64_t) st->st_ctim.tv_sec * KVR_MODEL_NS
                     + st->st_ctim.tv_nsec;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    now = (int64_t) ts.tv_sec * KVR_MODEL_NS + ts.tv_nsec;

    stamp->settled = now - stamp->changed
                     > (int64_t) KVR_MODEL_SETTLED * KVR_MODEL_NS;
}


static bool
kvr_model_stamp_equal(const kvr_model_stamp_t *a, const kvr_model_stamp_t *b)
{
    return a->there == b->there && a->device == b->device
           && a->inode == b->inode && a->size == b->size
           && a->modified == b->modified && a->changed == b->changed;
}


bool
kvr_model_file_same(const kvr_model_stamp_t *stamp, const char *dir)
{
    char               path[PATH_MAX];
    struct stat        st;
    kvr_model_stamp_t  now;

    if (snprintf(path, sizeof(path), "%s/%s", dir, stamp->name)
        >= (int) sizeof(path))
    {
        return false;
    }

    if (stat(path, &st) == -1) {
        return errno == ENOENT && !stamp->there;
    }

    if (!stamp->there || !stamp->settled || st.st_mode & S_IWOTH) {
        return false;
    }

    kvr_model_stamp(&now, &st);

    return kvr_model_stamp_equal(stamp, &now);
}


void
kvr_model_file_free(kvr_model_file_t *file)
{
    free(file->data);

    file->data = NULL;
    file->len = 0;
}


kvr_rc_t
kvr_model_dir(const char *dir, char *why)
{
    struct stat  st;

    if (stat(dir, &st) == -1) {
        return kvr_model_why(why, "the directory can't be looked at: %s; "
                             "kv-model-dump makes it", strerror(errno));
    }

    if (!S_ISDIR(st.st_mode)) {
        return kvr_model_why(why, "it is no directory");
    }

    if (st.st_mode & S_IWOTH) {
        return kvr_model_why(why, "the directory can be written by everybody "
                             "(mode %04o); say chmod o-w",
                             (unsigned) st.st_mode & 07777);
    }

    return KVR_OK;
}


kvr_rc_t
kvr_model_why(char *why, const char *format, ...)
{
    va_list  args;

    va_start(args, format);
    (void) vsnprintf(why, KVR_MODEL_WHY, format, args);
    va_end(args);

    return KVR_INVALID;
}


kvr_rc_t
kvr_model_sha256(const void *data, size_t len, char out[KVR_MODEL_SHA256])
{
    unsigned int   i, n;
    unsigned char  digest[EVP_MAX_MD_SIZE];

    if (EVP_Digest(data, len, digest, &n, EVP_sha256(), NULL) != 1) {
        return KVR_ERROR;
    }

    for (i = 0; i < n; i++) {
        (void) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }

    return KVR_OK;
}
