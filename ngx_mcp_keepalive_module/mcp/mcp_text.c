
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_text.h"


#define TEXT_SECRET_MIN  16     /* shorter words are no ids worth hiding */
#define TEXT_GAP_WORDS   4      /* a '*' stands for so many at most */
#define TEXT_SMALL_WORD  4      /* "id", "with", "has", "is" */


static size_t mcp_text_word(const char *p, const char *last, int *digit);
static int mcp_text_match(const char *start, const char *p, const char *last,
    const char *phrase);
static const char *mcp_text_skip_gap_word(const char *p, const char *last);
static char mcp_text_safe(char c);
static int mcp_text_alnum(char c);
static char mcp_text_lower(char c);


size_t
mcp_text_clean(char *dst, size_t size, const char *text, size_t len)
{
    size_t  i;

    if (size == 0) {
        return 0;
    }

    if (len > size - 1) {
        len = size - 1;
    }

    for (i = 0; i < len; i++) {
        dst[i] = mcp_text_safe(text[i]);
    }

    dst[len] = '\0';

    return len;
}


size_t
mcp_text_redact(char *dst, size_t size, const char *text, size_t len)
{
    int     digit, secret;
    size_t  i, n, word;

    if (size == 0) {
        return 0;
    }

    n = 0;
    secret = 0;

    for (i = 0; i < len && n < size - 1; /* void */) {

        word = mcp_text_word(text + i, text + len, &digit);

        if (word == 0) {
            dst[n++] = mcp_text_safe(text[i++]);
            continue;
        }

        if (secret || (word >= TEXT_SECRET_MIN && digit)) {
            n += mcp_text_clean(dst + n, size - n, "***", 3);

        } else {
            n += mcp_text_clean(dst + n, size - n, text + i, word);
        }

        secret = (word == 6 && mcp_text_find(text + i, word, "bearer"));
        i += word;
    }

    dst[n] = '\0';

    return n;
}


int
mcp_text_find(const char *text, size_t len, const char *phrase)
{
    const char  *p, *last;

    last = text + len;

    if (*phrase == '\0') {
        return 0;
    }

    for (p = text; p <= last; p++) {
        if (mcp_text_match(text, p, last, phrase)) {
            return 1;
        }
    }

    return 0;
}


int
mcp_text_find_any(const char *text, size_t len, const char *const *phrases)
{
    if (text == NULL || phrases == NULL) {
        return 0;
    }

    for ( /* void */ ; *phrases != NULL; phrases++) {
        if (mcp_text_find(text, len, *phrases)) {
            return 1;
        }
    }

    return 0;
}


/*
 * The length of the word at "p", 0 if none begins here.  The characters are
 * those of UUIDs, base64, JWTs and of name=value.
 */

static size_t
mcp_text_word(const char *p, const char *last, int *digit)
{
    const char  *start;

    start = p;
    *digit = 0;

    for ( /* void */ ; p < last; p++) {

        if (*p >= '0' && *p <= '9') {
            *digit = 1;
            continue;
        }

        if (!mcp_text_alnum(*p)
            && (*p == '\0' || strchr("-_.+/=~", *p) == NULL))
        {
            break;
        }
    }

    return p - start;
}


static int
mcp_text_match(const char *start, const char *p, const char *last,
    const char *phrase)
{
    int          words;
    const char  *from;

    from = p;

    for ( /* void */ ; *phrase != '\0'; phrase++) {

        if (*phrase == '*') {

            for (words = 0; p != NULL && words <= TEXT_GAP_WORDS; words++) {
                while (p < last && !mcp_text_alnum(*p)) {
                    p++;
                }

                if (p > start && !mcp_text_alnum(p[-1])
                    && mcp_text_match(start, p, last, phrase + 1))
                {
                    return 1;
                }

                p = mcp_text_skip_gap_word(p, last);
            }

            return 0;
        }

        if (*phrase == ' ') {

            if (p > start && p < last
                && mcp_text_alnum(*p) && mcp_text_alnum(p[-1]))
            {
                return 0;
            }

            /* at an edge of the phrase nothing is eaten but the edge is seen */

            if (p == from || phrase[1] == '\0') {
                continue;
            }

            if (p == last || mcp_text_alnum(*p)) {
                return 0;
            }

            while (p < last && !mcp_text_alnum(*p)) {
                p++;
            }

            continue;
        }

        if (p == last || mcp_text_lower(*p) != *phrase) {
            return 0;
        }

        p++;
    }

    return 1;
}


/*
 * Only small words and ids may stand in a gap, so that a sentence that happens
 * to hold both ends of a phrase is not taken for it.
 */

static const char *
mcp_text_skip_gap_word(const char *p, const char *last)
{
    int          id;
    const char  *start;

    start = p;
    id = 0;

    for ( /* void */ ; p < last; p++) {

        if ((*p >= '0' && *p <= '9') || *p == '-' || *p == '_') {
            id = 1;
            continue;
        }

        if (!mcp_text_alnum(*p)) {
            break;
        }
    }

    if (p == start || (!id && p - start > TEXT_SMALL_WORD)) {
        return NULL;
    }

    return p;
}


static char
mcp_text_safe(char c)
{
    if (c == '"') {
        return '\'';
    }

    return (c < 0x20 || c > 0x7e || c == '\\') ? '?' : c;
}


static int
mcp_text_alnum(char c)
{
    c = mcp_text_lower(c);

    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}


static char
mcp_text_lower(char c)
{
    return (c >= 'A' && c <= 'Z') ? (char) (c | 0x20) : c;
}
