
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "mcp_hash.h"
#include "ngx_mcp_zone.h"


/* Moves on with every change of a record's layout. */
#define NGX_MCP_ZONE_LAYOUT   4

#define NGX_MCP_TEXT_DATA     (NGX_MCP_SLOT_SIZE - sizeof(ngx_mcp_slot_t)     \
                               - sizeof(uint32_t))


typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    len;        /* from here to the end */
    u_char                      data[NGX_MCP_TEXT_DATA];
} ngx_mcp_text_t;


static void ngx_mcp_zone_lock_master(ngx_shmtx_t *mutex);
static ngx_int_t ngx_mcp_zone_init(ngx_shm_zone_t *shm_zone, void *data);
static ngx_int_t ngx_mcp_zone_start(ngx_mcp_zone_t *zone);
static void ngx_mcp_zone_notice_size(ngx_shm_zone_t *shm_zone);
static void ngx_mcp_zone_insert(ngx_rbtree_node_t *temp,
    ngx_rbtree_node_t *node, ngx_rbtree_node_t *sentinel);


typedef char  ngx_mcp_text_fits[
                  sizeof(ngx_mcp_text_t) == NGX_MCP_SLOT_SIZE ? 1 : -1];


ngx_mcp_zone_t *
ngx_mcp_zone_add(ngx_conf_t *cf, ngx_str_t *name, size_t size, void *tag,
    ngx_mcp_zone_rebuild_pt rebuild)
{
    ngx_mcp_zone_t  *zone;
    ngx_shm_zone_t  *shm_zone;

    shm_zone = ngx_shared_memory_add(cf, name, size, tag);
    if (shm_zone == NULL) {
        return NULL;
    }

    if (shm_zone->data != NULL) {
        return shm_zone->data;
    }

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_mcp_zone_t));
    if (zone == NULL) {
        return NULL;
    }

    if (ngx_array_init(&zone->policies, cf->pool, 4, sizeof(void *))
        != NGX_OK)
    {
        return NULL;
    }

    zone->shm_zone = shm_zone;
    zone->rebuild = rebuild;

    shm_zone->init = ngx_mcp_zone_init;
    shm_zone->data = zone;

    return zone;
}


/*
 * The master, in a reload, is not told of a worker that dies, and it is the one
 * who frees the locks of the dead: it would wait for itself.
 */

static void
ngx_mcp_zone_lock_master(ngx_shmtx_t *mutex)
{
    pid_t      pid;
    siginfo_t  info;

    while (!ngx_shmtx_trylock(mutex)) {

        pid = (pid_t) *mutex->lock;
        info.si_pid = 0;

        if (pid && waitid(P_PID, pid, &info, WEXITED|WNOHANG|WNOWAIT) == 0
            && info.si_pid == pid)
        {
            ngx_shmtx_force_unlock(mutex, pid);
            continue;
        }

        ngx_msleep(1);
    }
}


void
ngx_mcp_zone_lock(ngx_mcp_zone_t *zone)
{
    if (ngx_process == NGX_PROCESS_MASTER) {
        ngx_mcp_zone_lock_master(&zone->shpool->mutex);

    } else {
        ngx_shmtx_lock(&zone->shpool->mutex);
    }

    if (zone->sh->busy) {
        zone->dropped = zone->rebuild(zone);
        zone->torn = 1;
    }

    zone->sh->busy = 1;

    ngx_memory_barrier();
}


void
ngx_mcp_zone_unlock(ngx_mcp_zone_t *zone)
{
    ngx_uint_t  torn, sessions;

    torn = zone->torn;
    zone->torn = 0;
    sessions = zone->sh->nsessions;

    ngx_memory_barrier();

    zone->sh->busy = 0;

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (torn) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "mcp zone \"%V\" rebuilt after a worker died in it: "
                      "%ui sessions kept, %ui records dropped",
                      &zone->shm_zone->shm.name, sessions, zone->dropped);
    }
}


void *
ngx_mcp_zone_alloc(ngx_mcp_zone_t *zone, uint32_t kind)
{
    ngx_mcp_slot_t     *slot;
    ngx_mcp_zone_sh_t  *sh;

    sh = zone->sh;

    if (sh->free) {
        slot = ngx_mcp_zone_slot(zone, sh->free, NGX_MCP_SLOT_FREE);
        if (slot == NULL) {
            return NULL;
        }

        sh->free = slot->next;

    } else if (sh->top < sh->nslots) {
        slot = (ngx_mcp_slot_t *) (sh->slots
                                   + (size_t) sh->top * NGX_MCP_SLOT_SIZE);
        sh->top++;

    } else {
        return NULL;
    }

    ngx_mcp_zone_crash();

    ngx_memzero(slot, NGX_MCP_SLOT_SIZE);

    slot->kind = kind;
    sh->nused++;

    return slot;
}


void
ngx_mcp_zone_free(ngx_mcp_zone_t *zone, void *data)
{
    uint32_t            next;
    ngx_mcp_slot_t     *slot;
    ngx_mcp_zone_sh_t  *sh;

    sh = zone->sh;
    slot = data;
    next = slot->next;

    /* a text may have held a credential */
    ngx_explicit_memzero(slot, NGX_MCP_SLOT_SIZE);

    ngx_mcp_zone_crash();

    slot->kind = NGX_MCP_SLOT_FREE;
    slot->next = sh->free;

    sh->free = ngx_mcp_zone_index(zone, slot);
    sh->nused--;

    ngx_mcp_zone_crash();

    ngx_mcp_zone_text_free(zone, next);
}


void *
ngx_mcp_zone_slot(ngx_mcp_zone_t *zone, uint32_t index, uint32_t kind)
{
    ngx_mcp_slot_t  *slot;

    if (index == 0 || index > zone->sh->top) {
        return NULL;
    }

    slot = (ngx_mcp_slot_t *) (zone->sh->slots
                               + (size_t) (index - 1) * NGX_MCP_SLOT_SIZE);

    return (slot->kind == kind) ? slot : NULL;
}


uint32_t
ngx_mcp_zone_index(ngx_mcp_zone_t *zone, void *slot)
{
    return ((u_char *) slot - zone->sh->slots) / NGX_MCP_SLOT_SIZE + 1;
}


uint32_t
ngx_mcp_zone_text_store(ngx_mcp_zone_t *zone, u_char *data, size_t len)
{
    size_t           n;
    uint32_t         first, *link;
    ngx_mcp_text_t  *text;

    first = 0;
    link = &first;

    while (len) {
        text = ngx_mcp_zone_alloc(zone, NGX_MCP_SLOT_TEXT);
        if (text == NULL) {
            ngx_mcp_zone_text_free(zone, first);
            return 0;
        }

        n = ngx_min(len, NGX_MCP_TEXT_DATA);

        ngx_memcpy(text->data, data, n);
        text->len = len;

        ngx_mcp_zone_crash();

        *link = ngx_mcp_zone_index(zone, text);
        link = &text->slot.next;

        data += n;
        len -= n;
    }

    return first;
}


size_t
ngx_mcp_zone_text_copy(ngx_mcp_zone_t *zone, uint32_t index, u_char *buf,
    size_t size)
{
    size_t           n, len;
    ngx_mcp_text_t  *text;

    len = 0;

    while (index && len < size) {
        text = ngx_mcp_zone_slot(zone, index, NGX_MCP_SLOT_TEXT);
        if (text == NULL) {
            break;
        }

        n = ngx_min(text->len, NGX_MCP_TEXT_DATA);
        n = ngx_min(n, size - len);

        ngx_memcpy(buf + len, text->data, n);

        len += n;
        index = text->slot.next;
    }

    return len;
}


ngx_uint_t
ngx_mcp_zone_text_equal(ngx_mcp_zone_t *zone, uint32_t index, u_char *data,
    size_t len)
{
    size_t           n;
    ngx_mcp_text_t  *text;

    while (index) {
        text = ngx_mcp_zone_slot(zone, index, NGX_MCP_SLOT_TEXT);

        if (text == NULL || text->len != len) {
            return 0;
        }

        n = ngx_min(len, NGX_MCP_TEXT_DATA);

        if (ngx_memcmp(text->data, data, n) != 0) {
            return 0;
        }

        data += n;
        len -= n;
        index = text->slot.next;
    }

    return len == 0;
}


void
ngx_mcp_zone_text_free(ngx_mcp_zone_t *zone, uint32_t index)
{
    ngx_mcp_text_t  *text;

    while (index) {
        text = ngx_mcp_zone_slot(zone, index, NGX_MCP_SLOT_TEXT);
        if (text == NULL) {
            return;
        }

        index = text->slot.next;
        text->slot.next = 0;

        ngx_mcp_zone_free(zone, text);
    }
}


ngx_uint_t
ngx_mcp_zone_text_mark(ngx_mcp_zone_t *zone, uint32_t index)
{
    size_t           len;
    uint32_t         i;
    ngx_mcp_text_t  *text;

    len = 0;

    for (i = index; i; i = text->slot.next) {
        text = ngx_mcp_zone_slot(zone, i, NGX_MCP_SLOT_TEXT);

        if (text == NULL
            || (i != index && text->len != len)
            || (text->len > NGX_MCP_TEXT_DATA) != (text->slot.next != 0))
        {
            break;
        }

        len = text->len - ngx_min(text->len, NGX_MCP_TEXT_DATA);
        text->slot.kind = NGX_MCP_SLOT_MARKED;
    }

    if (i == 0) {
        return 1;
    }

    /* torn: its slots are nobody's */

    while (index != i) {
        text = ngx_mcp_zone_slot(zone, index, NGX_MCP_SLOT_MARKED);
        if (text == NULL) {
            break;
        }

        text->slot.kind = NGX_MCP_SLOT_TEXT;
        index = text->slot.next;
    }

    return 0;
}


void
ngx_mcp_zone_restart(ngx_mcp_zone_t *zone)
{
    ngx_mcp_zone_sh_t  *sh;

    sh = zone->sh;

    ngx_rbtree_init(&sh->sessions, &sh->sentinel, ngx_mcp_zone_insert);
    ngx_rbtree_init(&sh->wake, &sh->sentinel, ngx_mcp_zone_insert);
    ngx_rbtree_init(&sh->endpoints, &sh->sentinel, ngx_mcp_zone_insert);

    ngx_queue_init(&sh->upstreams);
    ngx_queue_init(&sh->fresh);
    ngx_queue_init(&sh->lost);

    sh->nsessions = 0;
    sh->nused = 0;
    sh->free = 0;
}


void
ngx_mcp_zone_sweep(ngx_mcp_zone_t *zone)
{
    uint32_t            i;
    ngx_mcp_slot_t     *slot;
    ngx_mcp_zone_sh_t  *sh;

    sh = zone->sh;

    for (i = 1; i <= sh->top; i++) {
        slot = (ngx_mcp_slot_t *) (sh->slots
                                   + (size_t) (i - 1) * NGX_MCP_SLOT_SIZE);

        switch (slot->kind) {

        case NGX_MCP_SLOT_MARKED:
            slot->kind = NGX_MCP_SLOT_TEXT;
            sh->nused++;
            break;

        case NGX_MCP_SLOT_UPSTREAM:
        case NGX_MCP_SLOT_PEER:
        case NGX_MCP_SLOT_STATS:
        case NGX_MCP_SLOT_SESSION:
        case NGX_MCP_SLOT_ENDPOINT:
        case NGX_MCP_SLOT_REVIVAL:
        case NGX_MCP_SLOT_TALLY:
        case NGX_MCP_SLOT_MODERN:
            sh->nused++;
            break;

        default:
            ngx_explicit_memzero(slot, NGX_MCP_SLOT_SIZE);

            slot->kind = NGX_MCP_SLOT_FREE;
            slot->next = sh->free;
            sh->free = i;
        }
    }
}


uint64_t
ngx_mcp_zone_hash(ngx_mcp_zone_t *zone, uint32_t space, u_char *data,
    size_t len)
{
    return mcp_hash(zone->sh->secret, space, data, len);
}


void
ngx_mcp_zone_digest(ngx_mcp_zone_t *zone, u_char *data, size_t len,
    u_char *digest, size_t size)
{
    u_char        md[EVP_MAX_MD_SIZE];
    unsigned int  n;

    /* the secret never changes while the zone lives */

    if (HMAC(EVP_sha256(), zone->sh->secret, NGX_MCP_SECRET_LEN, data, len,
             md, &n)
        == NULL)
    {
        /* of no memory: nobody's digest, so nobody is taken for the owner */
        (void) RAND_bytes(md, SHA256_DIGEST_LENGTH);
    }

    ngx_memcpy(digest, md, size);
}


#if (NGX_MCP_CRASH)

void
ngx_mcp_zone_crash(void)
{
    static ngx_uint_t  left;

    if (ngx_process != NGX_PROCESS_WORKER) {
        return;
    }

    if (left == 0) {
        left = 2 + ngx_random() % 1000;
    }

    if (--left == 1) {
        (void) raise(SIGKILL);
    }
}

#endif


static ngx_int_t
ngx_mcp_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_mcp_zone_t  *zone, *ozone;

    ozone = data;
    zone = shm_zone->data;

    zone->shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (ozone == NULL && !shm_zone->shm.exists) {
        ngx_mcp_zone_notice_size(shm_zone);
        return ngx_mcp_zone_start(zone);
    }

    zone->sh = (ozone != NULL) ? ozone->sh : zone->shpool->data;

    if (zone->sh->layout != NGX_MCP_ZONE_LAYOUT) {
        ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                      "mcp zone \"%V\" has another layout, "
                      "its sessions start empty", &shm_zone->shm.name);

        ngx_slab_init(zone->shpool);
        return ngx_mcp_zone_start(zone);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_zone_start(ngx_mcp_zone_t *zone)
{
    size_t              size;
    ngx_shm_zone_t     *shm_zone;
    ngx_slab_pool_t    *shpool;
    ngx_mcp_zone_sh_t  *sh;

    shpool = zone->shpool;
    shm_zone = zone->shm_zone;

    sh = ngx_slab_calloc(shpool, sizeof(ngx_mcp_zone_sh_t));
    if (sh == NULL) {
        return NGX_ERROR;
    }

    /* all that is left, in one piece: the slab is not called again */

    size = shpool->pfree * ngx_pagesize;

    sh->slots = ngx_slab_alloc(shpool, size);
    if (sh->slots == NULL) {
        return NGX_ERROR;
    }

    sh->nslots = size / NGX_MCP_SLOT_SIZE;

    if (RAND_bytes(sh->secret, NGX_MCP_SECRET_LEN) != 1) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "RAND_bytes() failed for mcp zone \"%V\"",
                      &shm_zone->shm.name);
        return NGX_ERROR;
    }

    zone->sh = sh;
    ngx_mcp_zone_restart(zone);

    sh->layout = NGX_MCP_ZONE_LAYOUT;
    shpool->data = sh;

    ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                  "mcp zone \"%V\" has room for %uD sessions",
                  &shm_zone->shm.name, sh->nslots);

    return NGX_OK;
}


/*
 * ngx_cycle is still the one before: a zone of this name there was not reused
 */

static void
ngx_mcp_zone_notice_size(ngx_shm_zone_t *shm_zone)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_shm_zone_t   *old;

    if (ngx_cycle == NULL) {
        return;
    }

    part = (ngx_list_part_t *) &ngx_cycle->shared_memory.part;
    old = part->elts;

    for (i = 0; /* void */ ; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                return;
            }

            part = part->next;
            old = part->elts;
            i = 0;
        }

        if (old != NULL && old[i].tag == shm_zone->tag
            && &old[i] != shm_zone
            && old[i].shm.name.len == shm_zone->shm.name.len
            && ngx_strncmp(old[i].shm.name.data, shm_zone->shm.name.data,
                           shm_zone->shm.name.len)
               == 0)
        {
            ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                          "mcp zone \"%V\" has another size, "
                          "its sessions start empty", &shm_zone->shm.name);
            return;
        }
    }
}


static void
ngx_mcp_zone_insert(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel)
{
    ngx_rbtree_node_t  **p;

    /* equal keys go right: among equal times the older one comes first */

    for ( ;; ) {
        p = (node->key < temp->key) ? &temp->left : &temp->right;

        if (*p == sentinel) {
            break;
        }

        temp = *p;
    }

    *p = node;

    ngx_mcp_zone_crash();

    node->parent = temp;
    node->left = sentinel;
    node->right = sentinel;

    ngx_rbt_red(node);
}
