
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * One peer's state and reconnect budget: an event, the time and a random number
 * in, the new state out.  Pure: lives in any memory, keeps no pointer, is right
 * for any 64-bit time in milliseconds.  The table in mcp_health.c is the rule
 * book (the state table of docs/internals.md).
 */


#ifndef _MCP_HEALTH_H_INCLUDED_
#define _MCP_HEALTH_H_INCLUDED_


#include <stdint.h>


typedef enum {
    MCP_PEER_CONNECTING = 0,    /* not proven since start or mark */
    MCP_PEER_CONNECTED,
    MCP_PEER_DEGRADED,          /* marked for reconnect */
    MCP_PEER_PARKED
} mcp_peer_state_t;


typedef enum {
    MCP_EVENT_PROOF = 0,        /* the peer answered MCP */
    MCP_EVENT_REACH,            /* an attempt found something that answers */
    MCP_EVENT_FAILURE,          /* a keepalive failed, no attempt */
    MCP_EVENT_ATTEMPT_FAILED,
    MCP_EVENT_STREAM_CUT        /* the peer cut a stream, no clean end */
} mcp_event_t;


typedef struct {
    uint32_t                    failures;       /* in a row until the mark */
    uint32_t                    initial;        /* limit while never proven */
    uint32_t                    budget;         /* limit afterwards */
    uint32_t                    jitter;         /* percent, 0 .. 100 */
    uint64_t                    backoff_ms;
    uint64_t                    backoff_max_ms;
    uint64_t                    park_ms;
    uint64_t                    park_max_ms;
} mcp_health_conf_t;


typedef struct {
    uint64_t                    since_ms;       /* in this state since */
    uint64_t                    next_attempt_ms;
                                                /* degraded and parked only */
    uint64_t                    park_period_ms; /* of the current park */
    uint64_t                    drop_until_ms;  /* cuts before it are one */
    uint64_t                    admit_ms;       /* no request is admitted on
                                                 * trial before */
    uint32_t                    charges;
    uint32_t                    failures;       /* in a row, connected only */
    uint32_t                    epoch;          /* moves on at each mark */
    uint32_t                    attempts;       /* made, ever */
    uint32_t                    parks;          /* transitions to parked */
    uint32_t                    reconnects;     /* returns to connected after
                                                 * a mark */
    uint8_t                     state;          /* mcp_peer_state_t */
    unsigned                    proven:1;       /* ever */
    unsigned                    marked:1;       /* since the last proof */
    unsigned                    was_parked:1;   /* since the last proof */
} mcp_health_t;


typedef struct {
    mcp_peer_state_t            from;
    mcp_peer_state_t            to;
    unsigned                    changed:1;      /* from != to */
    unsigned                    mark:1;         /* the epoch moved on */
    unsigned                    check:1;        /* ask the peer once, now */
    unsigned                    was_parked:1;   /* since the last proof, before
                                                 * this event */
} mcp_health_change_t;


/* A peer never heard of: connecting, no charges, epoch 0. */
void mcp_health_init(mcp_health_t *h, uint64_t now_ms);

/*
 * Applies one event.  "epoch" is the one the evidence was gathered in: if it is
 * not h->epoch nothing changes.  "random" is any 32-bit number and spreads
 * the next delay by conf->jitter percent.  An attempt leased before is over.
 */
mcp_health_change_t mcp_health_event(mcp_health_t *h,
    const mcp_health_conf_t *conf, mcp_event_t event, uint32_t epoch,
    uint64_t now_ms, uint32_t random);

/* True while a peer is degraded or parked. */
int mcp_health_attempts_only(const mcp_health_t *h);

/* True if a degraded or parked peer may be tried now. */
int mcp_health_attempt_due(const mcp_health_t *h, uint64_t now_ms);

/*
 * Takes the attempt: counts it and moves next_attempt_ms on by "hold_ms", so
 * that the peer is tried again even if the taker dies.
 */
void mcp_health_attempt(mcp_health_t *h, uint64_t now_ms, uint64_t hold_ms);

/*
 * True if a peer answers again after a mark, but has not proven itself: it is
 * tried with little.
 */
int mcp_health_trial(const mcp_health_t *h);

/*
 * May a client's request go to a peer on trial, or parked?  One in a second;
 * 1: this one, and it is counted, 0: not yet.
 */
int mcp_health_admit(mcp_health_t *h, uint64_t now_ms);

/* How many charges the peer may collect: initial or budget. */
uint32_t mcp_health_limit(const mcp_health_t *h,
    const mcp_health_conf_t *conf);

/*
 * "interval_ms" spread by +- "percent", from a random number; never negative,
 * never overflows, 0 stays 0.
 */
uint64_t mcp_health_jitter(uint64_t interval_ms, uint32_t percent,
    uint32_t random);

const char *mcp_health_state_name(mcp_peer_state_t state);


#endif /* _MCP_HEALTH_H_INCLUDED_ */
