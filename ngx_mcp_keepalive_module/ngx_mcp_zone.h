
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The shared memory zone: the only file with slab and mutex calls.
 *
 * A zone is one array of equal slots, carved once from the slab.  Whatever the
 * module shares lives in slots and names other slots by index (0: none), so a
 * slot can never be lost between two lists of the allocator: after a worker
 * died inside the lock everything is found again by walking the array.
 */


#ifndef _NGX_MCP_ZONE_H_INCLUDED_
#define _NGX_MCP_ZONE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "mcp/mcp_health.h"


#if (NGX_PTR_SIZE != 8)
#error "a time in milliseconds is kept in a word: 64 bits are needed"
#endif


#define NGX_MCP_ZONE_MIN      65536
#define NGX_MCP_SLOT_SIZE     240
#define NGX_MCP_SECRET_LEN    32

/* The most nodes looked at in one hold of the lock. */
#define NGX_MCP_LOCK_NODES    64


/* What a slot holds; odd values, so that garbage is not taken for a record. */

#define NGX_MCP_SLOT_FREE      0x6d637030
#define NGX_MCP_SLOT_UPSTREAM  0x6d637031
#define NGX_MCP_SLOT_PEER      0x6d637032
#define NGX_MCP_SLOT_STATS     0x6d637033
#define NGX_MCP_SLOT_SESSION   0x6d637034
#define NGX_MCP_SLOT_ENDPOINT  0x6d637035
#define NGX_MCP_SLOT_TEXT      0x6d637036
#define NGX_MCP_SLOT_REVIVAL   0x6d63703a
#define NGX_MCP_SLOT_MARKED    0x6d637037   /* a text met by the rebuild */
#define NGX_MCP_SLOT_TALLY     0x6d637038
#define NGX_MCP_SLOT_WORKERS   0x6d637039
#define NGX_MCP_SLOT_MODERN    0x6d63703b


typedef struct {
    uint32_t                    kind;
    uint32_t                    next;       /* free: next free one; otherwise
                                             * the text that goes on */
} ngx_mcp_slot_t;


typedef struct {
    uint32_t                    layout;
    uint32_t                    busy;       /* 1 while the lock is held */
    uint32_t                    generation; /* configurations loaded */
    uint32_t                    nslots;
    uint32_t                    top;        /* slots ever used */
    uint32_t                    free;       /* head of the free list */
    uint32_t                    nused;
    uint32_t                    serial;     /* of the newest session */
    uint32_t                    peers;      /* made so far */
    uint32_t                    ready;      /* generation whose upstreams are
                                             * all known */
    uint32_t                    revisit;    /* next slot to be scheduled anew
                                             * after a reload, 0: none */
    uint32_t                    nsessions;
    uint32_t                    changes;    /* of any peer: moves on, so that
                                             * workers see it without the lock
                                             * */
    u_char                     *slots;      /* slot 1 is the first */
    uint64_t                    evicted;
    uint64_t                    untracked;
    ngx_rbtree_t                sessions;   /* by keyed hash */
    ngx_rbtree_t                wake;       /* by time of next work */
    ngx_rbtree_t                endpoints;  /* by keyed hash */
    ngx_rbtree_node_t           sentinel;   /* of the three */
    ngx_queue_t                 upstreams;
    ngx_queue_t                 fresh;      /* sessions not ready, by age */
    ngx_queue_t                 lost;       /* sessions lost, by age */
    u_char                      secret[NGX_MCP_SECRET_LEN];
} ngx_mcp_zone_sh_t;


typedef struct ngx_mcp_zone_s  ngx_mcp_zone_t;

/*
 * Puts the records of a zone in order after their lock's holder died.  Called
 * with the lock held; returns the number of records dropped.
 */
typedef ngx_uint_t (*ngx_mcp_zone_rebuild_pt)(ngx_mcp_zone_t *zone);

/* One configuration's view of a zone; read-only after start but for "torn". */

struct ngx_mcp_zone_s {
    ngx_mcp_zone_sh_t          *sh;
    ngx_slab_pool_t            *shpool;
    ngx_shm_zone_t             *shm_zone;
    ngx_mcp_zone_rebuild_pt     rebuild;
    ngx_array_t                 policies;   /* of ngx_mcp_policy_t * */
    uint32_t                    generation; /* of this configuration */
    ngx_uint_t                  torn;       /* rebuilt in this hold */
    ngx_uint_t                  dropped;
};


/*
 * What an upstream wants, as configured.  Times in ms; 0 in interval means
 * "off", 0 in max_idle means "never".
 */

typedef struct {
    ngx_str_t                   name;       /* of the upstream */
    ngx_uint_t                  index;      /* among all upstreams with the
                                             * module */
    ngx_mcp_zone_t             *zone;
    uint32_t                    slot;       /* the upstream's, set at start */
    ngx_msec_t                  interval;
    ngx_msec_t                  timeout;
    ngx_msec_t                  max_idle;
    ngx_uint_t                  method;     /* NGX_MCP_METHOD_* */
    uint32_t                    rate;       /* keepalives a second and peer */
    ngx_uint_t                  calls;      /* ... in flight to a peer */
    ngx_uint_t                  pin;        /* sessions live on one peer */
    uint32_t                    revive;     /* revivals of a session without
                                             * proof in between; 0: off */
    mcp_health_conf_t           health;     /* its jitter serves all times */
} ngx_mcp_policy_t;


/*
 * In a test build (BUILD=crash) a worker dies at one of these marks now and
 * then, all of them in the middle of a change of the zone.
 */

#if (NGX_MCP_CRASH)
void ngx_mcp_zone_crash(void);
#else
#define ngx_mcp_zone_crash()
#endif


/*
 * Declares zone "name" (size 0: declared elsewhere) for the module "tag".  The
 * same name gives the same zone.  NULL: the configuration is wrong, logged.
 */
ngx_mcp_zone_t *ngx_mcp_zone_add(ngx_conf_t *cf, ngx_str_t *name, size_t size,
    void *tag, ngx_mcp_zone_rebuild_pt rebuild);

/*
 * Lock and unlock.  Between the two: no log, no pool, no other lock, at most
 * NGX_MCP_LOCK_NODES records.  A zone whose last holder died is rebuilt first;
 * unlock logs that.
 */
void ngx_mcp_zone_lock(ngx_mcp_zone_t *zone);
void ngx_mcp_zone_unlock(ngx_mcp_zone_t *zone);

/* All below: lock held. */

/* A zeroed slot of "kind"; NULL: the zone is full, evict and try again. */
void *ngx_mcp_zone_alloc(ngx_mcp_zone_t *zone, uint32_t kind);

/* Wipes and frees a slot and the text that hangs on its "next". */
void ngx_mcp_zone_free(ngx_mcp_zone_t *zone, void *slot);

/* The slot of an index if it is of "kind", else NULL; any index is allowed. */
void *ngx_mcp_zone_slot(ngx_mcp_zone_t *zone, uint32_t index, uint32_t kind);

uint32_t ngx_mcp_zone_index(ngx_mcp_zone_t *zone, void *slot);

/*
 * Texts of any length, over as many slots as needed.  store returns the index,
 * 0 if the zone is full (nothing is kept) or the text is empty; copy returns
 * the length, cut to "size"; equal compares whole; free takes 0.
 */
uint32_t ngx_mcp_zone_text_store(ngx_mcp_zone_t *zone, u_char *data,
    size_t len);
size_t ngx_mcp_zone_text_copy(ngx_mcp_zone_t *zone, uint32_t index,
    u_char *buf, size_t size);
ngx_uint_t ngx_mcp_zone_text_equal(ngx_mcp_zone_t *zone, uint32_t index,
    u_char *data, size_t len);
void ngx_mcp_zone_text_free(ngx_mcp_zone_t *zone, uint32_t index);

/*
 * For the rebuild: walks a text and marks its slots; 0 if it is torn or was
 * marked before.  restart empties trees, queues and the free list; sweep frees
 * all texts without a mark and takes the marks off.
 */
ngx_uint_t ngx_mcp_zone_text_mark(ngx_mcp_zone_t *zone, uint32_t index);
void ngx_mcp_zone_restart(ngx_mcp_zone_t *zone);
void ngx_mcp_zone_sweep(ngx_mcp_zone_t *zone);

/*
 * A keyed 64-bit hash of some bytes within a name space; and a keyed digest of
 * "size" bytes (32 at most), for which the lock need not be held.
 */
uint64_t ngx_mcp_zone_hash(ngx_mcp_zone_t *zone, uint32_t space,
    u_char *data, size_t len);
void ngx_mcp_zone_digest(ngx_mcp_zone_t *zone, u_char *data, size_t len,
    u_char *digest, size_t size);


#endif /* _NGX_MCP_ZONE_H_INCLUDED_ */
