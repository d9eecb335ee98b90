/*
 * What a module of nginx takes from a pool, for AddressSanitizer: memory of its
 * own, with a fence behind it.  The pieces of a pool's blocks have none.
 *
 * The module is built with -Dngx_palloc=fenced_palloc and so on; nginx is
 * started with this preloaded.  What is larger than a block's room comes from
 * malloc(), and is freed with the pool.
 */

#include <string.h>

#include <sanitizer/asan_interface.h>


#define FENCE  16384                    /* more than any block has room for */


typedef struct ngx_pool_s  ngx_pool_t;

void *ngx_palloc(ngx_pool_t *pool, size_t size);        /* nginx's own */

void *fenced_palloc(ngx_pool_t *pool, size_t size);
void *fenced_pnalloc(ngx_pool_t *pool, size_t size);
void *fenced_pcalloc(ngx_pool_t *pool, size_t size);


void *
fenced_palloc(ngx_pool_t *pool, size_t size)
{
    char  *p;

    p = ngx_palloc(pool, size + FENCE);

    if (p) {
        __asan_poison_memory_region(p + size, FENCE);
    }

    return p;
}


void *
fenced_pnalloc(ngx_pool_t *pool, size_t size)
{
    return fenced_palloc(pool, size);
}


void *
fenced_pcalloc(ngx_pool_t *pool, size_t size)
{
    void  *p;

    p = fenced_palloc(pool, size);

    if (p) {
        memset(p, 0, size);
    }

    return p;
}
