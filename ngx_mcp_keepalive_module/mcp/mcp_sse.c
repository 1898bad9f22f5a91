
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_sse.h"


enum {
    SSE_BOM = 0,                /* nothing but a part of a BOM was read */
    SSE_NAME,                   /* at the start of a line or in a field name */
    SSE_COLON,                  /* after "data:", where one space is dropped */
    SSE_DATA,
    SSE_SKIP                    /* the rest of the line does not matter */
};


static mcp_sse_rc_t mcp_sse_clean(mcp_sse_t *s);
static const unsigned char *mcp_sse_name(mcp_sse_t *s, const unsigned char *p,
    const unsigned char *last);
static const unsigned char *mcp_sse_data(mcp_sse_t *s, const unsigned char *p,
    const unsigned char *last);
static const unsigned char *mcp_sse_line_end(const unsigned char *p,
    const unsigned char *last);
static void mcp_sse_append(mcp_sse_t *s, const unsigned char *p, size_t n);
static void mcp_sse_data_line(mcp_sse_t *s);
static mcp_sse_rc_t mcp_sse_newline(mcp_sse_t *s, unsigned char ch);


static const unsigned char  mcp_sse_bom[] = { 0xef, 0xbb, 0xbf };


void
mcp_sse_init(mcp_sse_t *s, unsigned char *buf, size_t size)
{
    memset(s, 0, sizeof(mcp_sse_t));

    s->data = buf;
    s->size = (buf == NULL) ? 0 : size;
    s->state = SSE_BOM;
    s->boundary = 1;
}


void
mcp_sse_move(mcp_sse_t *s, unsigned char *buf, size_t size)
{
    s->data = buf;
    s->size = (buf == NULL) ? 0 : size;

    if (s->len > s->size) {
        s->len = s->size;
        s->cut = 1;
    }
}


mcp_sse_rc_t
mcp_sse_feed(mcp_sse_t *s, const unsigned char **pos,
    const unsigned char *last)
{
    mcp_sse_rc_t          rc;
    const unsigned char  *p;

    if (s->fresh) {
        mcp_sse_clean(s);
    }

    for (p = *pos; p < last; /* void */) {

        if (*p == '\n' || *p == '\r') {
            rc = mcp_sse_newline(s, *p++);

            if (rc != MCP_SSE_AGAIN) {
                *pos = p;
                return rc;
            }

            continue;
        }

        s->cr = 0;
        s->boundary = 0;

        switch (s->state) {

        case SSE_BOM:
        case SSE_NAME:
            p = mcp_sse_name(s, p, last);
            break;

        case SSE_COLON:
            s->state = SSE_DATA;
            p += (*p == ' ');
            break;

        case SSE_DATA:
            p = mcp_sse_data(s, p, last);
            break;

        default: /* SSE_SKIP */
            p = mcp_sse_line_end(p, last);
        }
    }

    *pos = p;

    return MCP_SSE_AGAIN;
}


int
mcp_sse_at_boundary(const mcp_sse_t *s)
{
    return s->boundary;
}


static mcp_sse_rc_t
mcp_sse_clean(mcp_sse_t *s)
{
    s->len = 0;
    s->has_data = 0;
    s->cut = 0;
    s->fresh = 0;

    return MCP_SSE_AGAIN;
}


static const unsigned char *
mcp_sse_name(mcp_sse_t *s, const unsigned char *p, const unsigned char *last)
{
    if (s->state == SSE_BOM) {

        if (*p == mcp_sse_bom[s->bom]) {

            if (++s->bom == sizeof(mcp_sse_bom)) {
                s->state = SSE_NAME;
                s->boundary = 1;
            }

            return p + 1;
        }

        /* the bytes that only looked like a BOM belong to a field name */

        s->state = s->bom ? SSE_SKIP : SSE_NAME;

        return p;
    }

    for ( /* void */ ; p < last && *p != '\n' && *p != '\r'; p++) {

        if (*p == ':') {
            if (s->name_len == 4 && memcmp(s->name, "data", 4) == 0) {
                mcp_sse_data_line(s);
                s->state = SSE_COLON;

            } else {
                s->state = SSE_SKIP;
            }

            return p + 1;
        }

        if (s->name_len == sizeof(s->name)) {
            s->state = SSE_SKIP;
            return p;
        }

        s->name[s->name_len++] = *p;
    }

    return p;
}


static const unsigned char *
mcp_sse_data(mcp_sse_t *s, const unsigned char *p, const unsigned char *last)
{
    const unsigned char  *end;

    end = mcp_sse_line_end(p, last);

    mcp_sse_append(s, p, end - p);

    return end;
}


static const unsigned char *
mcp_sse_line_end(const unsigned char *p, const unsigned char *last)
{
    while (p < last && *p != '\n' && *p != '\r') {
        p++;
    }

    return p;
}


static void
mcp_sse_append(mcp_sse_t *s, const unsigned char *p, size_t n)
{
    if (n > s->size - s->len) {
        n = s->size - s->len;
        s->cut = 1;
    }

    if (n != 0) {
        memcpy(s->data + s->len, p, n);
        s->len += n;
    }
}


static void
mcp_sse_data_line(mcp_sse_t *s)
{
    if (s->has_data) {
        mcp_sse_append(s, (const unsigned char *) "\n", 1);
    }

    s->has_data = 1;
}


static mcp_sse_rc_t
mcp_sse_newline(mcp_sse_t *s, unsigned char ch)
{
    int  empty;

    if (ch == '\n' && s->cr) {

        /* the second half of CR LF; the line was dealt with at its CR */

        s->cr = 0;
        s->boundary = s->blank;

        return MCP_SSE_AGAIN;
    }

    if (s->state == SSE_BOM && s->bom != 0) {
        s->state = SSE_SKIP;
    }

    empty = (s->state <= SSE_NAME && s->name_len == 0);

    if (s->state == SSE_NAME && s->name_len == 4
        && memcmp(s->name, "data", 4) == 0)
    {
        mcp_sse_data_line(s);
    }

    /*
     * An empty line that ends in CR may still get its LF, and nothing may come
     * between the two; only after CR CR is the stream taken for one of lone
     * CRs, where no LF will ever come.
     */

    s->boundary = empty && (ch == '\n' || s->cr);
    s->blank = empty;
    s->cr = (ch == '\r');
    s->state = SSE_NAME;
    s->name_len = 0;

    if (!empty || !s->has_data) {
        return MCP_SSE_AGAIN;
    }

    s->fresh = 1;

    if (s->data == NULL) {
        return mcp_sse_clean(s);
    }

    return s->cut ? MCP_SSE_TOO_BIG : MCP_SSE_EVENT;
}
