/* What scans answers and fingerprints prompts. `grams.py` says what the arguments are and holds the same in numpy.
 *
 * Text is folded byte by byte (a table: letters to lower case, marks and spaces dropped), so a chunk may end anywhere,
 * also inside a character. Every run of `length` folded bytes (a k-gram) has a rolling hash (cyclic polynomial over a
 * secret table); of `window` neighbours the least one is taken, the last of equals (winnowing). What is stored of it is
 * a SipHash-1-3 under the key of its generation.
 */
#include <stdint.h>
#include <string.h>

enum { MOST = 64, BLOCK = 4096, AHEAD = 32, GENERATIONS = 16, OWNER_BITS = 20, COMMON = 1 };
#define OWNER_MASK ((1u << OWNER_BITS) - 1)

typedef uint64_t u64;

struct roll { /* all that is kept of a text between two chunks */
    u64 hash, grams; /* grams: how many there have been */
    int64_t least;   /* where the least of the window stands, -1 before the first */
    u64 folded;      /* folded bytes so far */
    u64 last[MOST];  /* hashes of the window */
    uint8_t bytes[MOST];
};

struct secrets {
    u64 enter[256], leave[256]; /* leave: enter, turned left by `length` */
    uint8_t fold[256];          /* 0: dropped */
};

struct generation {
    u64 key[2];
    u64 *slots; /* a fingerprint's upper 44 bits, its owner in the lower 20; 0: free */
    u64 mask;
};

static inline u64 turn(u64 x, int by) { return x << by | x >> (64 - by); }

#define ROUND(a, b, c, d)                                                                                   \
    do {                                                                                                    \
        a += b; c += d; b = turn(b, 13); d = turn(d, 16); b ^= a; d ^= c; a = turn(a, 32);                  \
        c += b; a += d; b = turn(b, 17); d = turn(d, 21); b ^= c; d ^= a; c = turn(c, 32);                  \
    } while (0)

/* SipHash-1-3 of eight bytes. */
static inline u64 sip(const u64 key[2], u64 x) {
    u64 a = key[0] ^ 0x736f6d6570736575u, b = key[1] ^ 0x646f72616e646f6du;
    u64 c = key[0] ^ 0x6c7967656e657261u, d = key[1] ^ 0x7465646279746573u;
    d ^= x;
    ROUND(a, b, c, d);
    a ^= x;
    d ^= (u64)8 << 56;
    ROUND(a, b, c, d);
    a ^= (u64)8 << 56;
    c ^= 0xff;
    ROUND(a, b, c, d);
    ROUND(a, b, c, d);
    ROUND(a, b, c, d);
    return a ^ b ^ c ^ d;
}

/* Winnowed hashes of the next `n` bytes of a text into `out`, the folded offset of each k-gram's end into `at`; both
 * have room for `n`. How many there are. */
long pagefence_grams(const uint8_t *text, long n, struct roll *s, const struct secrets *secrets, int length, int window,
                     u64 *out, u64 *at) {
    uint8_t folded[MOST + BLOCK]; /* before what is new: the last `length` bytes */
    long found = 0;
    u64 hash = s->hash, grams = s->grams, count = s->folded;
    int64_t least = s->least;
    int place = (int)(grams % window);
    u64 lowest = least < 0 ? ~(u64)0 : s->last[least % window];
    memcpy(folded, s->bytes, length);
    for (long from = 0; from < n; from += BLOCK) {
        const long to = n - from < BLOCK ? n : from + BLOCK;
        long size = length, i = length;
        for (long j = from; j < to; j++) {
            const uint8_t byte = secrets->fold[text[j]];
            folded[size] = byte;
            size += byte != 0;
        }
        for (; i < size && count < (u64)length - 1; i++, count++) /* the first k-gram is not full yet */
            hash = turn(hash, 1) ^ secrets->enter[folded[i]];
        for (; i < size; i++) {
            /* Before the first k-gram was full the byte that leaves is none: 0, whose entries are 0. */
            hash = turn(hash, 1) ^ secrets->enter[folded[i]] ^ secrets->leave[folded[i - length]];
            count++;
            s->last[place] = hash;
            if (hash <= lowest) {
                lowest = hash; least = (int64_t)grams;
                if (grams + 1 >= (u64)window) { out[found] = hash; at[found++] = count; }
            } else if (least + window <= (int64_t)grams) {
                lowest = ~(u64)0;
                for (int j = 0, slot = place; j < window; j++) { /* from the oldest to the newest */
                    if (++slot == window) slot = 0;
                    if (s->last[slot] <= lowest) { lowest = s->last[slot]; least = (int64_t)grams - window + 1 + j; }
                }
                out[found] = lowest; at[found++] = count - (grams - (u64)least);
            } else if (grams + 1 == (u64)window) { /* the first full window, whose least came before */
                out[found] = lowest; at[found++] = count - (grams - (u64)least);
            }
            grams++;
            if (++place == window) place = 0;
        }
        memmove(folded, folded + size - length, length);
    }
    memcpy(s->bytes, folded, length);
    s->hash = hash; s->grams = grams; s->least = least; s->folded = count;
    return found;
}

static inline u64 load(const u64 *slot) { return __atomic_load_n(slot, __ATOMIC_RELAXED); }

static inline uint32_t owner_in(const struct generation *g, u64 print) {
    for (u64 i = print & g->mask;; i = (i + 1) & g->mask) {
        const u64 slot = load(g->slots + i);
        if (!slot) return 0;
        if (slot >> OWNER_BITS == print >> OWNER_BITS) return (uint32_t)slot & OWNER_MASK;
    }
}

/* Whose each hash is: 0 nobody's, COMMON when it was seen from several, else the one owner. How many are somebody's. */
long pagefence_look(const u64 *hashes, long n, const struct generation *generations, int count, uint32_t *owners) {
    long known = 0;
    u64 print[GENERATIONS][AHEAD];
    memset(owners, 0, n * sizeof *owners);
    for (long from = 0; from < n; from += AHEAD) {
        const long size = n - from < AHEAD ? n - from : AHEAD;
        for (int g = 0; g < count; g++) {
            for (long i = 0; i < size; i++) {
                print[g][i] = sip(generations[g].key, hashes[from + i]);
                __builtin_prefetch(generations[g].slots + (print[g][i] & generations[g].mask));
            }
        }
        for (int g = 0; g < count; g++) {
            for (long i = 0; i < size; i++) {
                const uint32_t owner = owner_in(generations + g, print[g][i]), before = owners[from + i];
                if (owner && owner != before) owners[from + i] = before ? COMMON : owner;
            }
        }
    }
    for (long i = 0; i < n; i++) known += owners[i] != 0;
    return known;
}

/* Note hashes as `owner`'s; what another one has becomes COMMON. Slots newly taken. Needs as many free slots, and one. */
long pagefence_note(const u64 *hashes, long n, struct generation *g, uint32_t owner) {
    long taken = 0;
    u64 print[AHEAD];
    for (long from = 0; from < n; from += AHEAD) {
        const long size = n - from < AHEAD ? n - from : AHEAD;
        for (long i = 0; i < size; i++) {
            print[i] = sip(g->key, hashes[from + i]);
            __builtin_prefetch(g->slots + (print[i] & g->mask), 1);
        }
        for (long k = 0; k < size; k++) {
            for (u64 i = print[k] & g->mask;; i = (i + 1) & g->mask) {
                const u64 slot = load(g->slots + i), check = print[k] >> OWNER_BITS;
                if (slot && slot >> OWNER_BITS != check) continue;
                const u64 whose = !slot || (slot & OWNER_MASK) == owner ? owner : COMMON;
                __atomic_store_n(g->slots + i, check << OWNER_BITS | whose, __ATOMIC_RELAXED);
                taken += !slot;
                break;
            }
        }
    }
    return taken;
}

/* Winnow the next bytes of an answer and look up what was taken. `all`, with room for `n`, gets every hash; `hits`,
 * `places` and `owners` those that are another tenant's than `reader`, and only one's. How many hits; `taken`: hashes. */
long pagefence_scan(const uint8_t *text, long n, struct roll *s, const struct secrets *secrets, int length, int window,
                    const struct generation *generations, int count, uint32_t reader, u64 *all, u64 *hits, u64 *places,
                    uint32_t *owners, long *taken) {
    u64 at[BLOCK];
    uint32_t whose[BLOCK];
    long found = 0;
    *taken = 0;
    for (long from = 0; from < n; from += BLOCK) {
        u64 *hashes = all + *taken;
        const long new = pagefence_grams(text + from, n - from < BLOCK ? n - from : BLOCK, s, secrets, length, window,
                                         hashes, at);
        *taken += new;
        if (!pagefence_look(hashes, new, generations, count, whose)) continue;
        for (long i = 0; i < new; i++) {
            if (whose[i] <= COMMON || whose[i] == reader) continue;
            hits[found] = hashes[i]; places[found] = at[i]; owners[found++] = whose[i];
        }
    }
    return found;
}

struct reading { /* all that is kept of a text's words between two chunks */
    u64 hash;        /* of the word that may go on; 0: none */
    uint32_t before; /* the listed word before it, 0: another one */
};

struct listed {
    const u64 *hashes; /* open addressing; 0: free */
    const uint32_t *ids;
    u64 mask;
};

static inline uint32_t listed_as(const struct listed *words, u64 hash) {
    for (u64 i = hash & words->mask; words->hashes[i]; i = (i + 1) & words->mask)
        if (words->hashes[i] == hash) return words->ids[i];
    return 0;
}

/* Pairs of listed words side by side, each as two ids in `pairs`, which has room for 2 * (n / 2 + 2). `letters` maps a
 * byte to a lower-case letter, or to 0, which ends a word. `ends`: so does the text. How many pairs. */
long pagefence_words(const uint8_t *text, long n, struct reading *s, const struct listed *words, const uint8_t *letters,
                     u64 seed, int ends, uint32_t *pairs) {
    long found = 0;
    u64 hash = s->hash;
    uint32_t before = s->before;
    for (long i = 0; i < n + (ends != 0); i++) {
        const uint8_t letter = i < n ? letters[text[i]] : 0;
        if (letter) {
            hash = ((hash ? hash : seed) ^ letter) * 0x9e3779b97f4a7c15u;
        } else if (hash) {
            const uint32_t id = listed_as(words, hash ^ hash >> 29);
            if (id && before) { pairs[2 * found] = before; pairs[2 * found + 1] = id; found++; }
            before = id;
            hash = 0;
        }
    }
    s->hash = hash; s->before = before;
    return found;
}
