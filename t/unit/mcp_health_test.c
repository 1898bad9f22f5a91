
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"

#include <stdint.h>

#include "mcp_health.h"


#define ROUNDS  1000000


static const mcp_health_conf_t  conf = {
    1, 3, 5, 0, 1000, 60000, 300000, 3600000
};


static mcp_health_t  h;
static uint64_t      now;


static mcp_health_change_t
ev(mcp_event_t event)
{
    return mcp_health_event(&h, &conf, event, h.epoch, now, 0);
}


static void
start(uint64_t at)
{
    now = at;
    mcp_health_init(&h, now);
}


static void
fresh(mcp_peer_state_t state)
{
    start(1000);

    if (state == MCP_PEER_CONNECTING) {
        return;
    }

    ev(MCP_EVENT_PROOF);

    if (state == MCP_PEER_CONNECTED) {
        return;
    }

    ev(MCP_EVENT_FAILURE);

    while (h.state != state) {
        now = h.next_attempt_ms;
        ev(MCP_EVENT_ATTEMPT_FAILED);
    }
}


/* every cell of the table: what becomes of a state */

typedef struct {
    mcp_peer_state_t  from;
    mcp_event_t       event;
    mcp_peer_state_t  to;
    int               mark;
    int               check;
    int               charges;          /* afterwards */
    const char       *name;
} cell_t;


static const cell_t  cells[] = {
    { MCP_PEER_CONNECTING, MCP_EVENT_PROOF, MCP_PEER_CONNECTED, 0, 0, 0,
      "connecting, proof: connected" },
    { MCP_PEER_CONNECTING, MCP_EVENT_REACH, MCP_PEER_CONNECTING, 0, 0, 0,
      "connecting, reach: nothing" },
    { MCP_PEER_CONNECTING, MCP_EVENT_FAILURE, MCP_PEER_DEGRADED, 1, 0, 0,
      "connecting, failure: degraded with a mark" },
    { MCP_PEER_CONNECTING, MCP_EVENT_ATTEMPT_FAILED, MCP_PEER_DEGRADED, 1, 0,
      0, "connecting, late attempt failed: the same" },
    { MCP_PEER_CONNECTING, MCP_EVENT_STREAM_CUT, MCP_PEER_CONNECTING, 0, 0, 1,
      "4.2: connecting, a drop: one charge" },
    { MCP_PEER_CONNECTED, MCP_EVENT_PROOF, MCP_PEER_CONNECTED, 0, 0, 0,
      "connected, proof: connected" },
    { MCP_PEER_CONNECTED, MCP_EVENT_REACH, MCP_PEER_CONNECTED, 0, 0, 0,
      "connected, reach: nothing" },
    { MCP_PEER_CONNECTED, MCP_EVENT_FAILURE, MCP_PEER_DEGRADED, 1, 0, 0,
      "4.3: connected, failure: degraded with a mark, no charge" },
    { MCP_PEER_CONNECTED, MCP_EVENT_ATTEMPT_FAILED, MCP_PEER_DEGRADED, 1, 0, 0,
      "connected, late attempt failed: a failure" },
    { MCP_PEER_CONNECTED, MCP_EVENT_STREAM_CUT, MCP_PEER_CONNECTED, 0, 1, 0,
      "4.2: connected, a plain drop: a check, no mark" },
    { MCP_PEER_DEGRADED, MCP_EVENT_PROOF, MCP_PEER_CONNECTED, 0, 0, 0,
      "degraded, proof: connected" },
    { MCP_PEER_DEGRADED, MCP_EVENT_REACH, MCP_PEER_CONNECTING, 0, 0, 0,
      "degraded, reach: connecting" },
    { MCP_PEER_DEGRADED, MCP_EVENT_FAILURE, MCP_PEER_DEGRADED, 0, 0, 0,
      "degraded, a client's failure: nothing" },
    { MCP_PEER_DEGRADED, MCP_EVENT_ATTEMPT_FAILED, MCP_PEER_DEGRADED, 0, 0, 1,
      "degraded, attempt failed: one charge" },
    { MCP_PEER_DEGRADED, MCP_EVENT_STREAM_CUT, MCP_PEER_DEGRADED, 0, 0, 0,
      "degraded, stream cut: nothing" },
    { MCP_PEER_PARKED, MCP_EVENT_PROOF, MCP_PEER_CONNECTED, 0, 0, 0,
      "parked, proof: connected" },
    { MCP_PEER_PARKED, MCP_EVENT_REACH, MCP_PEER_CONNECTING, 0, 0, 6,
      "parked, reach: connecting, charges kept" },
    { MCP_PEER_PARKED, MCP_EVENT_FAILURE, MCP_PEER_PARKED, 0, 0, 6,
      "parked, a client's failure: nothing" },
    { MCP_PEER_PARKED, MCP_EVENT_ATTEMPT_FAILED, MCP_PEER_PARKED, 0, 0, 6,
      "parked, attempt failed: still parked" },
    { MCP_PEER_PARKED, MCP_EVENT_STREAM_CUT, MCP_PEER_PARKED, 0, 0, 6,
      "parked, stream cut: nothing" },
};


static void
test_cells(void)
{
    size_t               i;
    uint32_t             epoch;
    const cell_t        *c;
    mcp_health_t         old;
    mcp_health_change_t  ch;

    for (i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
        c = &cells[i];

        fresh(c->from);
        epoch = h.epoch;
        old = h;
        now += 7;

        ch = mcp_health_event(&h, &conf, c->event, epoch + 1, now, 0);

        ok(memcmp(&old, &h, sizeof(h)) == 0 && !ch.changed && !ch.mark
           && !ch.check,
           "evidence from another epoch changes nothing");

        ch = ev(c->event);

        ok(ch.from == c->from && ch.to == c->to && h.state == c->to
           && ch.changed == (c->from != c->to) && (int) ch.mark == c->mark
           && (int) ch.check == c->check && (int) h.charges == c->charges
           && h.epoch == epoch + c->mark
           && h.since_ms == (ch.changed ? now : old.since_ms), c->name);

        if (c->to <= MCP_PEER_CONNECTED) {
            ok(h.next_attempt_ms == 0, "no attempt is planned");
        }

        if (ch.mark) {
            ok(h.next_attempt_ms == now, "the first attempt is at once");
        }
    }

    fresh(MCP_PEER_CONNECTED);
    old = h;
    ch = mcp_health_event(&h, &conf, (mcp_event_t) 5, h.epoch, now, 0);
    ok(memcmp(&old, &h, sizeof(h)) == 0 && !ch.changed, "an unknown event");

    h.state = 4;
    ch = ev(MCP_EVENT_PROOF);
    ok(h.state == 4 && !ch.changed, "an unknown state");
}


static void
test_ladder(void)
{
    int                  i;
    mcp_health_change_t  ch;

    static const uint64_t  delays[] = { 1000, 2000, 4000, 8000, 16000 };

    fresh(MCP_PEER_DEGRADED);

    for (i = 0; i < 5; i++) {
        ch = ev(MCP_EVENT_ATTEMPT_FAILED);
        ok(!ch.changed && h.charges == (uint32_t) i + 1
           && h.next_attempt_ms == now + delays[i],
           "4.1: a failed attempt charges one and backs off, twice as long");

        ok(!mcp_health_attempt_due(&h, h.next_attempt_ms - 1)
           && mcp_health_attempt_due(&h, h.next_attempt_ms), "... until due");

        now = h.next_attempt_ms;
    }

    ch = ev(MCP_EVENT_ATTEMPT_FAILED);
    ok(ch.changed && ch.to == MCP_PEER_PARKED && h.charges == 6
       && h.parks == 1 && !ch.was_parked && h.was_parked
       && h.next_attempt_ms == now + 300000,
       "4.1, 4.3: the sixth charge parks, the only transition of the ladder");

    now = h.next_attempt_ms;
    ch = ev(MCP_EVENT_ATTEMPT_FAILED);
    ok(!ch.changed && h.charges == 6 && h.parks == 1 && h.attempts == 0
       && h.next_attempt_ms == now + 600000,
       "a failed park attempt doubles the period, charges and parks stay");

    for (i = 0; i < 10; i++) {
        now = h.next_attempt_ms;
        ev(MCP_EVENT_ATTEMPT_FAILED);
    }

    ok(h.next_attempt_ms == now + 3600000, "up to park_max");

    now = h.next_attempt_ms;
    ch = ev(MCP_EVENT_PROOF);
    ok(ch.to == MCP_PEER_CONNECTED && ch.was_parked && h.charges == 0
       && h.reconnects == 1,
       "4.1: a parked peer comes back by its own timer alone");

    ev(MCP_EVENT_FAILURE);

    while (h.state != MCP_PEER_PARKED) {
        now = h.next_attempt_ms;
        ev(MCP_EVENT_ATTEMPT_FAILED);
    }

    ok(h.next_attempt_ms == now + 300000, "after a proof the period is park");
}


static void
test_initial(void)
{
    int                  i;
    mcp_health_change_t  ch;

    start(0);
    is_int(mcp_health_limit(&h, &conf), 3, "never proven: initial");

    ch = ev(MCP_EVENT_FAILURE);
    ok(ch.mark && h.charges == 0 && h.next_attempt_ms == 0
       && mcp_health_attempt_due(&h, 0), "the first failure is not charged");

    for (i = 0; i < 3; i++) {
        now = h.next_attempt_ms;
        ch = ev(MCP_EVENT_ATTEMPT_FAILED);
        ok(!ch.changed, "4.3: the initial ladder makes no transition");
    }

    now = h.next_attempt_ms;
    ch = ev(MCP_EVENT_ATTEMPT_FAILED);
    ok(ch.changed && ch.to == MCP_PEER_PARKED && h.charges == 4,
       "4.3: never good, the fourth charge parks");

    ev(MCP_EVENT_PROOF);
    is_int(mcp_health_limit(&h, &conf), 5, "proven: budget, for ever");
    ev(MCP_EVENT_FAILURE);
    is_int(mcp_health_limit(&h, &conf), 5, "also after a mark");
}


static void
test_failures(void)
{
    mcp_health_conf_t    c3;
    mcp_health_change_t  ch;

    c3 = conf;
    c3.failures = 3;

    fresh(MCP_PEER_CONNECTED);

    mcp_health_event(&h, &c3, MCP_EVENT_FAILURE, h.epoch, now, 0);
    mcp_health_event(&h, &c3, MCP_EVENT_FAILURE, h.epoch, now, 0);
    is_int(h.state, MCP_PEER_CONNECTED, "failures=3: two are not enough");

    mcp_health_event(&h, &c3, MCP_EVENT_PROOF, h.epoch, now, 0);
    mcp_health_event(&h, &c3, MCP_EVENT_FAILURE, h.epoch, now, 0);
    mcp_health_event(&h, &c3, MCP_EVENT_FAILURE, h.epoch, now, 0);
    is_int(h.state, MCP_PEER_CONNECTED, "a proof starts the row again");

    ch = mcp_health_event(&h, &c3, MCP_EVENT_FAILURE, h.epoch, now, 0);
    ok(ch.mark && h.state == MCP_PEER_DEGRADED && h.failures == 0,
       "the third in a row marks");

    c3.failures = 0;
    fresh(MCP_PEER_CONNECTED);
    ch = mcp_health_event(&h, &c3, MCP_EVENT_FAILURE, h.epoch, now, 0);
    ok(ch.mark, "failures=0 is like 1");
}


static void
test_rapid_drops(void)
{
    int                  i, n;
    mcp_health_change_t  ch;

    fresh(MCP_PEER_CONNECTING);

    for (i = 0; i < 1000; i++) {
        ch = ev(MCP_EVENT_STREAM_CUT);
    }

    ok(h.charges == 1 && !ch.changed, "a thousand cuts at once: one charge");

    now += 999;
    ev(MCP_EVENT_STREAM_CUT);
    is_int(h.charges, 1, "... within one backoff step");

    now += 1;
    ev(MCP_EVENT_STREAM_CUT);
    is_int(h.charges, 2, "the next step, the next charge");

    now += 1999;
    ev(MCP_EVENT_STREAM_CUT);
    is_int(h.charges, 2, "that step is twice as long");

    fresh(MCP_PEER_CONNECTING);
    ev(MCP_EVENT_PROOF);
    ev(MCP_EVENT_FAILURE);
    ev(MCP_EVENT_REACH);

    for (n = 0; h.state == MCP_PEER_CONNECTING && n < 100; n++) {
        now += 100000;
        ch = ev(MCP_EVENT_STREAM_CUT);
        ok(!ch.mark, "a cut alone never marks");
    }

    ok(n == 6 && h.state == MCP_PEER_PARKED && h.parks == 1
       && h.charges == 6,
       "4.2: flapping parks within the budget, budget + 1 drops");

    fresh(MCP_PEER_CONNECTED);

    for (i = 0; i < 20; i++) {
        ev(MCP_EVENT_STREAM_CUT);
        ev(MCP_EVENT_FAILURE);
        now += 5000;
        ev(MCP_EVENT_REACH);
        ev(MCP_EVENT_STREAM_CUT);
        now += 5000;
        ch = ev(MCP_EVENT_PROOF);
    }

    ok(h.parks == 0 && h.charges == 0 && h.reconnects == 20,
       "4.2: a proven peer never burns its budget");

    fresh(MCP_PEER_DEGRADED);

    for (i = 0; i < 4; i++) {
        ev(MCP_EVENT_ATTEMPT_FAILED);
    }

    is_int(h.charges, 4, "4.2: four charges");
    ch = ev(MCP_EVENT_PROOF);
    ok(h.charges == 0 && ch.changed, "4.2: proof clears the budget, 4 to 0");

    ch = ev(MCP_EVENT_PROOF);
    ok(!ch.changed && !ch.was_parked, "4.3: the second proof is silent");

    start(0);
    ok(!h.proven, "4.2: a fresh peer is not proven");
    ev(MCP_EVENT_REACH);
    ok(!h.proven && h.state == MCP_PEER_CONNECTING,
       "4.2: nor is one that was only reached, by a handshake");
}


/* reached again and again, and never an answer: this must end parked */

static void
test_reach_and_fail(void)
{
    int                  n;
    uint64_t             first;
    mcp_health_change_t  ch;

    fresh(MCP_PEER_DEGRADED);
    first = now;

    for (n = 0; n < 100 && h.state != MCP_PEER_PARKED; n++) {
        now = h.next_attempt_ms;
        ch = ev(MCP_EVENT_REACH);
        ok(ch.to == MCP_PEER_CONNECTING && h.charges == (uint32_t) n,
           "reached: connecting, charges kept");

        ch = ev(MCP_EVENT_FAILURE);
        ok(ch.mark && ch.changed, "failed again: marked again");
    }

    ok(n == 6 && h.parks == 1 && now - first == 31000,
       "reach and failure in turn spend the budget with its backoff");

    now = h.next_attempt_ms;
    ev(MCP_EVENT_REACH);
    ch = ev(MCP_EVENT_ATTEMPT_FAILED);
    ok(ch.to == MCP_PEER_PARKED && h.charges == 6 && h.parks == 2
       && ch.was_parked && h.next_attempt_ms == now + 600000,
       "a parked peer that is only reached is parked again, for longer");

    fresh(MCP_PEER_DEGRADED);

    for (n = 0; n < 100 && h.state != MCP_PEER_PARKED; n++) {
        ev(MCP_EVENT_REACH);
        ev(MCP_EVENT_FAILURE);

        if (h.state == MCP_PEER_DEGRADED) {
            ev(MCP_EVENT_ATTEMPT_FAILED);
        }
    }

    ok(h.state == MCP_PEER_PARKED && n == 3, "so do failed attempts between");
}


static void
test_attempts(void)
{
    fresh(MCP_PEER_DEGRADED);
    ok(mcp_health_attempt_due(&h, now), "4.4: the first attempt is at once");

    mcp_health_attempt(&h, now, 35000);
    ok(!mcp_health_attempt_due(&h, now + 34999)
       && mcp_health_attempt_due(&h, now + 35000) && h.attempts == 1,
       "an attempt is leased, and free again if its taker dies");

    ev(MCP_EVENT_ATTEMPT_FAILED);
    is_int(h.next_attempt_ms, now + 1000, "its outcome ends the lease");

    mcp_health_attempt(&h, UINT64_MAX - 5, 35000);
    ok(h.next_attempt_ms == UINT64_MAX, "saturated");

    fresh(MCP_PEER_CONNECTED);
    ok(!mcp_health_attempt_due(&h, UINT64_MAX), "connected: none is due");
    fresh(MCP_PEER_CONNECTING);
    ok(!mcp_health_attempt_due(&h, UINT64_MAX), "connecting: none is due");
    fresh(MCP_PEER_PARKED);
    ok(mcp_health_attempt_due(&h, h.next_attempt_ms), "parked: one is due");
}


static void
test_jitter(void)
{
    int       good, varies;
    size_t    i, k, m;
    uint64_t  n, v, low, high;

    static const uint32_t  randoms[] = {
        0, 1, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 12345678
    };

    static const uint64_t  intervals[] = {
        0, 1, 4, 5, 99, 100, 180000, UINT32_MAX, UINT64_MAX / 2,
        UINT64_MAX / 100 * 100, UINT64_MAX - 1, UINT64_MAX
    };

    static const uint32_t  percents[] = { 0, 1, 20, 50, 100, 101, UINT32_MAX };

    good = 1;

    for (i = 0; i < sizeof(intervals) / sizeof(intervals[0]); i++) {
        for (k = 0; k < sizeof(percents) / sizeof(percents[0]); k++) {
            for (m = 0; m < sizeof(randoms) / sizeof(randoms[0]); m++) {

                n = intervals[i];
                v = (uint64_t) ((unsigned __int128) n
                                * (percents[k] > 100 ? 100 : percents[k])
                                / 100);
                low = n - v;
                high = (n > UINT64_MAX - v) ? UINT64_MAX : n + v;

                v = mcp_health_jitter(n, percents[k], randoms[m]);
                good &= (v >= low && v <= high);
            }
        }
    }

    ok(good, "4.3: jitter within its bounds, never negative");

    is_int(mcp_health_jitter(0, 20, 0xffffffff), 0, "4.3: zero stays zero");
    is_int(mcp_health_jitter(180000, 20, 0), 144000, "the lower end");
    is_int(mcp_health_jitter(180000, 20, 0x80000000), 180000, "the middle");
    is_int(mcp_health_jitter(180000, 20, 0xffffffff), 215999, "the upper end");
    is_int(mcp_health_jitter(180000, 0, 7), 180000, "no jitter");

    varies = 0;

    for (i = 1; i < 100; i++) {
        varies += mcp_health_jitter(180000, 20, (uint32_t) (i * 42949673))
                  != mcp_health_jitter(180000, 20,
                                       (uint32_t) ((i - 1) * 42949673));
    }

    is_int(varies, 99, "4.3: it varies");
}


static void
test_late_times(void)
{
    mcp_health_conf_t  big;

    start(UINT64_MAX - 10);
    ev(MCP_EVENT_FAILURE);
    ok(mcp_health_attempt_due(&h, now), "near the end of time: due at once");

    ev(MCP_EVENT_ATTEMPT_FAILED);
    ok(h.next_attempt_ms == UINT64_MAX, "a delay does not wrap");

    while (h.state != MCP_PEER_PARKED) {
        ev(MCP_EVENT_ATTEMPT_FAILED);
    }

    ok(h.next_attempt_ms == UINT64_MAX, "nor does a park");

    start(UINT64_MAX);
    ev(MCP_EVENT_STREAM_CUT);
    ok(h.drop_until_ms == UINT64_MAX, "nor do drops");

    big = conf;
    big.backoff_ms = UINT64_MAX / 3;
    big.backoff_max_ms = UINT64_MAX;
    big.park_ms = UINT64_MAX / 3;
    big.park_max_ms = UINT64_MAX;
    big.budget = big.initial = UINT32_MAX;

    start(0);
    mcp_health_event(&h, &big, MCP_EVENT_FAILURE, h.epoch, 0, 0);
    h.charges = UINT32_MAX - 1;
    mcp_health_event(&h, &big, MCP_EVENT_ATTEMPT_FAILED, h.epoch, 0, 0);
    ok(h.charges == UINT32_MAX && h.next_attempt_ms == UINT64_MAX,
       "a doubled delay does not wrap");

    mcp_health_event(&h, &big, MCP_EVENT_ATTEMPT_FAILED, h.epoch, 0, 0);
    ok(h.state == MCP_PEER_PARKED && h.charges == UINT32_MAX,
       "nor do charges");

    mcp_health_event(&h, &big, MCP_EVENT_ATTEMPT_FAILED, h.epoch, 0, 0);
    mcp_health_event(&h, &big, MCP_EVENT_ATTEMPT_FAILED, h.epoch, 0, 0);
    ok(h.park_period_ms == UINT64_MAX, "nor does the park period");

    big.park_max_ms = 1;
    start(0);
    mcp_health_event(&h, &big, MCP_EVENT_FAILURE, h.epoch, 0, 0);
    h.charges = UINT32_MAX;
    mcp_health_event(&h, &big, MCP_EVENT_ATTEMPT_FAILED, h.epoch, 0, 0);
    mcp_health_event(&h, &big, MCP_EVENT_ATTEMPT_FAILED, h.epoch, 0, 0);
    ok(h.park_period_ms == UINT64_MAX / 3, "park_max is park at least");

    big.backoff_ms = 0;
    start(5);
    mcp_health_event(&h, &big, MCP_EVENT_FAILURE, h.epoch, 5, 0);
    mcp_health_event(&h, &big, MCP_EVENT_ATTEMPT_FAILED, h.epoch, 5, 0);
    ok(h.next_attempt_ms == 5, "no backoff");
}


/*
 * The naive twin: the same rules, written as they are told in the
 * documentation, event by event, in floating point where that is easier.
 */

typedef struct {
    const char  *state;
    int          charges, fails, epoch, parks, reconnects;
    int          proven, marked, parked_before;
    double       next, period, drop_until;
} twin_t;


static double
twin_back(const mcp_health_conf_t *c, int charges)
{
    int     i;
    double  d;

    d = (double) c->backoff_ms;

    for (i = 1; i < charges; i++) {
        d *= 2;
    }

    return d > (double) c->backoff_max_ms ? (double) c->backoff_max_ms : d;
}


static void
twin_park(twin_t *t, const mcp_health_conf_t *c, double at)
{
    t->charges = (t->proven ? c->budget : c->initial) + 1;
    t->period = t->period ? t->period * 2 : (double) c->park_ms;

    if (t->period > (double) c->park_max_ms) {
        t->period = (double) c->park_max_ms;
    }

    t->next = at + t->period;

    if (strcmp(t->state, "parked") != 0) {
        t->state = "parked";
        t->parks++;
        t->parked_before = 1;
        t->drop_until = 0;
    }
}


static void
twin_charge(twin_t *t, const mcp_health_conf_t *c, double at)
{
    int  limit;

    limit = t->proven ? c->budget : c->initial;

    if (t->charges + 1 > limit) {
        twin_park(t, c, at);
        return;
    }

    t->charges++;
    t->state = "degraded";
    t->next = at + twin_back(c, t->charges);
}


static void
twin_mark(twin_t *t, const mcp_health_conf_t *c, double at)
{
    int  before;

    before = t->marked;

    t->epoch++;
    t->marked = 1;
    t->fails = 0;

    if (strcmp(t->state, "connecting") == 0 && before) {
        twin_charge(t, c, at);
        return;
    }

    t->state = "degraded";
    t->next = at;
}


static void
twin_event(twin_t *t, const mcp_health_conf_t *c, mcp_event_t event,
    double at)
{
    int  limit;

    limit = t->proven ? c->budget : c->initial;

    if (event == MCP_EVENT_PROOF) {
        if (strcmp(t->state, "connected") != 0 && t->marked) {
            t->reconnects++;
        }

        t->state = "connected";
        t->charges = t->fails = t->marked = t->parked_before = 0;
        t->next = t->period = t->drop_until = 0;
        t->proven = 1;
        return;
    }

    if (strcmp(t->state, "connected") == 0) {
        if (event == MCP_EVENT_FAILURE || event == MCP_EVENT_ATTEMPT_FAILED) {
            if (++t->fails >= (int) c->failures) {
                twin_mark(t, c, at);
            }
        }

    } else if (strcmp(t->state, "connecting") == 0) {
        if (event == MCP_EVENT_FAILURE || event == MCP_EVENT_ATTEMPT_FAILED) {
            twin_mark(t, c, at);

        } else if (event == MCP_EVENT_STREAM_CUT && at >= t->drop_until) {
            if (t->charges + 1 > limit) {
                twin_park(t, c, at);

            } else {
                t->charges++;
                t->drop_until = at + twin_back(c, t->charges);
            }
        }

    } else if (event == MCP_EVENT_REACH) {
        t->state = "connecting";
        t->next = 0;

    } else if (event == MCP_EVENT_ATTEMPT_FAILED) {
        if (strcmp(t->state, "parked") == 0) {
            twin_park(t, c, at);

        } else {
            twin_charge(t, c, at);
        }
    }
}


static uint32_t
noise(void)
{
    static uint32_t  x = 2463534242u;

    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;

    return x;
}


static void
test_twin(void)
{
    int                  bad, states[4];
    long                 i;
    twin_t               t;
    uint32_t             r, epoch;
    mcp_event_t          event;
    mcp_health_conf_t    c;
    mcp_health_change_t  ch;

    bad = 0;
    memset(states, 0, sizeof(states));
    c = conf;

    for (i = 0; i < ROUNDS && bad == 0; i++) {

        if (i % 200 == 0) {
            start(noise());
            memset(&t, 0, sizeof(t));
            t.state = "connecting";

            c.failures = 1 + noise() % 3;
            c.initial = noise() % 5;
            c.budget = noise() % 8;
            c.backoff_ms = noise() % 3000;
            c.backoff_max_ms = noise() % 60000;
            c.park_ms = noise() % 300000;
            c.park_max_ms = c.park_ms + noise() % 3600000;
        }

        r = noise() % 100;
        event = (r < 4) ? MCP_EVENT_PROOF
                : (r < 20) ? MCP_EVENT_REACH
                : (r < 40) ? MCP_EVENT_FAILURE
                : (r < 70) ? MCP_EVENT_ATTEMPT_FAILED : MCP_EVENT_STREAM_CUT;

        now += noise() % 2000;
        epoch = h.epoch - (noise() % 10 == 0);

        ch = mcp_health_event(&h, &c, event, epoch, now, noise());

        if (epoch == h.epoch - ch.mark) {
            twin_event(&t, &c, event, (double) now);
        }

        states[h.state]++;

        bad = strcmp(t.state, mcp_health_state_name(h.state)) != 0
              || t.charges != (int) h.charges || t.fails != (int) h.failures
              || (uint32_t) t.epoch != h.epoch || t.parks != (int) h.parks
              || t.reconnects != (int) h.reconnects
              || t.proven != (int) h.proven || t.marked != (int) h.marked
              || t.parked_before != (int) h.was_parked
              || t.next != (double) h.next_attempt_ms
              || t.period != (double) h.park_period_ms
              || t.drop_until != (double) h.drop_until_ms;

        if (bad) {
            printf("# %ld: event %d: %s/%s, charges %d/%u, next %.0f/%llu\n",
                   i, event, t.state, mcp_health_state_name(h.state),
                   t.charges, h.charges, t.next,
                   (unsigned long long) h.next_attempt_ms);
        }
    }

    ok(bad == 0, "10^6 random events: the same as the naive twin");
    ok(states[0] > 10000 && states[1] > 10000 && states[2] > 10000
       && states[3] > 10000, "every state was met often");
}


/* back after a mark, and not proven: little goes there */

static void
test_trial(void)
{
    start(0);
    ok(!mcp_health_trial(&h), "connecting since the start: no trial");

    ev(MCP_EVENT_PROOF);
    ok(!mcp_health_trial(&h), "connected: no trial");

    ev(MCP_EVENT_FAILURE);
    ok(!mcp_health_trial(&h), "degraded: no trial");

    ev(MCP_EVENT_REACH);
    ok(mcp_health_trial(&h), "reached after the mark: on trial");

    ok(mcp_health_admit(&h, 5000), "the first one is admitted");
    ok(!mcp_health_admit(&h, 5000) && !mcp_health_admit(&h, 5999),
       "no other one in the same second");
    ok(mcp_health_admit(&h, 6000), "the next one a second later");
    ok(!mcp_health_admit(&h, 6999), "and again");

    ev(MCP_EVENT_PROOF);
    ok(!mcp_health_trial(&h), "proven: no trial");

    ok(mcp_health_admit(&h, UINT64_MAX - 1), "late in time");
    ok(!mcp_health_admit(&h, UINT64_MAX - 1), "no overflow");
}


int
main(void)
{
    start(77);
    ok(h.state == MCP_PEER_CONNECTING && h.since_ms == 77 && h.epoch == 0
       && h.charges == 0 && h.next_attempt_ms == 0 && !h.proven,
       "a peer never heard of");

    test_cells();
    test_ladder();
    test_initial();
    test_failures();
    test_rapid_drops();
    test_reach_and_fail();
    test_attempts();
    test_jitter();
    test_late_times();
    test_trial();
    test_twin();

    is_str(mcp_health_state_name(MCP_PEER_CONNECTING), "connecting", "a name");
    is_str(mcp_health_state_name(MCP_PEER_CONNECTED), "connected", "a name");
    is_str(mcp_health_state_name(MCP_PEER_DEGRADED), "degraded", "a name");
    is_str(mcp_health_state_name(MCP_PEER_PARKED), "parked", "a name");
    is_str(mcp_health_state_name((mcp_peer_state_t) 9), "unknown", "no name");

    return tap_done();
}
