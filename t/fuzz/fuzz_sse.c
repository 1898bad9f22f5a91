
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Event streams.  The first byte is the size of the buffer, the second one
 * seeds the splits, the rest is the stream.
 */


#include "fuzz.h"
#include "mcp_sse.h"


#define STREAM_MAX  4096


/* What came of a stream: its events one after another, each with an end. */

typedef struct {
    size_t      events;
    size_t      len;
    uint8_t     data[2 * STREAM_MAX + 64];
} seen_t;


typedef struct {
    size_t      at;                     /* a position, and is it a boundary */
    int         boundary;
} mark_t;


/*
 * The naive twin, after the letter of the specification: the whole stream is
 * cut into lines, a line into field and value.
 */

static void
twin_event(seen_t *seen, const uint8_t *data, size_t len, size_t size)
{
    int  cut;

    cut = len > size;
    len = cut ? size : len;

    memcpy(seen->data + seen->len, data, len);
    seen->len += len;
    seen->data[seen->len++] = cut ? '!' : ';';
    seen->events++;
}


static void
twin(seen_t *seen, const uint8_t *p, size_t len, size_t size)
{
    int             any;
    size_t          n, value, name, kept;
    const uint8_t  *last;

    static uint8_t  data[STREAM_MAX];

    seen->events = 0;
    seen->len = 0;

    last = p + len;
    any = 0;
    kept = 0;

    if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        p += 3;
    }

    for ( ;; ) {
        for (n = 0; p + n < last && p[n] != '\n' && p[n] != '\r'; n++) {
            /* void */
        }

        if (p + n == last) {
            return;                     /* a line without an end */
        }

        for (name = 0; name < n && p[name] != ':'; name++) {
            /* void */
        }

        value = name + (name < n);
        value += (value < n && p[value] == ' ');

        if (n == 0) {
            if (any) {
                twin_event(seen, data, kept, size);
            }

            any = 0;
            kept = 0;

        } else if (name == 4 && memcmp(p, "data", 4) == 0) {
            if (any) {
                data[kept++] = '\n';
            }

            memcpy(data + kept, p + value, n - value);
            kept += n - value;
            any = 1;
        }

        p += n;
        p += (p[0] == '\r' && p + 1 < last && p[1] == '\n') ? 2 : 1;
    }
}


/*
 * Feeds the stream in pieces up to "step" long (0: at once), to a scanner with
 * a buffer and to one without.  Marks the end of a piece, any.
 */

static void
scan(seen_t *seen, mark_t *mark, const uint8_t *data, size_t len, size_t size,
    uint32_t seed, uint32_t step)
{
    size_t          n, at;
    uint8_t        *buf, *piece;
    mcp_sse_t       s, bare;
    mcp_sse_rc_t    rc;
    const uint8_t  *p;

    seen->events = 0;
    seen->len = 0;

    buf = fuzz_copy(NULL, size);

    mcp_sse_init(&s, buf, size);
    mcp_sse_init(&bare, NULL, 0);

    for (at = 0; at < len; at += n) {

        n = step ? 1 + fuzz_random(&seed) % step : len;
        n = (n < len - at) ? n : len - at;

        piece = fuzz_copy(data + at, n);
        p = piece;

        while ((rc = mcp_sse_feed(&s, &p, piece + n)) != MCP_SSE_AGAIN) {

            FUZZ_CHECK(s.data == buf && s.len <= size);
            FUZZ_CHECK(rc == MCP_SSE_EVENT || s.len == size);
            FUZZ_CHECK(p > piece && p <= piece + n);
            FUZZ_CHECK(seen->len + s.len < sizeof(seen->data));

            memcpy(seen->data + seen->len, s.data, s.len);
            seen->len += s.len;
            seen->data[seen->len++] = (rc == MCP_SSE_EVENT) ? ';' : '!';
            seen->events++;
        }

        FUZZ_CHECK(p == piece + n);

        p = piece;
        FUZZ_CHECK(mcp_sse_feed(&bare, &p, piece + n) == MCP_SSE_AGAIN);
        FUZZ_CHECK(p == piece + n);
        FUZZ_CHECK(mcp_sse_at_boundary(&s) == mcp_sse_at_boundary(&bare));

        free(piece);

        if (fuzz_random(&seed) % 4 == 0 || at == 0) {
            mark->at = at + n;
            mark->boundary = mcp_sse_at_boundary(&s);
        }

        if (mcp_sse_at_boundary(&s)) {
            FUZZ_CHECK((at + n == 3 && data[0] == 0xef)
                       || data[at + n - 1] == '\n'
                       || data[at + n - 1] == '\r');
            mark->at = at + n;
            mark->boundary = 1;
        }
    }

    free(buf);
}


static int
same(const seen_t *a, const seen_t *b)
{
    return a->events == b->events && a->len == b->len
           && memcmp(a->data, b->data, a->len) == 0;
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t           room;
    mark_t           mark, other;
    uint32_t         seed;
    fuzz_input_t     in;

    static seen_t    whole, parts, naive;
    static uint8_t   mixed[STREAM_MAX + 3];

    in.p = data;
    in.last = data + size;

    room = 1 + fuzz_number(&in, 1);
    seed = 1 + (uint32_t) fuzz_number(&in, 1);
    size = in.last - in.p;

    if (size > STREAM_MAX) {
        return 0;
    }

    mark.at = 0;
    mark.boundary = 1;
    other = mark;

    scan(&whole, &other, in.p, size, room, seed, 0);
    scan(&parts, &other, in.p, size, room, seed, 1);
    FUZZ_CHECK(same(&whole, &parts));

    scan(&parts, &mark, in.p, size, room, seed, 7);
    FUZZ_CHECK(same(&whole, &parts));

    twin(&naive, in.p, size, room);
    FUZZ_CHECK(same(&whole, &naive));

    /* B92: a heartbeat at a boundary changes nothing that a client reads */

    if (mark.boundary && mark.at != 0) {
        memcpy(mixed, in.p, mark.at);
        memcpy(mixed + mark.at, ":\n\n", 3);
        memcpy(mixed + mark.at + 3, in.p + mark.at, size - mark.at);

        twin(&naive, mixed, size + 3, room);
        FUZZ_CHECK(same(&whole, &naive));

        scan(&parts, &other, mixed, size + 3, room, seed, 7);
        FUZZ_CHECK(same(&whole, &parts));
    }

    return 0;
}
