/* Products of a few rows of float32 with a matrix in panels. `panels.py` says what the arguments are.
 *
 * A panel is 16 rows of the matrix side by side. A word of 32 bits holds neighbouring columns of one row, the first one
 * in its lowest bits, and the words of a panel's rows lie next to each other: a product reads memory once, from front
 * to back, and eight rows fill a vector.
 *
 * Every output is one sum over the columns from first to last, in float32. Neither the number of rows nor the place of
 * a row among them nor the number of threads changes its order: a row gives the same bits alone and in a batch.
 *
 * Plain C with GCC's and Clang's vector types. On x86-64 the C library picks the clone for the processor it runs on.
 */
#include <omp.h>
#include <stdint.h>
#include <string.h>

enum { PANEL = 16, HALF = 8, BLOCK = 32, AHEAD = 512 /* words to ask memory for in advance */ };
enum { BFLOAT16 = 16, EIGHT_BITS = 8, FOUR_BITS = 4 }; /* what a weight is: signed in eight bits, unsigned in four */

typedef float floats __attribute__((vector_size(32)));
typedef uint32_t words __attribute__((vector_size(32)));
typedef int32_t ints __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))
#define EACH(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < (n); i++)
#if defined(__x86_64__) && defined(__GLIBC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

struct matrix {
    const uint32_t *words; /* [panels][columns / columns of a word][PANEL] */
    const float *scales;   /* [panels][blocks][scale, offset][PANEL]; unused in BFLOAT16 */
    long rows, columns;
};

/* Column `i` of eight words. A macro, because a function that returns a vector has no fixed ABI. */
#define COLUMN(bits, in, i)                                                              \
    ((bits) == BFLOAT16     ? (floats)((i) ? (in) & 0xffff0000u : (in) << 16)            \
     : (bits) == EIGHT_BITS ? __builtin_convertvector((ints)((in) << (24 - 8 * (i))) >> 24, floats) \
                            : __builtin_convertvector((ints)((in) >> (4 * (i)) & 15), floats))

/* `rows` rows of x by `panels` panels: constants wherever this is used, so that all sums stay in registers. */
INLINE void tile(int bits, int rows, int panels, const struct matrix *m, long panel, const float *x, const float *sums,
                 float *y) {
    const int per_word = 32 / bits;
    const long columns = m->columns, blocks = columns / BLOCK, block = bits == BFLOAT16 ? columns : BLOCK;
    const uint32_t *from_word = m->words + panel * PANEL * (columns / per_word);
    const float *scales = m->scales + panel * PANEL * blocks * 2;
    floats total[6][8], part[6][8];
    EACH(r, rows) EACH(h, 2 * panels) total[r][h] = (floats){0};
    for (long start = 0; start < columns; start += block) {
        EACH(r, rows) EACH(h, 2 * panels) part[r][h] = (floats){0};
        for (long k = start; k < start + block; k += per_word) {
            EACH(h, 2 * panels) {
                const uint32_t *at = from_word + (h / 2) * PANEL * (columns / per_word) + k / per_word * PANEL + h % 2 * HALF;
                words in;
                memcpy(&in, at, sizeof in);
                if (h % 2 == 0) __builtin_prefetch(at + AHEAD);
                EACH(i, per_word) {
                    const floats weight = COLUMN(bits, in, i);
                    EACH(r, rows) part[r][h] += x[r * columns + k + i] * weight;
                }
            }
        }
        if (bits == BFLOAT16) break; /* all columns are one block without a scale */
        EACH(h, 2 * panels) {
            const float *of = scales + ((h / 2) * blocks + start / BLOCK) * 2 * PANEL + h % 2 * HALF;
            floats scale, offset;
            memcpy(&scale, of, sizeof scale);
            memcpy(&offset, of + PANEL, sizeof offset);
            EACH(r, rows) total[r][h] += part[r][h] * scale + sums[r * blocks + start / BLOCK] * offset;
        }
    }
    EACH(r, rows) memcpy(y + r * m->rows + panel * PANEL, bits == BFLOAT16 ? part[r] : total[r], 4 * PANEL * panels);
}

/* One or two rows take several panels at a time: sums enough to hide how long an addition takes. */
INLINE void band(int bits, const struct matrix *m, const float *x, const float *sums, float *y, long rows, long from,
                 long to) {
    const long columns = m->columns, blocks = columns / BLOCK;
    long p = from;
    if (rows == 1) for (; p + 4 <= to; p += 4) tile(bits, 1, 4, m, p, x, sums, y);
    if (rows == 2) for (; p + 2 <= to; p += 2) tile(bits, 2, 2, m, p, x, sums, y);
    for (; p < to; p++) {
        long r = 0;
        for (; r + 6 <= rows; r += 6) tile(bits, 6, 1, m, p, x + r * columns, sums + r * blocks, y + r * m->rows);
        for (; r + 4 <= rows; r += 4) tile(bits, 4, 1, m, p, x + r * columns, sums + r * blocks, y + r * m->rows);
        for (; r + 2 <= rows; r += 2) tile(bits, 2, 1, m, p, x + r * columns, sums + r * blocks, y + r * m->rows);
        for (; r < rows; r++) tile(bits, 1, 1, m, p, x + r * columns, sums + r * blocks, y + r * m->rows);
    }
}

#define BAND(bits)                                                                                                  \
    FOR_EACH_PROCESSOR static void band_##bits(const struct matrix *m, const float *x, const float *sums, float *y, \
                                               long rows, long from, long to) {                                     \
        band(bits, m, x, sums, y, rows, from, to);                                                                  \
    }
BAND(16)
BAND(8)
BAND(4)

/* y [rows, matrix_rows] = x [rows, columns] times the matrix; sums [rows, blocks] is room to work in. */
void pagefence_panel_product(int bits, const uint32_t *words, const float *scales, const float *x, float *sums,
                             float *y, long rows, long matrix_rows, long columns) {
    const struct matrix m = {words, scales, matrix_rows, columns};
    const long panels = matrix_rows / PANEL, blocks = bits == BFLOAT16 ? 0 : rows * (columns / BLOCK);
    for (long b = 0; b < blocks; b++) {
        float sum = 0;
        for (int k = 0; k < BLOCK; k++) sum += x[b * BLOCK + k];
        sums[b] = sum;
    }
#pragma omp parallel
    {
        const long thread = omp_get_thread_num(), threads = omp_get_num_threads();
        const long from = panels * thread / threads, to = panels * (thread + 1) / threads;
        if (bits == BFLOAT16) band_16(&m, x, sums, y, rows, from, to);
        if (bits == EIGHT_BITS) band_8(&m, x, sums, y, rows, from, to);
        if (bits == FOUR_BITS) band_4(&m, x, sums, y, rows, from, to);
    }
}
