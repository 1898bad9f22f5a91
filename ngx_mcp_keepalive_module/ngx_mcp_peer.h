
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Upstreams and their peers in the zone: counters, one mcp_health record a peer
 * and the caps on keepalives.  The one place that logs a peer's transition.
 */


#ifndef _NGX_MCP_PEER_H_INCLUDED_
#define _NGX_MCP_PEER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "mcp/mcp_classify.h"
#include "mcp/mcp_health.h"
#include "ngx_mcp_zone.h"


#define NGX_MCP_PEER_NAME_MAX   128     /* "ip:port" or "unix:" and a path */
#define NGX_MCP_PEER_CALLS      8       /* keepalives in flight to a peer */
#define NGX_MCP_PEER_CALLS_MIN  2       /* ... with the smallest of pools */

/* A peer in doubt is asked once in so many ms. */
#define NGX_MCP_PEER_CHECK      1000

/* Wrong so often, keepalives say nothing of a peer's sessions. */
#define NGX_MCP_PEER_WRONG      3

#define NGX_MCP_METHOD_TOOLS    0
#define NGX_MCP_METHOD_PING     1
#define NGX_MCP_METHOD_AUTO     2


/* An upstream's counters, in the order of the status page. */

typedef enum {
    NGX_MCP_COUNT_ACTIVE = 0,
    NGX_MCP_COUNT_READY,
    NGX_MCP_COUNT_LEARNED,
    NGX_MCP_COUNT_ADOPTED,
    NGX_MCP_COUNT_LOST,
    NGX_MCP_COUNT_DELETED,
    NGX_MCP_COUNT_EXPIRED,
    NGX_MCP_COUNT_REVIVED,
    NGX_MCP_COUNT_REVIVE_FAILED,

    NGX_MCP_COUNT_OPEN,
    NGX_MCP_COUNT_OPENED,
    NGX_MCP_COUNT_HELD,
    NGX_MCP_COUNT_HEARTBEATS,
    NGX_MCP_COUNT_CLOSED_BY_MARK,
    NGX_MCP_COUNT_CLOSED_BY_EXIT,
    NGX_MCP_COUNT_TIMED_OUT,

    NGX_MCP_COUNT_SESSION_LOST,
    NGX_MCP_COUNT_TRANSLATED,
    NGX_MCP_COUNT_UNAVAILABLE,

    NGX_MCP_COUNT_SKIPPED_BUSY,
    NGX_MCP_COUNT_SKIPPED_RATE,
    NGX_MCP_COUNT_SKIPPED_CONNECTIONS,
    NGX_MCP_COUNT_SKIPPED_CREDENTIALS,

    NGX_MCP_COUNT_N
} ngx_mcp_count_t;


/* What was told of a peer once and need not be told again. */

#define NGX_MCP_WARNED_BEHIND    0x01
#define NGX_MCP_WARNED_MISROUTE  0x02


/* Records of the zone; private to the files of the shared state. */

typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    name;       /* text */
    uint32_t                    generation; /* configured last in */
    uint32_t                    noticed;    /* generation told of credentials
                                             * that are missing */
    uint32_t                    cursor;     /* peer last looked at for an
                                             * attempt */
    ngx_queue_t                 queue;      /* among the upstreams */
    ngx_queue_t                 peers;
    uint64_t                    count[NGX_MCP_COUNT_N];
} ngx_mcp_upstream_slot_t;

typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    upstream;
    uint32_t                    name;       /* text */
    uint32_t                    reason;     /* text, of the last transition */
    uint32_t                    stats;      /* slot */
    uint32_t                    generation; /* configured last in */
    uint32_t                    nsessions;  /* those not lost */
    uint32_t                    refs;       /* sessions of any state */
    ngx_queue_t                 queue;      /* among the upstream's peers */
    ngx_queue_t                 ready;      /* ready sessions, by last use */
    uint64_t                    proof_ms;   /* last proof of any kind */
    uint64_t                    defer_ms;   /* when the next session that
                                             * finds no place tries again */
    mcp_health_t                health;
    uint64_t                    mark;       /* connections of lower numbers
                                             * are older than the last mark */
    uint64_t                    checked_ms; /* asked while in doubt, last */
    uint32_t                    park_hash;  /* of the reason last parked for */
    uint8_t                     method;     /* latched: method + 1, 0: none */
    uint8_t                     warned;     /* NGX_MCP_WARNED_* */
    uint8_t                     wrong;      /* sessions that keepalives were
                                             * told are lost, and were not */
    uint8_t                     refused;    /* the last failure was one */
    uint8_t                     check;      /* to be asked once, now */
    uint8_t                     absent;     /* not in the balancer's list */
    uint32_t                    born;       /* its epoch when it came back:
                                             * sessions from before are not its
                                             * own */
    uint32_t                    revived;    /* sessions, not told yet */
    uint32_t                    modern;     /* slot, 0: none */
    uint64_t                    told_ms;    /* of them, last */
    uint64_t                    gone_ms;    /* found gone, first */
    uint32_t                    first;      /* its first epoch, not that of
                                             * another peer in this slot */
} ngx_mcp_peer_slot_t;

typedef struct {
    ngx_mcp_slot_t              slot;
    uint32_t                    peer;       /* whose they are */
    uint32_t                    tally;      /* slot, of its streams */
    uint64_t                    sent;
    uint64_t                    bytes;
    uint64_t                    verdict[MCP_VERDICT_N];
    uint64_t                    next_us;    /* when rate lets one through */
    uint64_t                    call_ms[NGX_MCP_PEER_CALLS];
                                            /* leases, until */
    uint64_t                    answered;   /* keepalives, by anything */
    uint64_t                    latency_ms; /* ... and how long all of them
                                             * took */
} ngx_mcp_stats_slot_t;


/* Of a peer, what routing needs; a worker's own copy. */

typedef struct {
    uint32_t                    slot;
    uint32_t                    epoch;
    uint64_t                    mark;
    mcp_peer_state_t            state;
    size_t                      name_len;
    unsigned                    trial:1;
    unsigned                    refused:1;
    unsigned                    absent:1;   /* not in the balancer's list */
    unsigned                    gone:1;     /* ... or not configured */
    u_char                      name[NGX_MCP_PEER_NAME_MAX];
} ngx_mcp_peer_view_t;


/* A peer as copied out. */

typedef struct {
    uint32_t                    slot;
    uint32_t                    nsessions;
    ngx_uint_t                  gone;
    ngx_uint_t                  wrong;
    mcp_health_t                health;
    uint64_t                    sent;
    uint64_t                    bytes;
    uint64_t                    verdict[MCP_VERDICT_N];
    uint64_t                    answered;
    uint64_t                    latency_ms;
    size_t                      name_len;
    size_t                      reason_len;
    u_char                      name[NGX_MCP_PEER_NAME_MAX];
    u_char                      reason[MCP_REASON_MAX];
} ngx_mcp_peer_copy_t;


/*
 * Finds or makes the slot of policy->name and writes it to policy->slot.
 * NGX_ERROR: the zone is full.  ready: all its peers known before have been
 * kept; those of former generations alone are gone.  Both take the lock.
 */
ngx_int_t ngx_mcp_peer_upstream(ngx_mcp_policy_t *policy);
void ngx_mcp_peer_upstream_ready(ngx_mcp_policy_t *policy);

/*
 * Finds or makes the peer "name" of an upstream; "configured" marks it as one
 * of the current generation; sets "epoch", if not NULL, to its own.  Takes the
 * lock.  Returns its slot, 0: zone full or the name is too long.
 */
uint32_t ngx_mcp_peer_add(ngx_mcp_policy_t *policy, ngx_str_t *name,
    ngx_uint_t configured, uint32_t *epoch);

/* Marks a peer as configured, if it is known already.  Takes the lock. */
void ngx_mcp_peer_keep(ngx_mcp_policy_t *policy, ngx_str_t *name);

/*
 * Applies an event to a peer and logs the transition, if any.  "epoch" is the
 * one the evidence was gathered in, "reason" its NUL-ended root cause,
 * "refused" says that it was a refused connection, NGX_DECLINED that this is
 * not known.  Takes the lock.  A slot that is no peer any more is ignored.
 */
void ngx_mcp_peer_event(ngx_mcp_policy_t *policy, uint32_t peer,
    mcp_event_t event, uint32_t epoch, const char *reason, ngx_int_t refused);

/*
 * Copies up to "n" peers (NGX_MCP_LOCK_NODES at most) that follow slot "after"
 * (0: from the first); returns how many.  Takes the lock.
 */
ngx_uint_t ngx_mcp_peer_views(ngx_mcp_policy_t *policy, uint32_t after,
    ngx_mcp_peer_view_t *views, ngx_uint_t n);

/*
 * Admits a client's request to a peer that is on trial or parked, one in a
 * second in the whole instance; true if it may go.  Takes the lock.
 */
ngx_uint_t ngx_mcp_peer_admit(ngx_mcp_policy_t *policy, uint32_t peer);

/* True if anything proved the peer since the time "since".  Takes the lock. */
ngx_uint_t ngx_mcp_peer_proven(ngx_mcp_policy_t *policy, uint32_t peer,
    uint64_t since);

/*
 * In how many seconds the peer (0: the first of any) is tried next, rounded up,
 * at least 1.  Takes the lock.
 */
time_t ngx_mcp_peer_retry_after(ngx_mcp_policy_t *policy, uint32_t peer);

/*
 * The balancer's list holds the peer, or does not ("absent"), where names are
 * resolved.  One that comes back must prove itself: it may be another.  Takes
 * the lock.
 */
void ngx_mcp_peer_absent(ngx_mcp_policy_t *policy, uint32_t peer,
    ngx_uint_t absent);

/*
 * Counts a keepalive's end: "verdict" of MCP_VERDICT_N counts none, one of
 * MCP_VERDICT_LOCAL was not sent.  "latency", in ms, counts if there was an
 * answer.  Takes the lock.
 */
void ngx_mcp_peer_count(ngx_mcp_policy_t *policy, uint32_t peer,
    mcp_verdict_t verdict, size_t bytes, ngx_msec_t latency);

/* Latches the other method after "method" was refused.  Takes the lock. */
void ngx_mcp_peer_latch(ngx_mcp_policy_t *policy, uint32_t peer,
    ngx_uint_t method);

/* True the first time it is called for this warning.  Takes the lock. */
ngx_uint_t ngx_mcp_peer_warn(ngx_mcp_policy_t *policy, uint32_t peer,
    ngx_uint_t warning);

/*
 * "rate" for a request of our own to the peer; 0 for "peer": is there one that
 * would take it, without counting?  True if it may go.  Takes the lock.
 */
ngx_uint_t ngx_mcp_peer_rate(ngx_mcp_policy_t *policy, uint32_t peer);

/* Moves one of the upstream's counters on.  Takes the lock. */
void ngx_mcp_peer_upstream_count(ngx_mcp_policy_t *policy,
    ngx_mcp_count_t count);

/* Copies the upstream's counters; NGX_COUNT_N of them.  Takes the lock. */
void ngx_mcp_peer_upstream_copy(ngx_mcp_policy_t *policy, uint64_t *count);

/*
 * Copies the peer after slot "after" (0: the first) of the upstream.  Takes the
 * lock.  NGX_DONE: there is none; NGX_DECLINED: "after" is no peer any more.
 */
ngx_int_t ngx_mcp_peer_next(ngx_mcp_policy_t *policy, uint32_t after,
    ngx_mcp_peer_copy_t *copy);

/* Frees a peer long gone, if no session names it.  Takes the lock. */
void ngx_mcp_peer_reap(ngx_mcp_policy_t *policy, uint32_t peer);

/*
 * Gives back the place that ngx_mcp_peer_call_locked() took; "until" is what it
 * returned.  Takes the lock.
 */
void ngx_mcp_peer_call_done(ngx_mcp_policy_t *policy, uint32_t peer,
    uint64_t until);


/* All below: lock held. */

/* True if the peer was configured or resolved once, but is not any more. */
#define ngx_mcp_peer_gone(us, peer)                                           \
    ((peer)->absent                                                           \
     || ((us) != NULL && (peer)->generation                                   \
         && (peer)->generation < (us)->generation))

/* Frees a peer that no session and no modern record refers to. */
void ngx_mcp_peer_free_locked(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer);

ngx_mcp_peer_slot_t *ngx_mcp_peer_add_locked(ngx_mcp_zone_t *zone,
    uint32_t upstream, u_char *name, size_t len);

/*
 * A request of our own besides keepalives counts against "rate"; 0: it must
 * wait.
 */
ngx_uint_t ngx_mcp_peer_rate_locked(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, uint64_t now);

/*
 * Takes one of the peer's places for a keepalive until now + hold ms; 0: all
 * are taken or this second's rate is used up.
 */
uint64_t ngx_mcp_peer_call_locked(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, uint64_t now, uint64_t hold);

/*
 * A client's success on a session that a keepalive was told is lost.  After
 * NGX_MCP_PEER_WRONG of them the peer gets no keepalives until it is marked.
 */
void ngx_mcp_peer_contradict(ngx_mcp_peer_slot_t *peer);

/* Moves the end of a place taken; returns its new name, 0: it has run out. */
uint64_t ngx_mcp_peer_call_extend_locked(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, uint64_t call, uint64_t until);

/* A transition made under the lock, to be logged after it. */

typedef struct {
    mcp_health_change_t         change;
    ngx_uint_t                  level;
    size_t                      name_len;
    u_char                      name[NGX_MCP_PEER_NAME_MAX];
    char                        reason[MCP_REASON_MAX];
} ngx_mcp_transition_t;

void ngx_mcp_peer_event_locked(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, mcp_event_t event, uint32_t epoch,
    const char *reason, ngx_int_t refused, ngx_mcp_transition_t *t);

/* Logs what event_locked() left in "t"; the lock must not be held. */
void ngx_mcp_peer_log(ngx_mcp_policy_t *policy, ngx_mcp_transition_t *t);


#endif /* _NGX_MCP_PEER_H_INCLUDED_ */
