
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_health.h"


#define HEALTH_STATES  (MCP_PEER_PARKED + 1)
#define HEALTH_EVENTS  (MCP_EVENT_STREAM_CUT + 1)

/* A peer on trial gets one request in so many ms. */
#define HEALTH_TRIAL   1000


typedef struct {
    mcp_health_t               *h;
    const mcp_health_conf_t    *conf;
    mcp_health_change_t        *change;
    uint64_t                    now;
    uint32_t                    random;
} mcp_health_ctx_t;


typedef void (*mcp_health_action_pt)(mcp_health_ctx_t *c);


static void mcp_health_none(mcp_health_ctx_t *c);
static void mcp_health_proof(mcp_health_ctx_t *c);
static void mcp_health_reach(mcp_health_ctx_t *c);
static void mcp_health_count(mcp_health_ctx_t *c);
static void mcp_health_again(mcp_health_ctx_t *c);
static void mcp_health_charge(mcp_health_ctx_t *c);
static void mcp_health_longer(mcp_health_ctx_t *c);
static void mcp_health_drop(mcp_health_ctx_t *c);
static void mcp_health_check(mcp_health_ctx_t *c);
static void mcp_health_mark(mcp_health_ctx_t *c);
static int mcp_health_spend(mcp_health_ctx_t *c);
static void mcp_health_park(mcp_health_ctx_t *c);
static void mcp_health_enter(mcp_health_ctx_t *c, mcp_peer_state_t state);
static uint64_t mcp_health_backoff(mcp_health_ctx_t *c);
static uint64_t mcp_health_add(uint64_t a, uint64_t b);
static uint64_t mcp_health_part(uint64_t n, uint32_t random);


/*
 * The rule book: what an event does in a state.  A late outcome of an attempt,
 * whose peer is no longer degraded or parked, is like any other failure.
 */

static const mcp_health_action_pt
    mcp_health_table[HEALTH_STATES][HEALTH_EVENTS] =
{
    /*  proof,             reach,             failure,
        attempt failed,    stream cut  */

    /* connecting */
    {   mcp_health_proof,  mcp_health_none,   mcp_health_again,
        mcp_health_again,  mcp_health_drop    },

    /* connected */
    {   mcp_health_proof,  mcp_health_none,   mcp_health_count,
        mcp_health_count,  mcp_health_check   },

    /* degraded */
    {   mcp_health_proof,  mcp_health_reach,  mcp_health_none,
        mcp_health_charge, mcp_health_none    },

    /* parked */
    {   mcp_health_proof,  mcp_health_reach,  mcp_health_none,
        mcp_health_longer, mcp_health_none    }
};


static const char *const  mcp_health_names[HEALTH_STATES] = {
    "connecting",
    "connected",
    "degraded",
    "parked"
};


void
mcp_health_init(mcp_health_t *h, uint64_t now_ms)
{
    memset(h, 0, sizeof(mcp_health_t));

    h->since_ms = now_ms;
    h->state = MCP_PEER_CONNECTING;
}


mcp_health_change_t
mcp_health_event(mcp_health_t *h, const mcp_health_conf_t *conf,
    mcp_event_t event, uint32_t epoch, uint64_t now_ms, uint32_t random)
{
    mcp_health_ctx_t     c;
    mcp_health_change_t  change;

    memset(&change, 0, sizeof(mcp_health_change_t));

    change.from = h->state;
    change.was_parked = h->was_parked;

    if (epoch == h->epoch && h->state < HEALTH_STATES
        && (unsigned) event < HEALTH_EVENTS)
    {
        c.h = h;
        c.conf = conf;
        c.change = &change;
        c.now = now_ms;
        c.random = random;

        mcp_health_table[h->state][event](&c);
    }

    change.to = h->state;
    change.changed = (change.from != change.to);

    return change;
}


int
mcp_health_attempts_only(const mcp_health_t *h)
{
    return h->state == MCP_PEER_DEGRADED || h->state == MCP_PEER_PARKED;
}


int
mcp_health_attempt_due(const mcp_health_t *h, uint64_t now_ms)
{
    return mcp_health_attempts_only(h) && now_ms >= h->next_attempt_ms;
}


void
mcp_health_attempt(mcp_health_t *h, uint64_t now_ms, uint64_t hold_ms)
{
    h->attempts++;
    h->next_attempt_ms = mcp_health_add(now_ms, hold_ms);
}


int
mcp_health_trial(const mcp_health_t *h)
{
    return h->state == MCP_PEER_CONNECTING && h->marked;
}


int
mcp_health_admit(mcp_health_t *h, uint64_t now_ms)
{
    if (now_ms < h->admit_ms) {
        return 0;
    }

    h->admit_ms = mcp_health_add(now_ms, HEALTH_TRIAL);

    return 1;
}


uint32_t
mcp_health_limit(const mcp_health_t *h, const mcp_health_conf_t *conf)
{
    return h->proven ? conf->budget : conf->initial;
}


uint64_t
mcp_health_jitter(uint64_t interval_ms, uint32_t percent, uint32_t random)
{
    uint64_t  span;

    if (percent > 100) {
        percent = 100;
    }

    span = interval_ms / 100 * percent + interval_ms % 100 * percent / 100;

    /* one half of the random numbers shortens, the other one lengthens */

    if (random < 0x80000000) {
        return interval_ms - span + mcp_health_part(span, random);
    }

    return mcp_health_add(interval_ms,
                          mcp_health_part(span, random - 0x80000000));
}


const char *
mcp_health_state_name(mcp_peer_state_t state)
{
    return ((unsigned) state < HEALTH_STATES) ? mcp_health_names[state]
                                              : "unknown";
}


static void
mcp_health_none(mcp_health_ctx_t *c)
{
    (void) c;
}


static void
mcp_health_proof(mcp_health_ctx_t *c)
{
    mcp_health_t  *h;

    h = c->h;

    if (h->state != MCP_PEER_CONNECTED) {
        h->reconnects += h->marked;
        mcp_health_enter(c, MCP_PEER_CONNECTED);
    }

    h->charges = 0;
    h->failures = 0;
    h->next_attempt_ms = 0;
    h->park_period_ms = 0;
    h->drop_until_ms = 0;
    h->proven = 1;
    h->marked = 0;
    h->was_parked = 0;
}


static void
mcp_health_reach(mcp_health_ctx_t *c)
{
    c->h->next_attempt_ms = 0;
    mcp_health_enter(c, MCP_PEER_CONNECTING);
}


/* connected: the peer may fail a few times in a row */

static void
mcp_health_count(mcp_health_ctx_t *c)
{
    if (++c->h->failures < c->conf->failures) {
        return;
    }

    mcp_health_mark(c);

    c->h->next_attempt_ms = c->now;
    mcp_health_enter(c, MCP_PEER_DEGRADED);
}


/*
 * connecting: the first failure since the start is like that of a live peer.
 * After a mark it means that the attempt which reached the peer proved nothing,
 * so it counts as a failed one; else a peer that accepts connections and never
 * answers would be marked and tried for ever, and never be charged.
 */

static void
mcp_health_again(mcp_health_ctx_t *c)
{
    int  marked;

    marked = c->h->marked;

    mcp_health_mark(c);

    if (marked) {
        mcp_health_charge(c);
        return;
    }

    c->h->next_attempt_ms = c->now;
    mcp_health_enter(c, MCP_PEER_DEGRADED);
}


static void
mcp_health_charge(mcp_health_ctx_t *c)
{
    if (mcp_health_spend(c)) {
        mcp_health_park(c);
        return;
    }

    c->h->next_attempt_ms = mcp_health_add(c->now, mcp_health_backoff(c));
    mcp_health_enter(c, MCP_PEER_DEGRADED);
}


/* parked: the period doubles */

static void
mcp_health_longer(mcp_health_ctx_t *c)
{
    uint64_t       max;
    mcp_health_t  *h;

    h = c->h;

    max = c->conf->park_max_ms;
    if (max < c->conf->park_ms) {
        max = c->conf->park_ms;
    }

    if (h->park_period_ms == 0) {
        h->park_period_ms = c->conf->park_ms;

    } else {
        h->park_period_ms = mcp_health_add(h->park_period_ms,
                                           h->park_period_ms);
    }

    if (h->park_period_ms > max) {
        h->park_period_ms = max;
    }

    h->next_attempt_ms = mcp_health_add(c->now,
                             mcp_health_jitter(h->park_period_ms,
                                               c->conf->jitter, c->random));
}


/* connecting: many streams are cut at once when a peer goes down */

static void
mcp_health_drop(mcp_health_ctx_t *c)
{
    if (c->now < c->h->drop_until_ms) {
        return;
    }

    if (mcp_health_spend(c)) {
        mcp_health_park(c);
        return;
    }

    c->h->drop_until_ms = mcp_health_add(c->now, mcp_health_backoff(c));
}


static void
mcp_health_check(mcp_health_ctx_t *c)
{
    c->change->check = 1;
}


static void
mcp_health_mark(mcp_health_ctx_t *c)
{
    c->h->epoch++;
    c->h->failures = 0;
    c->h->marked = 1;
    c->change->mark = 1;
}


/* True if the budget is spent; charges then stand at limit + 1. */

static int
mcp_health_spend(mcp_health_ctx_t *c)
{
    uint32_t  limit;

    limit = mcp_health_limit(c->h, c->conf);

    if (c->h->charges >= limit) {
        c->h->charges = (limit == UINT32_MAX) ? limit : limit + 1;
        return 1;
    }

    c->h->charges++;

    return 0;
}


static void
mcp_health_park(mcp_health_ctx_t *c)
{
    c->h->parks++;
    c->h->was_parked = 1;
    c->h->drop_until_ms = 0;

    /* parked again without a proof in between: the period goes on growing */

    mcp_health_longer(c);
    mcp_health_enter(c, MCP_PEER_PARKED);
}


static void
mcp_health_enter(mcp_health_ctx_t *c, mcp_peer_state_t state)
{
    if (c->h->state == state) {
        return;
    }

    c->h->state = (uint8_t) state;
    c->h->since_ms = c->now;
}


/* backoff * 2 ^ (charges - 1), capped, spread */

static uint64_t
mcp_health_backoff(mcp_health_ctx_t *c)
{
    uint32_t  n;
    uint64_t  delay, max;

    delay = c->conf->backoff_ms;
    max = c->conf->backoff_max_ms;

    for (n = c->h->charges; n > 1 && delay != 0 && delay < max; n--) {
        delay = mcp_health_add(delay, delay);
    }

    if (delay > max) {
        delay = max;
    }

    return mcp_health_jitter(delay, c->conf->jitter, c->random);
}


static uint64_t
mcp_health_add(uint64_t a, uint64_t b)
{
    return (b > UINT64_MAX - a) ? UINT64_MAX : a + b;
}


/* n * random / 2^31, without a number of more than 64 bits */

static uint64_t
mcp_health_part(uint64_t n, uint32_t random)
{
    uint64_t  low;

    low = n & 0x7fffffff;

    return (n >> 31) * random + ((low * random) >> 31);
}
