
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What makes replies of the bytes of a connection: hiredis's reader, with a
 * bound of what an array may be.
 */


#include "ngx_http_kv_router_redis.h"


/* bytes of a reader's buffer that hiredis keeps while the buffer is empty */
#define NGX_HTTP_KV_ROUTER_READER_KEEP     (256 * 1024)
/*
 * the maximum number of elements of an array: a page has 128 entries, and
 * hiredis would accept any number
 */
#define NGX_HTTP_KV_ROUTER_ELEMENTS        4096


#if (HIREDIS_MAJOR == 0)
typedef int     ngx_http_kv_router_elements_t;
#else
typedef size_t  ngx_http_kv_router_elements_t;
#endif


static void *ngx_http_kv_router_redis_array(const redisReadTask *task,
    ngx_http_kv_router_elements_t elements);


/*
 * the functions of hiredis that make replies; only the function for arrays is
 * replaced, because hiredis does not bound arrays
 */

static redisReplyObjectFunctions    ngx_http_kv_router_redis_objects;

static void *(*ngx_http_kv_router_redis_make_array)(const redisReadTask *task,
    ngx_http_kv_router_elements_t elements);


static void *
ngx_http_kv_router_redis_array(const redisReadTask *task,
    ngx_http_kv_router_elements_t elements)
{
    if (elements > NGX_HTTP_KV_ROUTER_ELEMENTS) {
        return NULL;
    }

    return ngx_http_kv_router_redis_make_array(task, elements);
}


redisReader *
ngx_http_kv_router_redis_reader(void)
{
    redisReader  *reader;

    reader = redisReaderCreate();
    if (reader == NULL) {
        return NULL;
    }

    reader->maxbuf = NGX_HTTP_KV_ROUTER_READER_KEEP;

    if (ngx_http_kv_router_redis_objects.createArray == NULL) {
        ngx_http_kv_router_redis_make_array = reader->fn->createArray;
        ngx_http_kv_router_redis_objects = *reader->fn;
        ngx_http_kv_router_redis_objects.createArray =
                                               ngx_http_kv_router_redis_array;
    }

    reader->fn = &ngx_http_kv_router_redis_objects;

    return reader;
}
