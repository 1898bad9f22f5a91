
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"
#include "mcp_sse.h"


/*
 * The samples, what they hold ("<data>" per event, "<data>!" if cut), and where
 * bytes may be put in: one character per byte position 0 .. length.
 */

typedef struct {
    const char  *name;
    const char  *input;
    const char  *events;
    const char  *boundaries;
} sample_t;


static const sample_t  samples[] = {

    { "LF", "data: a\n\n", "<a>", "1000000001" },
    { "B84: CR LF", "data: a\r\n\r\n", "<a>", "100000000001" },
    { "B84: lone CR", "data: a\r\r", "<a>", "1000000001" },
    { "LF, then CR LF", "data:a\n\r\n", "<a>", "1000000001" },
    { "CR LF, then LF", "data:a\r\n\n", "<a>", "1000000001" },
    { "CR LF, then a CR alone", "data:a\r\n\r", "<a>", "1000000000" },
    { "CR, then CR LF", "data:a\r\r\n", "<a>", "1000000011" },
    { "LF, then CR, then a line", "x\n\ry\n\n", "", "1000001" },
    { "CR CR CR", "data:a\r\r\r", "<a>", "1000000011" },
    { "empty lines only", "\n\n\r\n", "", "11101" },
    { "a CR at the very start", "\r\r", "", "101" },
    { "no stream at all", "", "", "1" },
    { "two events", "data:a\n\ndata:b\n\n", "<a><b>", "10000000100000001" },
    { "no blank line, no event", "data: a\n", "", "100000000" },
    { "B86: several data lines", "data: a\ndata:  b\ndata\n\n", "<a\n b\n>",
      NULL },
    { "one space is dropped, not two", "data:  a \n\n", "< a >", NULL },
    { "a tab is not dropped", "data:\ta\n\n", "<\ta>", NULL },
    { "a colon in the value", "data:a:b: c\n\n", "<a:b: c>", NULL },
    { "B89: a priming event", "id: 0\nretry: 3000\ndata:\n\n", "<>", NULL },
    { "a priming event with a space", "id: x_2\ndata: \n\n", "<>", NULL },
    { "data without a colon", "data\n\n", "<>", NULL },
    { "two empty data lines", "data\ndata:\n\n", "<\n>", NULL },
    { "B90: a named event", "event: ping\ndata: ping - 12:00\n\n",
      "<ping - 12:00>", NULL },
    { "comments", ": hb\n\n:\n\n:data: x\n\ndata:a\n\n", "<a>", NULL },
    { "B93: a comment between an event's lines", "data:a\n: hb\ndata:b\n\n",
      "<a\nb>", NULL },
    { "retry alone", "retry: 3000\n\n", "", "10000000000001" },
    { "an id alone makes no event", "id: 7\n\n", "", NULL },
    { "other fields", "datax: 1\ndat: 2\n data: 3\nDATA: 4\nd: 5\n\n", "",
      NULL },
    { "a long field name", "datadatadatadata: 1\ndata:a\n\n", "<a>", NULL },
    { "a field name of eight", "datadata: 1\ndatadata\n\n", "", NULL },
    { "B98: a BOM", "\xef\xbb\xbf" "data: a\n\n", "<a>", "1001000000001" },
    { "B98: two BOMs", "\xef\xbb\xbf\xef\xbb\xbf" "data: a\n\n", "", NULL },
    { "a BOM later", "data:a\n\n\xef\xbb\xbf" "data: b\n\n", "<a>", NULL },
    { "half a BOM", "\xef\xbb" "data: a\n\n", "", NULL },
    { "half a BOM and a line end", "\xef\ndata: a\n\n", "<a>", NULL },
    { "half a BOM, again", "\xef\xef\xbb\xbf" "data:a\n\ndata:b\n\n", "<b>",
      NULL },
    { "a BOM and a blank line", "\xef\xbb\xbf\n", "", "10011" },
    { "B87: no line ends",
      "data:\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\x85\x0b\f\n\n",
      "<\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\x85\x0b\f>", NULL },
    { "B86: a character of three bytes", "data: \xe5\x8c\x97\n\n",
      "<\xe5\x8c\x97>", NULL },
    { "exactly as long as the buffer", "data: 0123456789abcdef\n\n",
      "<0123456789abcdef>", NULL },
    { "one byte more", "data: 0123456789abcdefg\n\ndata:a\n\n",
      "<0123456789abcdef!><a>", NULL },
    { "the joining LF is the byte too many",
      "data:0123456789abcdef\ndata\n\ndata:a\n\n", "<0123456789abcdef!><a>",
      NULL },
    { "a mixture",
      "data:1\r\n\r\ndata:2\r\rdata:3\n\ndata:4\r\ndata:5\rdata:6\n\r\n",
      "<1><2><3><4\n5\n6>", NULL },
};


/* Feeds pieces that end at "cut" and at "cut2"; writes what came. */

static void
run(const char *input, size_t len, size_t cut, size_t cut2, size_t size,
    char *out, char *bounds)
{
    size_t                i, ends[3];
    mcp_sse_t             s;
    mcp_sse_rc_t          rc;
    unsigned char         buf[64];
    const unsigned char  *p, *last;

    mcp_sse_init(&s, size ? buf : NULL, size);

    ends[0] = cut;
    ends[1] = cut2;
    ends[2] = len;

    *bounds++ = '0' + mcp_sse_at_boundary(&s);

    for (i = 0; i < 3; i++) {
        cut = (i == 0) ? 0 : ends[i - 1];

        p = tap_edge(input + cut, ends[i] - cut);
        last = p + (ends[i] - cut);

        do {
            rc = mcp_sse_feed(&s, &p, last);

            if (rc != MCP_SSE_AGAIN) {
                out += sprintf(out, "<%.*s%s>", (int) s.len,
                               (char *) s.data,
                               rc == MCP_SSE_TOO_BIG ? "!" : "");
            }

        } while (rc != MCP_SSE_AGAIN);

        if (p != last) {
            out += sprintf(out, "[input left]");
        }
    }

    bounds[-1] = '0' + mcp_sse_at_boundary(&s);
    *bounds = '\0';
    *out = '\0';
}


static void
test_sample(const sample_t *t)
{
    int     good;
    char    out[256], bound[2], bounds[256], name[128];
    size_t  i, j, len;

    len = strlen(t->input);

    run(t->input, len, len, len, 16, out, bound);
    is_str(out, t->events, t->name);

    good = 1;

    for (i = 0; i <= len; i++) {
        for (j = i; j <= len; j++) {
            run(t->input, len, i, j, 16, out, bound);
            good &= (strcmp(out, t->events) == 0);
        }
    }

    snprintf(name, sizeof(name), "%s: split anywhere", t->name);
    ok(good, name);

    for (i = 0; i <= len; i++) {
        run(t->input, i, i / 2, i / 2, 16, out, bound);
        bounds[i] = bound[0];

        /* without a buffer the boundaries are the same, and no event comes */

        run(t->input, i, i / 2, i / 2, 0, out, bound);

        if (out[0] != '\0' || bounds[i] != bound[0]) {
            bounds[i] = '?';
        }
    }

    bounds[i] = '\0';

    if (t->boundaries != NULL) {
        snprintf(name, sizeof(name), "%s: boundaries", t->name);
        is_str(bounds, t->boundaries, name);
    }

    ok(strchr(bounds, '?') == NULL, "boundaries without a buffer");
}


/* Something put in at a boundary changes no event. */

static void
test_inserted(void)
{
    int              good;
    char             out[256], bound[2], mixed[256];
    size_t           i, k, len;
    const sample_t  *t;

    good = 1;

    for (k = 0; k < sizeof(samples) / sizeof(samples[0]); k++) {
        t = &samples[k];
        len = strlen(t->input);

        /* at the very start nobody can know that a BOM will follow */

        for (i = (t->input[0] == '\xef'); i <= len; i++) {
            run(t->input, i, i, i, 16, out, bound);

            if (bound[0] != '1') {
                continue;
            }

            len = sprintf(mixed, "%.*s:\n\n%s", (int) i, t->input,
                          t->input + i);
            run(mixed, len, len, len, 16, out, bound);
            len = strlen(t->input);

            if (strcmp(out, t->events) != 0) {
                printf("# %s at %zu: %s\n", t->name, i, out);
                good = 0;
            }
        }
    }

    ok(good, "B92: a heartbeat at any boundary changes no event");
}


static void
test_move(void)
{
    mcp_sse_t             s;
    unsigned char         small[4], large[16];
    const unsigned char  *p;

    mcp_sse_init(&s, small, sizeof(small));

    p = tap_edge("data: ab", 8);
    mcp_sse_feed(&s, &p, p + 8);

    memcpy(large, small, s.len);
    mcp_sse_move(&s, large, sizeof(large));

    p = tap_edge("cdef\n\n", 6);
    is_int(mcp_sse_feed(&s, &p, p + 6), MCP_SSE_EVENT, "a larger buffer");
    ok(s.len == 6 && memcmp(s.data, "abcdef", 6) == 0, "all data is there");

    p = tap_edge("data: abcdef", 12);
    mcp_sse_feed(&s, &p, p + 12);
    mcp_sse_move(&s, large, 3);

    p = tap_edge("\n\n", 2);
    is_int(mcp_sse_feed(&s, &p, p + 2), MCP_SSE_TOO_BIG, "a smaller buffer");
    is_int(s.len, 3, "the data is cut");

    p = tap_edge("data: abc", 9);
    mcp_sse_feed(&s, &p, p + 9);
    mcp_sse_move(&s, NULL, 9);

    p = tap_edge("\n\n", 2);
    is_int(mcp_sse_feed(&s, &p, p + 2), MCP_SSE_AGAIN, "no buffer, no event");
    is_int(mcp_sse_at_boundary(&s), 1, "but a boundary");
}


int
main(void)
{
    size_t  i;

    for (i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        test_sample(&samples[i]);
    }

    test_inserted();
    test_move();

    return tap_done();
}
