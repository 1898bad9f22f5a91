
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The life of a peer.  The configuration, the time it starts at, then four
 * bytes an event.  The rules below are those that hold for any configuration
 * and any time; the naive twin is in t/unit/mcp_health_test.c.
 */


#include "fuzz.h"
#include "mcp_health.h"


typedef struct {
    mcp_health_conf_t  conf;
    mcp_health_t       h;
    mcp_health_t       old;             /* before the event */
    uint64_t           now;
} peer_t;


/* Small numbers as they are, the others up to the ends of 64 bits. */

static uint64_t
any_time(fuzz_input_t *in)
{
    uint64_t  n;

    n = fuzz_number(in, 2);

    switch (n >> 14) {

    case 0:
        return n;

    case 1:
        return (n & 0x3fff) * 1000;

    case 2:
        return (n & 0x3fff) << 50;

    default:
        return UINT64_MAX - (n & 0x3fff);
    }
}


static uint64_t
add(uint64_t a, uint64_t b)
{
    return (b > UINT64_MAX - a) ? UINT64_MAX : a + b;
}


static int
marked(const mcp_health_t *h)
{
    return h->state == MCP_PEER_DEGRADED || h->state == MCP_PEER_PARKED;
}


/* What is true of a record at any time. */

static void
check_record(const peer_t *p)
{
    uint32_t             limit;
    const mcp_health_t  *h;

    h = &p->h;
    limit = mcp_health_limit(h, &p->conf);

    FUZZ_CHECK(h->state <= MCP_PEER_PARKED);
    FUZZ_CHECK(strcmp(mcp_health_state_name((mcp_peer_state_t) h->state),
                      "unknown") != 0);
    FUZZ_CHECK(limit == (h->proven ? p->conf.budget : p->conf.initial));
    FUZZ_CHECK(h->charges <= limit || h->charges == limit + 1);
    FUZZ_CHECK(h->proven || h->state != MCP_PEER_CONNECTED);
    FUZZ_CHECK(marked(h) || h->next_attempt_ms == 0);
    FUZZ_CHECK(h->failures == 0 || h->state == MCP_PEER_CONNECTED);
    FUZZ_CHECK(h->state != MCP_PEER_CONNECTED
               || (h->charges == 0 && !h->marked && !h->was_parked));
    FUZZ_CHECK(h->state != MCP_PEER_PARKED
               || (h->was_parked && h->parks != 0));
    FUZZ_CHECK(h->state != MCP_PEER_DEGRADED || h->marked);

    FUZZ_CHECK(mcp_health_attempt_due(h, p->now)
               == (marked(h) && h->next_attempt_ms <= p->now));

    /* no state without a way out */

    FUZZ_CHECK(!marked(h) || mcp_health_attempt_due(h, UINT64_MAX));
}


static void
check_change(const peer_t *p, mcp_event_t event,
    const mcp_health_change_t *ch)
{
    int                  failed;
    uint64_t             most;
    const mcp_health_t  *h, *old;

    h = &p->h;
    old = &p->old;

    FUZZ_CHECK(ch->from == old->state && ch->to == h->state);
    FUZZ_CHECK(ch->changed == (ch->from != ch->to));
    FUZZ_CHECK(ch->was_parked == old->was_parked);
    FUZZ_CHECK(h->epoch == old->epoch + ch->mark);
    FUZZ_CHECK(h->since_ms == (ch->changed ? p->now : old->since_ms));
    FUZZ_CHECK(h->attempts == old->attempts);

    failed = (event == MCP_EVENT_FAILURE
              || event == MCP_EVENT_ATTEMPT_FAILED);

    FUZZ_CHECK(!ch->mark || (failed && marked(h) && !marked(old)));
    FUZZ_CHECK(!ch->check || (event == MCP_EVENT_STREAM_CUT
                              && ch->to == MCP_PEER_CONNECTED));

    FUZZ_CHECK((ch->to == MCP_PEER_CONNECTED)
               == (event == MCP_EVENT_PROOF
                   || (ch->from == MCP_PEER_CONNECTED && !ch->mark)));

    /* only proof refills the budget, only one charge at a time */

    if (event == MCP_EVENT_PROOF) {
        FUZZ_CHECK(h->charges == 0 && h->proven && h->park_period_ms == 0);
        FUZZ_CHECK(h->reconnects == old->reconnects
                   + (old->marked && ch->changed));

    } else {
        FUZZ_CHECK(h->charges == old->charges
                   || h->charges == old->charges + 1);
        FUZZ_CHECK(h->proven == old->proven);
        FUZZ_CHECK(h->reconnects == old->reconnects);
    }

    /* nothing sends a live peer straight to parked */

    FUZZ_CHECK(ch->from != MCP_PEER_CONNECTED || ch->to != MCP_PEER_PARKED);
    FUZZ_CHECK(h->parks == old->parks
               + (ch->changed && ch->to == MCP_PEER_PARKED));

    if (ch->to == MCP_PEER_PARKED && ch->changed) {
        FUZZ_CHECK(h->charges > mcp_health_limit(h, &p->conf)
                   || h->charges == UINT32_MAX);
    }

    /* a client's failure changes nothing on a peer that is marked */

    if (marked(old) && (event == MCP_EVENT_FAILURE
                        || event == MCP_EVENT_STREAM_CUT))
    {
        FUZZ_CHECK(memcmp(h, old, sizeof(mcp_health_t)) == 0);
        return;
    }

    /* the next attempt lies ahead, and not too far */

    if (marked(h)) {
        most = p->conf.backoff_max_ms;

        if (h->state == MCP_PEER_PARKED) {
            most = (p->conf.park_ms > p->conf.park_max_ms)
                   ? p->conf.park_ms : p->conf.park_max_ms;
            FUZZ_CHECK(h->park_period_ms <= most);
            FUZZ_CHECK(h->park_period_ms >= old->park_period_ms);
        }

        FUZZ_CHECK(h->next_attempt_ms >= p->now);
        FUZZ_CHECK(h->next_attempt_ms <= add(p->now, add(most, most)));
    }
}


static void
next_event(peer_t *p, fuzz_input_t *in)
{
    unsigned             op;
    uint32_t             random, epoch;
    mcp_event_t          event;
    mcp_health_change_t  ch;

    op = (unsigned) fuzz_number(in, 1);
    random = (uint32_t) fuzz_number(in, 1) * 0x01010101u;

    /* mostly in good time, or just when the attempt is due */

    if ((op & 0x80) && marked(&p->h) && p->h.next_attempt_ms > p->now) {
        p->now = p->h.next_attempt_ms;
        in->p += (in->last - in->p < 2) ? in->last - in->p : 2;

    } else {
        p->now = add(p->now, any_time(in));
    }

    event = (mcp_event_t) ((op & 0x0f) % (MCP_EVENT_STREAM_CUT + 3));
    epoch = p->h.epoch - ((op & 0x70) == 0x70);

    p->old = p->h;

    if (event > MCP_EVENT_STREAM_CUT + 1) {
        mcp_health_attempt(&p->h, p->now, random);

        FUZZ_CHECK(p->h.attempts == p->old.attempts + 1);
        FUZZ_CHECK(p->h.next_attempt_ms == add(p->now, random));

        /* as the caller does: only a marked peer is tried */

        if (!marked(&p->h)) {
            p->h = p->old;
        }

        return;
    }

    ch = mcp_health_event(&p->h, &p->conf, event, epoch, p->now, random);

    if (epoch != p->old.epoch || event > MCP_EVENT_STREAM_CUT) {
        FUZZ_CHECK(memcmp(&p->h, &p->old, sizeof(mcp_health_t)) == 0);
        FUZZ_CHECK(!ch.changed && !ch.mark && !ch.check);
        return;
    }

    check_change(p, event, &ch);
}


static void
check_jitter(fuzz_input_t *in)
{
    uint32_t  percent, random;
    uint64_t  n, v;

    n = any_time(in);
    percent = (uint32_t) fuzz_number(in, 1);
    random = (uint32_t) fuzz_number(in, 4);

    v = mcp_health_jitter(n, percent, random);

    FUZZ_CHECK(v <= add(n, n));
    FUZZ_CHECK(percent >= 100 || v >= n
               || n - v <= n / 100 * percent + percent);
    FUZZ_CHECK(percent != 0 || v == n);
    FUZZ_CHECK((random < 0x80000000) ? v <= n : v >= n);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    peer_t        p;
    fuzz_input_t  in;

    in.p = data;
    in.last = data + size;

    check_jitter(&in);

    memset(&p, 0, sizeof(p));

    p.conf.failures = (uint32_t) fuzz_number(&in, 1) % 8;
    p.conf.initial = (uint32_t) fuzz_number(&in, 1);
    p.conf.budget = (uint32_t) fuzz_number(&in, 1);

    if (p.conf.budget == 0xff) {
        p.conf.budget = UINT32_MAX;
    }

    p.conf.jitter = (uint32_t) fuzz_number(&in, 1);
    p.conf.backoff_ms = any_time(&in);
    p.conf.backoff_max_ms = any_time(&in);
    p.conf.park_ms = any_time(&in);
    p.conf.park_max_ms = any_time(&in);
    p.now = any_time(&in);

    mcp_health_init(&p.h, p.now);
    check_record(&p);

    while (in.p < in.last) {
        next_event(&p, &in);
        check_record(&p);
    }

    return 0;
}
