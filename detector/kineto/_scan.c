/* A JSON array of whole trace events -> columns of numbers.

   It reads what intact traces hold, and nothing else: at the first byte that it does not know for
   certain it gives the block up, and the typed decoders in Python take it. So no damage is repaired
   here, no quirk of a writer is known here (the words come from Python), and the columns are those
   of the Python path to the last number.

   It works without the interpreter lock, without recursion, and reads no byte outside the block. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum {
    MAX_DEPTH = 60,      /* of nested values: one bit each */
    MAX_WORDS = 200,     /* keys, and categories, of one block */
    MAX_PROBES = 64,     /* of a hash table: names chosen to collide are left to Python's dict */
    MAX_SHAPES = 4,
    MAX_COLUMNS = 32,
    MAX_PURPOSES = 32,
    FIRST_SLOTS = 1024,
};

/* The columns that every row has; those of the arguments follow. */
enum { START, DUR, CATEGORY, NAME, TRACK, ARGUMENTS };

/* What an argument's value is. */
enum { INTEGER, VOLUME, WORD, TEXT };

/* The keys of an event that are looked at. */
enum { PH, CAT, TITLE, PID, TID, TS, DURATION, ARGS, OTHER_KEY };
static const char *const EVENT_KEYS[] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"};
#define BIT(i) (1u << (i))
#define WHOLE_ROW (BIT(PH) | BIT(TITLE) | BIT(PID) | BIT(TID) | BIT(TS) | BIT(DURATION))

/* What a phase is, beside the purposes (0 and up) that Python names. */
enum { ROW = -1, UNKNOWN = -2 };

static const int64_t LARGEST_US = 9000000000000000; /* int64 nanoseconds end a little later */
static const int64_t EXACT_US = (int64_t)1 << 43;   /* a float64 of microseconds keeps every ns */
static const int64_t FINE_US = (int64_t)1 << 33;    /* ... and a thousandth of one */

typedef struct {
    const char *text;
    size_t size;
} Span;

/* ---- Distinct texts, numbered in order of first sight ---- */

typedef struct {
    Span span;
    uint64_t hash;
    uint32_t extra; /* part of the identity: a thread's process */
    uint32_t next;  /* of a name: the one that followed it the last time */
} Entry;

typedef struct {
    Entry *entries;
    uint32_t *slots; /* number + 1; 0 is free */
    uint32_t count, mask;
} Table;

static uint64_t load(const char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* Up to eight bytes. */
static uint64_t load_few(const char *p, size_t size) {
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) word = word << 8 | (unsigned char)p[i];
    return word;
}

/* By words, of which the last two overlap. */
static int same(const char *a, const char *b, size_t size) {
    if (size < 8) return load_few(a, size) == load_few(b, size);
    for (size_t i = 0; i + 8 < size; i += 8)
        if (load(a + i) != load(b + i)) return 0;
    return load(a + size - 8) == load(b + size - 8);
}

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

static uint64_t hash_of(Span span, uint32_t extra) {
    uint64_t hash = mixed(span.size, extra);
    size_t i = 0;
    for (; i + 8 < span.size; i += 8) hash = mixed(hash, load(span.text + i));
    hash = mixed(hash, span.size < 8 ? load_few(span.text, span.size) : load(span.text + span.size - 8));
    return mixed(hash, 0); /* the last letters reach the lowest bits only now */
}

static int table_open(Table *table) {
    table->count = 0;
    table->mask = FIRST_SLOTS - 1;
    table->slots = calloc(FIRST_SLOTS, sizeof *table->slots);
    table->entries = malloc(FIRST_SLOTS / 2 * sizeof *table->entries);
    return table->slots && table->entries;
}

static void table_close(Table *table) {
    free(table->slots);
    free(table->entries);
}

static int table_grow(Table *table) {
    size_t size = 2 * ((size_t)table->mask + 1);
    if (size > (size_t)1 << 28) return 0;
    Entry *entries = realloc(table->entries, size / 2 * sizeof *entries);
    if (!entries) return 0;
    table->entries = entries;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (!slots) return 0;
    free(table->slots);
    table->slots = slots;
    table->mask = (uint32_t)(size - 1);
    for (uint32_t number = 0; number < table->count; number++) {
        uint32_t at = (uint32_t)entries[number].hash & table->mask;
        while (slots[at]) at = (at + 1) & table->mask;
        slots[at] = number + 1;
    }
    return 1;
}

/* The number of a text; -1 where memory is short, or too many texts want one place. */
static int32_t number_of(Table *table, Span span, uint32_t extra) {
    uint64_t hash = hash_of(span, extra);
    uint32_t at = (uint32_t)hash & table->mask;
    for (int probes = 0; table->slots[at]; at = (at + 1) & table->mask) {
        Entry *entry = &table->entries[table->slots[at] - 1];
        if (entry->hash == hash && entry->extra == extra && entry->span.size == span.size &&
            same(entry->span.text, span.text, span.size))
            return (int32_t)table->slots[at] - 1;
        if (++probes > MAX_PROBES) return -1;
    }
    if (2 * (table->count + 1) > table->mask) {
        if (!table_grow(table)) return -1;
        at = (uint32_t)hash & table->mask;
        while (table->slots[at]) at = (at + 1) & table->mask;
    }
    table->entries[table->count] = (Entry){span, hash, extra, 0};
    table->slots[at] = ++table->count;
    return (int32_t)table->count - 1;
}

/* ---- JSON, strictly: each function takes where a value begins, and gives where it ends, or NULL
   where it is not certainly valid ---- */

#define BYTES(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Eight bytes at once, the first in the lowest bits; elsewhere byte by byte. */
#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BY_WORDS 1
/* Which byte is the first marked one. Marks are high bits; those above it may be wrong. */
static int first_marked(uint64_t marks) { return __builtin_ctzll(marks) >> 3; }
#else
#define BY_WORDS 0
static int first_marked(uint64_t marks) { return (int)(marks & 0); }
#endif

static const char *past_space(const char *p, const char *end) {
    if (p < end && (unsigned char)*p > ' ') return p;
    if (p < end && *p == '\n') p++;
    for (; end - p >= 4 && same(p, "    ", 4); p += 4) continue;
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static int is_digit(const char *p, const char *end) { return p < end && *p >= '0' && *p <= '9'; }

static int is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static const char *past_escape(const char *p, const char *end) {
    if (end - p < 2) return NULL;
    if (p[1] != 'u') return p[1] && strchr("\"\\/bfnrt", p[1]) ? p + 2 : NULL;
    if (end - p < 6) return NULL;
    return is_hex(p[2]) && is_hex(p[3]) && is_hex(p[4]) && is_hex(p[5]) ? p + 6 : NULL;
}

/* One character of UTF-8 beyond ASCII. */
static const char *past_character(const char *at, const char *end) {
    const unsigned char *p = (const unsigned char *)at;
    int more = p[0] >= 0xC2 && p[0] < 0xE0 ? 1 : p[0] >= 0xE0 && p[0] < 0xF0 ? 2
             : p[0] >= 0xF0 && p[0] < 0xF5 ? 3 : 0;
    if (!more || end - at <= more) return NULL;
    for (int i = 1; i <= more; i++)
        if ((p[i] & 0xC0) != 0x80) return NULL;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
        (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
        return NULL; /* overlong, a surrogate, or beyond the last character */
    return at + more + 1;
}

#define ZEROS(word) (((word) - BYTES(1)) & ~(word) & BYTES(0x80))

/* Marks quotes, backslashes, control characters and bytes beyond ASCII. */
static uint64_t specials(uint64_t word) {
    uint64_t control = (word - BYTES(0x20)) & ~word & BYTES(0x80);
    return ZEROS(word ^ BYTES('"')) | ZEROS(word ^ BYTES('\\')) | control | (word & BYTES(0x80));
}

static const char *past_string(const char *p, const char *end) {
    if (p >= end || *p != '"') return NULL;
    for (p++; p < end;) {
        uint64_t marks = 0;
        while (BY_WORDS && end - p >= 8 && !(marks = specials(load(p)))) p += 8;
        if (marks) p += first_marked(marks);
        while (p < end && *p != '"' && *p != '\\' && (unsigned char)(*p - 0x20) < 0x60) p++;
        if (p >= end) return NULL;
        if (*p == '"') return p + 1;
        if (*p == '\\') p = past_escape(p, end);
        else if ((unsigned char)*p >= 0x80) p = past_character(p, end);
        else return NULL;
        if (!p) return NULL;
    }
    return NULL;
}

/* Marks what is no digit; of a word less BYTES('0'). */
static uint64_t non_digits(uint64_t word) {
    return ((word + BYTES(0x76)) | word) & BYTES(0x80);
}

static const char *past_digits(const char *p, const char *end) {
    if (!is_digit(p, end)) return NULL;
    uint64_t marks = 0;
    while (BY_WORDS && end - p >= 8 && !(marks = non_digits(load(p) ^ BYTES('0')))) p += 8;
    if (marks) p += first_marked(marks);
    while (is_digit(p, end)) p++;
    return p;
}

/* The number of eight digits: pairs, then fours, then all. */
static int64_t eight_digits(uint64_t word) {
    word = word * 10 + (word >> 8);
    return (int64_t)(((word & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x000F424000000064) +
                      (word >> 16 & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x0000271000000001)) >>
                     32);
}

/* Up to 18 digits, without a zero before others. */
static const char *read_digits(const char *p, const char *end, int64_t *value) {
    static const int64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    const char *begin = p;
    int64_t sum = 0;
    while (BY_WORDS && end - p >= 8 && p - begin <= 10) {
        uint64_t word = load(p) ^ BYTES('0'), marks = non_digits(word);
        if (marks) {
            int count = first_marked(marks);
            if (count) sum = sum * tens[count] + eight_digits(word << (64 - 8 * count));
            p += count;
            break;
        }
        sum = sum * 100000000 + eight_digits(word);
        p += 8;
    }
    for (; is_digit(p, end) && p - begin < 19; p++)
        if (p - begin < 18) sum = 10 * sum + (*p - '0');
    if (p == begin || p - begin > 18 || (*begin == '0' && p - begin > 1)) return NULL;
    *value = sum;
    return p;
}

static const char *past_whole(const char *p, const char *end) {
    if (p < end && *p == '-') p++;
    if (p < end && *p == '0') return p + 1;
    const char *begin = p;
    p = past_digits(p, end);
    return p && p - begin < 20 ? p : NULL;
}

static const char *past_number(const char *p, const char *end) {
    p = past_whole(p, end);
    if (p && p < end && *p == '.') p = past_digits(p + 1, end);
    if (p && p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        const char *begin = p;
        p = past_digits(p, end);
        if (p && p - begin > 2) return NULL;
    }
    return p && !is_digit(p, end) ? p : NULL; /* a digit behind: a leading zero */
}

static const char *past_literal(const char *p, const char *end, const char *word) {
    size_t size = strlen(word);
    return (size_t)(end - p) >= size && same(p, word, size) ? p + size : NULL;
}

static const char *past_scalar(const char *p, const char *end) {
    if (p >= end) return NULL;
    switch (*p) {
    case '"': return past_string(p, end);
    case 't': return past_literal(p, end, "true");
    case 'f': return past_literal(p, end, "false");
    case 'n': return past_literal(p, end, "null");
    default: return past_number(p, end);
    }
}

static const char *past_colon(const char *p, const char *end) {
    p = past_space(p, end);
    return p < end && *p == ':' ? past_space(p + 1, end) : NULL;
}

static const char *past_key(const char *p, const char *end) {
    p = past_string(past_space(p, end), end);
    return p ? past_colon(p, end) : NULL;
}

static const char *past_nested(const char *p, const char *end);

/* Any value. */
static const char *past_value(const char *p, const char *end) {
    return p < end && (*p == '{' || *p == '[') ? past_nested(p, end) : past_scalar(p, end);
}

/* What is open is a stack of bits: 1 an object, 0 an array. */
static const char *past_nested(const char *p, const char *end) {
    uint64_t open = 0;
    int depth = 0;
    for (;;) {
        p = past_space(p, end);
        if (p < end && (*p == '{' || *p == '[')) {
            char closing = *p == '{' ? '}' : ']';
            const char *first = past_space(p + 1, end);
            if (first < end && *first == closing) {
                p = first + 1;
            } else {
                if (++depth > MAX_DEPTH) return NULL;
                open = open << 1 | (closing == '}');
                p = closing == '}' ? past_key(first, end) : first;
                if (!p) return NULL;
                continue;
            }
        } else if (!(p = past_scalar(p, end))) {
            return NULL;
        }
        for (;;) { /* behind a value */
            if (depth == 0) return p;
            p = past_space(p, end);
            if (p >= end) return NULL;
            if (*p == ',') break;
            if (*p != (open & 1 ? '}' : ']')) return NULL;
            p++;
            open >>= 1;
            depth--;
        }
        p = open & 1 ? past_key(p + 1, end) : p + 1;
        if (!p) return NULL;
    }
}

static int goes_on(const char *p, const char *end) { /* a number, beyond its whole part */
    return p < end && (*p == '.' || *p == 'e' || *p == 'E');
}

static const char *read_integer(const char *p, const char *end, int64_t *value) {
    int negative = p < end && *p == '-';
    p = read_digits(p + negative, end, value);
    if (!p || goes_on(p, end)) return NULL;
    if (negative) *value = -*value;
    return p;
}

/* Microseconds, as nanoseconds; halves go to the even one. `is_exact`: whether a binary fraction of
   these digits is sure to round the same way. */
static const char *read_time(const char *p, const char *end, int64_t *ns, int *has_fraction,
                             int *is_exact) {
    int64_t us, below = 0, rest = 0;
    int negative = p < end && *p == '-';
    p = read_digits(p + negative, end, &us);
    if (!p || us > LARGEST_US) return NULL;
    *has_fraction = 0;
    *is_exact = 1;
    if (p < end && *p == '.') {
        const char *first = ++p;
        int beyond = 0;
        for (; is_digit(p, end); p++) {
            *has_fraction |= *p != '0';
            if (p - first < 3) below = 10 * below + (*p - '0');
            else if (p - first < 7) rest = 10 * rest + (*p - '0');
            else beyond |= *p != '0';
        }
        if (p == first) return NULL;
        for (long i = (long)(p - first); i < 3; i++) below *= 10;
        for (long i = p - first < 3 ? 3 : (long)(p - first); i < 7; i++) rest *= 10;
        if (rest || beyond) {
            int half = rest == 5000 && !beyond;
            int64_t doubt = 1 + us / (1 << 28); /* what a float64 may be off, in 0.1 ps */
            *is_exact = us < FINE_US && (half || rest < 5000 - doubt || rest > 5000 + doubt);
            below += half ? below & 1 : rest >= 5000;
        }
    }
    if (goes_on(p, end)) return NULL;
    *ns = 1000 * us + below;
    if (negative) *ns = -*ns;
    return p;
}

/* ---- Keys ----

   Writers put the same keys in the same order, with the same white space. So what stood between
   the value of a key and the next value, comma to colon, is compared as a whole the next time. */

enum { GUESS_WORDS = 4 };

typedef struct {
    uint64_t words[GUESS_WORDS], masks[GUESS_WORDS];
    uint32_t size; /* 0: nothing learnt yet */
    int number;    /* of the key in it */
} Guess;

enum { FIRST = MAX_WORDS, UNLEARNT, PLACES, CLOSED = -1 };

typedef struct {
    Table table;
    int codes[MAX_WORDS];
    Guess after[PLACES]; /* by the key before */
} Keys;

static int fits(const Guess *guess, const char *p, const char *end) {
    uint64_t wrong = 0;
    if (!guess->size || (size_t)(end - p) < sizeof guess->words) return 0;
    for (int i = 0; i < GUESS_WORDS; i++) wrong |= (load(p + 8 * i) ^ guess->words[i]) & guess->masks[i];
    return !wrong;
}

static void remember(Guess *guess, const char *from, const char *to, int number) {
    size_t size = (size_t)(to - from);
    if (size > sizeof guess->words) return;
    memset(guess, 0, sizeof *guess);
    memcpy(guess->words, from, size);
    memset(guess->masks, 0xFF, size);
    guess->size = (uint32_t)size;
    guess->number = number;
}

/* The same where no guess fits; learns one. */
static const char *find_value(Keys *keys, int *before, const char *p, const char *end, int *code) {
    const char *from = p;
    p = past_space(p, end);
    if (p < end && *p == '}') {
        *code = CLOSED;
        return p + 1;
    }
    if (*before != FIRST) {
        if (p >= end || *p != ',') return NULL;
        p = past_space(p + 1, end);
    }
    const char *key = p;
    p = past_string(p, end);
    if (!p || memchr(key, '\\', (size_t)(p - key))) return NULL;
    int32_t number = number_of(&keys->table, (Span){key + 1, (size_t)(p - key) - 2}, 0);
    p = past_colon(p, end);
    if (number < 0 || !p) return NULL;
    if (number < MAX_WORDS) {
        if (*before != UNLEARNT) remember(&keys->after[*before], from, p, number);
        *code = keys->codes[*before = number];
    } else {
        *before = UNLEARNT;
        *code = keys->codes[MAX_WORDS - 1];
    }
    return p;
}

/* From behind a value, or a brace, to the next value; CLOSED, and behind the brace, at the end. */
static const char *next_value(Keys *keys, int *before, const char *p, const char *end, int *code) {
    const Guess *guess = &keys->after[*before];
    if (!fits(guess, p, end)) return find_value(keys, before, p, end, code);
    *before = guess->number;
    *code = keys->codes[guess->number];
    return p + guess->size;
}

/* ---- One block ---- */

typedef struct {
    int kind, column;
    unsigned shapes; /* the shapes whose rows keep this argument */
} Field;

typedef struct {
    const char *end;
    /* what Python says */
    Keys event_keys, arg_keys;
    Field fields[MAX_WORDS];
    Table categories;
    int category_codes[MAX_WORDS]; /* of rows: cat * 8 + shape * 2 + is_device; of others < 0 */
    int phases[128];
    int64_t *scratch; /* [shape][column][row] */
    int columns;
    size_t room;
    int own[MAX_SHAPES][MAX_COLUMNS], owned[MAX_SHAPES]; /* the arguments' columns of each shape */
    /* what comes out */
    size_t events, rows[MAX_SHAPES], purposes[MAX_PURPOSES], unknown[MAX_WORDS];
    unsigned present[MAX_SHAPES]; /* columns in which some value is */
    Table names, texts, processes, tracks;
    Span last_pid, last_tid, last_category;
    int last_device, last_category_number;
    int32_t last_track, last_name;
} Scan;

/* One event, on the way through its keys. */
typedef struct {
    unsigned seen, good;
    int phase, category; /* number in the table; -1 none */
    int64_t start, dur;
    Span title, pid, tid;
    int32_t name; /* the title's number, if it was guessed; else -1 */
    const char *args;
    int taken; /* the arguments are in the row */
} Event;

static int64_t *cell(Scan *s, int shape, int column) {
    return s->scratch + ((size_t)shape * (size_t)s->columns + (size_t)column) * s->room + s->rows[shape];
}

static Span inside(Span quoted) { return (Span){quoted.text + 1, quoted.size - 2}; }

/* An integer, or one as text: torch and others quote some ids. */
static const char *read_id(const char *p, const char *end, int64_t *value) {
    if (p < end && *p == '"') {
        const char *begin = ++p;
        p = past_digits(p, end);
        if (!p || p >= end || *p != '"' || p - begin > 18) return NULL;
        *value = 0;
        for (; begin < p; begin++) *value = 10 * *value + (*begin - '0');
        return p + 1;
    }
    return read_integer(p, end, value);
}

/* The product of a list of sizes. */
static const char *read_volume(const char *p, const char *end, int64_t *value) {
    if (p >= end || *p != '[') return NULL;
    for (*value = 1;;) {
        int64_t size;
        p = read_integer(past_space(p + 1, end), end, &size);
        if (!p || size < 0 || size > INT32_MAX || *value > INT32_MAX) return NULL;
        *value *= size;
        p = past_space(p, end);
        if (p >= end) return NULL;
        if (*p == ']') return p + 1;
        if (*p != ',') return NULL;
    }
}

static const char *read_argument(Scan *s, const Field *field, const char *p, int64_t *value) {
    const char *begin = p;
    switch (field->kind) {
    case INTEGER: return read_id(p, s->end, value);
    case VOLUME: return read_volume(p, s->end, value);
    case WORD:
        p = past_string(p, s->end);
        if (!p) return NULL;
        *value = number_of(&s->names, (Span){begin + 1, (size_t)(p - begin) - 2}, 0);
        return *value < 0 ? NULL : p;
    default:
        if (p >= s->end || *p != '[') return NULL;
        p = past_value(p, s->end);
        if (!p) return NULL;
        *value = number_of(&s->texts, (Span){begin, (size_t)(p - begin)}, 0);
        return *value < 0 ? NULL : p;
    }
}

/* As if the row had no arguments. */
static void clear_args(Scan *s, int shape) {
    int64_t *first = cell(s, shape, 0);
    for (int i = 0; i < s->owned[shape]; i++) first[(size_t)s->own[shape][i] * s->room] = -1;
}

/* The arguments of a row into its cells; of what is no row (shape -1) nowhere. */
static const char *read_args(Scan *s, int shape, const char *p) {
    const char *end = s->end;
    unsigned seen = 0, bit = shape < 0 ? 0 : BIT(shape);
    if (p >= end || *p != '{') return NULL;
    p++;
    for (int before = FIRST;;) {
        int code;
        p = next_value(&s->arg_keys, &before, p, end, &code);
        if (!p || code == CLOSED) break;
        const Field *field = &s->fields[code];
        if (field->shapes & bit) {
            if (seen & BIT(field->column)) return NULL; /* twice: which of them holds? */
            seen |= BIT(field->column);
            p = read_argument(s, field, p, cell(s, shape, field->column));
        } else {
            p = past_value(p, end);
        }
        if (!p) return NULL;
    }
    if (seen) s->present[shape] |= seen;
    return p;
}

static int plain(Span quoted) { return !memchr(quoted.text, '\\', quoted.size); }

/* A process or thread id as the word that Python's str() makes of it. */
static int read_word(Span *span) {
    if (span->text[0] == '"') {
        *span = inside(*span);
        return plain(*span);
    }
    int64_t ignored;
    const char *end = span->text + span->size;
    return read_integer(span->text, end, &ignored) == end && !(span->size == 2 && ignored == 0);
}

static int equal(Span a, Span b) { return a.size == b.size && same(a.text, b.text, a.size); }

static int32_t track_of(Scan *s, Span pid, Span tid, int is_device) {
    if (s->last_track >= 0 && s->last_device == is_device && equal(pid, s->last_pid) &&
        equal(tid, s->last_tid))
        return s->last_track;
    s->last_pid = pid, s->last_tid = tid, s->last_device = is_device;
    if (!read_word(&pid) || !read_word(&tid)) return -1;
    int32_t process = number_of(&s->processes, pid, 0);
    if (process < 0) return -1;
    return s->last_track = number_of(&s->tracks, tid, (uint32_t)process << 1 | (uint32_t)is_device);
}

/* What a category is; an unknown one is learnt. Mostly it is that of the event before. */
static int read_category(Scan *s, Event *e, Span quoted) {
    if (!equal(quoted, s->last_category)) {
        int32_t number = number_of(&s->categories, inside(quoted), 0);
        if (number < 0 || number >= MAX_WORDS || !plain(quoted)) return 0;
        s->last_category = quoted;
        s->last_category_number = number;
    }
    e->category = s->last_category_number;
    return 1;
}

static int is_row(const Scan *s, const Event *e) {
    return e->phase == ROW && e->category >= 0 && s->category_codes[e->category] >= 0;
}

static int shape_of(int code) { return code >> 1 & 3; }

static int keep_row(Scan *s, Event *e) {
    int code = s->category_codes[e->category], shape = shape_of(code);
    if (!e->taken) {
        clear_args(s, shape);
        if (e->args && !read_args(s, shape, e->args)) return 0;
    }
    int32_t name = e->name >= 0 ? e->name : number_of(&s->names, inside(e->title), 0);
    int32_t track = track_of(s, e->pid, e->tid, code & 1);
    if (name < 0 || track < 0) return 0;
    s->names.entries[s->last_name].next = (uint32_t)name;
    s->last_name = name;
    int64_t *first = cell(s, shape, 0);
    first[START * s->room] = e->start;
    first[DUR * s->room] = e->dur;
    first[CATEGORY * s->room] = code >> 3;
    first[NAME * s->room] = name;
    first[TRACK * s->room] = track;
    s->unknown[e->category]++;
    s->rows[shape]++;
    return 1;
}

static int keep_event(Scan *s, Event *e) {
    s->events++;
    if (e->phase == UNKNOWN || (e->seen & BIT(CAT) & ~e->good)) return 0;
    if (e->phase != ROW) {
        int code = e->category < 0 ? 0 : s->category_codes[e->category];
        if (code < 0 && -1 - code != e->phase) return 0; /* is it what ph says, or cat? */
        s->purposes[e->phase]++;
        return 1;
    }
    if (e->category < 0 && !read_category(s, e, (Span){"\"\"", 2})) return 0;
    int code = s->category_codes[e->category];
    if (code < 0) {
        s->purposes[-1 - code]++;
        return 1;
    }
    return (e->good & WHOLE_ROW) == WHOLE_ROW && keep_row(s, e);
}

static const char *read_when(Event *e, int code, const char *p, const char *end) {
    int64_t ns;
    int has_fraction, is_exact;
    const char *stop = read_time(p, end, &ns, &has_fraction, &is_exact);
    if (!stop) return past_value(p, end);
    /* Python reads durations as floats. */
    if (code == DURATION && has_fraction &&
        (!is_exact || ns / 1000 >= EXACT_US || ns / 1000 <= -EXACT_US))
        return stop;
    *(code == TS ? &e->start : &e->dur) = ns;
    e->good |= BIT(code);
    return stop;
}

/* The name that followed the one before the last time, if it does so again. */
static const char *past_next_name(const Scan *s, Event *e, const char *p) {
    if (!s->names.count) return NULL;
    uint32_t number = s->names.entries[s->last_name].next;
    Span guess = s->names.entries[number].span;
    if ((size_t)(s->end - p) < guess.size + 2 || *p != '"' || p[guess.size + 1] != '"' ||
        !same(p + 1, guess.text, guess.size))
        return NULL;
    e->name = (int32_t)number;
    return p + guess.size + 2;
}

/* Phases are one letter, and the category mostly that of the event before. */
static const char *past_known(const Scan *s, Event *e, int code, const char *p) {
    const char *end = s->end;
    if (code == TITLE) {
        const char *stop = past_next_name(s, e, p);
        return stop ? stop : past_value(p, end);
    }
    if (code == PH && end - p > 2 && p[0] == '"' && p[1] >= 'A' && p[1] <= 'z' && p[1] != '\\' &&
        p[2] == '"')
        return p + 3;
    size_t size = s->last_category.size;
    if (code == CAT && (size_t)(end - p) >= size && size && same(p, s->last_category.text, size))
        return p + size;
    return past_value(p, end);
}

static const char *read_words(Scan *s, Event *e, int code, const char *p) {
    const char *stop = past_known(s, e, code, p);
    if (!stop) return NULL;
    Span span = {p, (size_t)(stop - p)};
    if (code == PID || code == TID) {
        *(code == PID ? &e->pid : &e->tid) = span;
        e->good |= BIT(code);
    } else if (*p == '"') {
        if (code == TITLE) e->title = span;
        if (code == PH && span.size == 3) e->phase = s->phases[(unsigned char)p[1] & 127];
        if (code == CAT && !read_category(s, e, span)) return NULL;
        e->good |= BIT(code);
    }
    return stop;
}

/* The value of one key of an event. What is no row may hold anything under most keys. */
static const char *read_field(Scan *s, Event *e, int code, const char *p) {
    if (code == OTHER_KEY) return past_value(p, s->end);
    if (e->seen & BIT(code)) return NULL; /* twice: which of them holds? */
    e->seen |= BIT(code);
    if (code == ARGS) {
        if (is_row(s, e)) {
            int shape = shape_of(s->category_codes[e->category]);
            e->taken = 1;
            clear_args(s, shape);
            return read_args(s, shape, p);
        }
        e->args = p;
        return p < s->end && *p == '{' ? read_args(s, -1, p) : past_value(p, s->end);
    }
    if (e->phase >= 0 && code != CAT) return past_value(p, s->end);
    return code == TS || code == DURATION ? read_when(e, code, p, s->end)
                                          : read_words(s, e, code, p);
}

static const char *read_event(Scan *s, const char *p) {
    Event e = {.phase = UNKNOWN, .category = -1, .name = -1};
    if (p >= s->end || *p != '{') return NULL;
    p++;
    for (int before = FIRST;;) {
        int code;
        p = next_value(&s->event_keys, &before, p, s->end, &code);
        if (!p) return NULL;
        if (code == CLOSED) return keep_event(s, &e) ? p : NULL;
        p = read_field(s, &e, code, p);
        if (!p) return NULL;
    }
}

/* The array, to behind its bracket. */
static const char *read_block(Scan *s, const char *p) {
    if (p >= s->end || *p != '[') return NULL;
    const char *first = past_space(p + 1, s->end);
    if (first < s->end && *first == ']') return first + 1;
    do {
        for (int shape = 0; shape < MAX_SHAPES; shape++)
            if (s->rows[shape] >= s->room) return NULL;
        p = read_event(s, past_space(p + 1, s->end));
        if (!p) return NULL;
        p = past_space(p, s->end);
    } while (p < s->end && *p == ',');
    return p < s->end && *p == ']' ? p + 1 : NULL;
}

/* ---- What Python says, and what it gets ---- */

static Table *tables(Scan *s, int i) {
    Table *all[] = {&s->event_keys.table, &s->arg_keys.table, &s->categories, &s->names,
                    &s->texts,            &s->processes,      &s->tracks};
    return i < 7 ? all[i] : NULL;
}

static int learn(Table *table, const char *text, Py_ssize_t size, int place) {
    if (place < MAX_WORDS && number_of(table, (Span){text, (size_t)size}, 0) == place) return 1;
    PyErr_SetString(PyExc_ValueError, "too many words, or one of them twice");
    return 0;
}

static int learn_events(Scan *s, PyObject *categories, PyObject *phases, int unknown) {
    const char *text;
    Py_ssize_t size;
    int code;
    for (int i = 0; i < OTHER_KEY; i++)
        if (!learn(&s->event_keys.table, EVENT_KEYS[i], (Py_ssize_t)strlen(EVENT_KEYS[i]), i))
            return 0;
    for (int i = 0; i < MAX_WORDS; i++) {
        s->event_keys.codes[i] = i < OTHER_KEY ? i : OTHER_KEY;
        s->category_codes[i] = unknown;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(categories); i++) {
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(categories, i), "y#i", &text, &size, &code) ||
            !learn(&s->categories, text, size, (int)i))
            return 0;
        s->category_codes[i] = code;
    }
    for (int i = 0; i < 128; i++) s->phases[i] = UNKNOWN;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(phases); i++) {
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(phases, i), "y#i", &text, &size, &code)) return 0;
        if (size != 1 || (unsigned char)*text > 127 || code < ROW || code >= MAX_PURPOSES) {
            PyErr_SetString(PyExc_ValueError, "a phase is one letter");
            return 0;
        }
        s->phases[(unsigned char)*text] = code;
    }
    return 1;
}

static int learn_fields(Scan *s, PyObject *fields) {
    Py_ssize_t count = PyTuple_GET_SIZE(fields), size;
    const char *text;
    for (Py_ssize_t i = 0; i < count; i++) {
        Field *field = &s->fields[i];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(fields, i), "y#iiI", &text, &size, &field->kind,
                              &field->column, &field->shapes) ||
            !learn(&s->arg_keys.table, text, size, (int)i))
            return 0;
        if (field->column < ARGUMENTS || field->column >= s->columns || i >= MAX_COLUMNS) {
            PyErr_SetString(PyExc_ValueError, "no such column");
            return 0;
        }
        for (int shape = 0; shape < MAX_SHAPES; shape++)
            if (field->shapes & BIT(shape)) s->own[shape][s->owned[shape]++] = field->column;
    }
    for (int i = 0; i < MAX_WORDS; i++) /* those behind the known are learnt, and not looked at */
        s->arg_keys.codes[i] = i < count ? i : (int)count;
    return 1;
}

static PyObject *word(Span span) {
    /* With escapes as bytes: Python decodes them. */
    return plain(span) ? PyUnicode_DecodeUTF8(span.text, (Py_ssize_t)span.size, NULL)
                       : PyBytes_FromStringAndSize(span.text, (Py_ssize_t)span.size);
}

static PyObject *raw(Span span) {
    return PyBytes_FromStringAndSize(span.text, (Py_ssize_t)span.size);
}

static PyObject *listed(const Table *table, PyObject *(*made)(Span)) {
    PyObject *list = PyList_New(table->count);
    for (uint32_t i = 0; list && i < table->count; i++) {
        PyObject *item = made(table->entries[i].span);
        if (item) PyList_SET_ITEM(list, i, item);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *listed_tracks(const Scan *s) {
    PyObject *list = PyList_New(s->tracks.count);
    for (uint32_t i = 0; list && i < s->tracks.count; i++) {
        const Entry *track = &s->tracks.entries[i];
        Span pid = s->processes.entries[track->extra >> 1].span, tid = track->span;
        PyObject *item = Py_BuildValue("(s#s#O)", pid.text, (Py_ssize_t)pid.size, tid.text,
                                       (Py_ssize_t)tid.size, track->extra & 1 ? Py_True : Py_False);
        if (item) PyList_SET_ITEM(list, i, item);
        else Py_CLEAR(list);
    }
    return list;
}

/* [(word, rows)] of the categories that Python did not name. */
static PyObject *listed_unknown(const Scan *s, Py_ssize_t known) {
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = known; list && i < (Py_ssize_t)s->categories.count; i++) {
        Span span = s->categories.entries[i].span;
        PyObject *item = Py_BuildValue("(s#n)", span.text, (Py_ssize_t)span.size,
                                       (Py_ssize_t)s->unknown[i]);
        if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *counted(const size_t *counts, int size) {
    PyObject *tuple = PyTuple_New(size);
    for (int i = 0; tuple && i < size; i++) {
        PyObject *item = PyLong_FromSize_t(counts[i]);
        if (item) PyTuple_SET_ITEM(tuple, i, item);
        else Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *result(const Scan *s, size_t used, Py_ssize_t known) {
    size_t present[MAX_SHAPES];
    for (int i = 0; i < MAX_SHAPES; i++) present[i] = s->present[i];
    PyObject *items[] = {PyLong_FromSize_t(used),
                         PyLong_FromSize_t(s->events),
                         counted(s->rows, MAX_SHAPES),
                         counted(present, MAX_SHAPES),
                         counted(s->purposes, MAX_PURPOSES),
                         listed_unknown(s, known),
                         listed(&s->names, word),
                         listed(&s->texts, raw),
                         listed_tracks(s)};
    enum { ITEMS = sizeof items / sizeof *items };
    int whole = 1;
    for (int i = 0; i < ITEMS; i++) whole = whole && items[i];
    PyObject *tuple = whole ? PyTuple_New(ITEMS) : NULL;
    for (int i = 0; i < ITEMS; i++)
        if (tuple) PyTuple_SET_ITEM(tuple, i, items[i]);
        else Py_XDECREF(items[i]);
    return tuple;
}

/* The whole of one call, once the buffers are held. */
static PyObject *scan_block(Scan *s, const Py_buffer *block, const Py_buffer *scratch,
                            PyObject *categories, PyObject *phases, PyObject *fields, int unknown) {
    if (scratch->itemsize != sizeof(int64_t) || scratch->ndim != 3 ||
        scratch->shape[0] != MAX_SHAPES || scratch->shape[1] > MAX_COLUMNS) {
        PyErr_SetString(PyExc_ValueError, "scratch is int64 [shape][column][row]");
        return NULL;
    }
    s->scratch = scratch->buf;
    s->columns = (int)scratch->shape[1];
    s->room = (size_t)scratch->shape[2];
    s->last_track = -1;
    const char *stop;
    int good = 1;
    for (int i = 0; tables(s, i); i++) good = table_open(tables(s, i)) && good;
    if (!good) return PyErr_NoMemory();
    if (!learn_events(s, categories, phases, unknown) || !learn_fields(s, fields)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    s->end = (const char *)block->buf + block->len;
    stop = block->len < INT32_MAX ? read_block(s, block->buf) : NULL;
    Py_END_ALLOW_THREADS
    if (!stop) Py_RETURN_NONE;
    return result(s, (size_t)(stop - (const char *)block->buf), PyTuple_GET_SIZE(categories));
}

static PyObject *scan(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *target, *categories, *phases, *fields, *found = NULL;
    Py_buffer block, scratch;
    int unknown;
    if (!PyArg_ParseTuple(args, "y*OO!O!O!i", &block, &target, &PyTuple_Type, &categories,
                          &PyTuple_Type, &phases, &PyTuple_Type, &fields, &unknown))
        return NULL;
    Scan *s = calloc(1, sizeof *s);
    if (!s) {
        PyErr_NoMemory();
    } else if (PyObject_GetBuffer(target, &scratch, PyBUF_CONTIG) == 0) {
        found = scan_block(s, &block, &scratch, categories, phases, fields, unknown);
        for (int i = 0; tables(s, i); i++) table_close(tables(s, i));
        PyBuffer_Release(&scratch);
    }
    free(s);
    PyBuffer_Release(&block);
    return found;
}

/* ---- Nesting ---- */

/* Gives the buffers back. None, or an error. */
static PyObject *answered(Py_buffer *b, int count, int good) {
    for (int i = 0; i < count; i++) PyBuffer_Release(&b[i]);
    if (good) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "rows outside of the columns, or columns of unlike lengths");
    return NULL;
}

/* Each row's innermost row around it on its track: those open there are a stack, linked through
   the parents themselves. False where a track is out of range. */
static int nest(const int64_t *start, const int64_t *dur, const int32_t *track, const char *on_host,
                Py_ssize_t rows, int32_t *open, Py_ssize_t tracks, int64_t tolerance,
                int32_t *parent) {
    for (Py_ssize_t i = 0; i < tracks; i++) open[i] = -1;
    for (Py_ssize_t i = 0; i < rows; i++) {
        parent[i] = -1;
        if (!on_host[i]) continue;
        if (track[i] < 0 || track[i] >= tracks) return 0;
        int64_t end = start[i] + dur[i];
        int32_t above = open[track[i]];
        while (above >= 0) {
            int64_t stop = start[above] + dur[above];
            if (stop >= end - tolerance && stop > start[i]) break;
            above = parent[above];
        }
        parent[i] = above;
        open[track[i]] = (int32_t)i;
    }
    return 1;
}

static PyObject *nest_arrays(const Py_buffer *b, Py_ssize_t tracks, long long tolerance) {
    Py_ssize_t rows = b[3].len;
    if (b[0].len != 8 * rows || b[1].len != 8 * rows || b[2].len != 4 * rows ||
        b[4].len != 4 * rows || rows > INT32_MAX || tracks < 0 || tracks > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "columns of unlike lengths");
        return NULL;
    }
    int32_t *open = malloc(((size_t)tracks + 1) * sizeof *open);
    if (!open) return PyErr_NoMemory();
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = nest(b[0].buf, b[1].buf, b[2].buf, b[3].buf, rows, open, tracks, tolerance, b[4].buf);
    Py_END_ALLOW_THREADS
    free(open);
    if (good) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "no such track");
    return NULL;
}

static PyObject *parents(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[5];
    Py_ssize_t tracks;
    long long tolerance;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*nL", &b[0], &b[1], &b[2], &b[3], &b[4], &tracks,
                          &tolerance))
        return NULL;
    PyObject *found = nest_arrays(b, tracks, tolerance);
    for (int i = 0; i < 5; i++) PyBuffer_Release(&b[i]);
    return found;
}

/* found: of each row the innermost at or around it whose key is wanted, at most so many levels up. */
static int climb_rows(const Py_buffer *b, Py_ssize_t deepest) {
    const int32_t *parent = b[0].buf, *key = b[1].buf;
    const char *wanted = b[2].buf;
    int64_t *found = b[3].buf, rows = b[0].len / 4, keys = b[2].len;
    for (Py_ssize_t i = 0; i < b[3].len / 8; i++) {
        int64_t row = found[i];
        for (Py_ssize_t level = 0; row >= 0; row = parent[row], level++) {
            if (row >= rows || key[row] < 0 || key[row] >= keys) return 0;
            if (level == deepest) row = -1;
            if (row < 0 || wanted[key[row]]) break;
        }
        found[i] = row < 0 ? -1 : row;
    }
    return 1;
}

static PyObject *climb(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[4];
    Py_ssize_t deepest;
    if (!PyArg_ParseTuple(args, "y*y*y*w*n", &b[0], &b[1], &b[2], &b[3], &deepest)) return NULL;
    int good = b[0].len == b[1].len;
    Py_BEGIN_ALLOW_THREADS
    good = good && climb_rows(b, deepest);
    Py_END_ALLOW_THREADS
    return answered(b, 4, good);
}

/* position: where a row has none, that of its parent, which stands before it. */
static int inherit(const Py_buffer *b) {
    const int32_t *parent = b[0].buf;
    int32_t *position = b[1].buf;
    for (Py_ssize_t i = 0; i < b[0].len / 4; i++) {
        if (parent[i] >= i) return 0;
        if (position[i] < 0 && parent[i] >= 0) position[i] = position[parent[i]];
    }
    return 1;
}

static PyObject *nearest(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[2];
    if (!PyArg_ParseTuple(args, "y*w*", &b[0], &b[1])) return NULL;
    int good = b[0].len == b[1].len;
    Py_BEGIN_ALLOW_THREADS
    good = good && inherit(b);
    Py_END_ALLOW_THREADS
    return answered(b, 2, good);
}

/* How many times there are at which events begin or end; -1 where a row is out of range. */
static Py_ssize_t edges(const Py_buffer *b, Py_ssize_t deepest) {
    enum { STARTS, ENDS, PARENT, ROWS, ENDED, TIME, INSIDE };
    const int64_t *start = b[STARTS].buf, *end = b[ENDS].buf;
    const int32_t *parent = b[PARENT].buf;
    const int64_t *rows = b[ROWS].buf, *ended = b[ENDED].buf;
    int64_t *time = b[TIME].buf, all = b[STARTS].len / 8, count = b[ROWS].len / 8, at = 0;
    int32_t *inside = b[INSIDE].buf;
    for (int64_t i = 0; i < count; i++)
        if (rows[i] < 0 || rows[i] >= all || ended[i] < 0 || ended[i] >= all) return -1;
    for (int64_t begun = 0, closed = 0; closed < count;) {
        int64_t row = ended[closed], when = end[row], above;
        if (begun < count && start[rows[begun]] < when) { /* the next to come begins */
            when = start[rows[begun]];
            above = rows[begun++];
        } else {
            closed++;
            above = begun ? rows[begun - 1] : -1;
            if (above == row) above = parent[row];
            for (Py_ssize_t level = 0; above >= 0 && level < deepest; level++) {
                if (above >= all) return -1;
                if (end[above] > when) break;
                above = parent[above];
            }
        }
        if (!at || time[at - 1] != when) at++;
        time[at - 1] = when;
        inside[at - 1] = (int32_t)above;
    }
    return (Py_ssize_t)at;
}

static PyObject *innermost(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[7];
    Py_ssize_t deepest, count = -1;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*w*n", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6],
                          &deepest))
        return NULL;
    int good = b[1].len == b[0].len && 2 * b[2].len == b[0].len && b[4].len == b[3].len &&
               b[5].len == 2 * b[3].len && b[6].len == b[3].len;
    Py_BEGIN_ALLOW_THREADS
    if (good) count = edges(b, deepest);
    Py_END_ALLOW_THREADS
    PyObject *none = answered(b, 7, count >= 0);
    Py_XDECREF(none);
    return none ? PyLong_FromSsize_t(count) : NULL;
}

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS,
     "scan(block, scratch, categories, phases, fields, unknown): the columns of a JSON array of\n"
     "events into scratch, and (bytes, events, rows, present, purposes, unknown categories, names, texts,\n"
     "tracks); None where anything in it is unusual."},
    {"parents", parents, METH_VARARGS,
     "parents(start, dur, track, on_host, parent, tracks, tolerance): fills parent, int32."},
    {"climb", climb, METH_VARARGS,
     "climb(parent, key, wanted, found, deepest): changes found, the rows to begin at."},
    {"nearest", nearest, METH_VARARGS,
     "nearest(parent, position): changes position, -1 of all rows but those that are listed."},
    {"innermost", innermost, METH_VARARGS,
     "innermost(start, end, parent, rows, ended, time, inside, deepest): fills time and inside; how\n"
     "many there are."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "detector.kineto._scan", .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__scan(void) { return PyModuleDef_Init(&definition); }
