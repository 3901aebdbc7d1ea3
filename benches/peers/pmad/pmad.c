/* The original of PMAD, from its published description, and malloc: pairs of alloc and free, timed 1,000 at once.
 *
 * One mapping, divided among the size classes beforehand; a table from size to class; an intrusive free list for each
 * class; a header of 16 bytes before each block, which names the class. Not for several threads, and a block that is
 * freed twice is given out twice.
 *
 *   pmad pool|malloc SIZE SAMPLES    prints {"p50": ns, "p999": ns} of a pair
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { CLASSES = 9, SMALLEST = 16, LARGEST = 4096, HEADER = 16, PAIRS = 1000 };

typedef struct block {
    struct block *next;
    uint64_t class;
} block;

typedef struct {
    block *free[CLASSES];
    uint8_t class_of[LARGEST / SMALLEST + 1];
    uint32_t size_of[CLASSES];
    uint64_t used, total;
} pool;

static int pool_init(pool *p, uint64_t bytes) {
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return -1;
    memset(p, 0, sizeof *p);
    p->total = bytes;
    for (int c = 0, unit = 0; c < CLASSES; c++) {
        p->size_of[c] = SMALLEST << c;
        for (; unit <= (SMALLEST << c) / SMALLEST; unit++) p->class_of[unit] = (uint8_t)c;
        uint64_t share = bytes / CLASSES, each = p->size_of[c] + HEADER;
        for (uint64_t n = share / each; n-- > 0;) {
            block *b = (block *)(memory + c * share / SMALLEST * SMALLEST + n * each);
            b->class = (uint64_t)c;
            b->next = p->free[c];
            p->free[c] = b;
        }
    }
    return 0;
}

static inline void *pool_alloc(pool *p, size_t size) {
    if (size > LARGEST) return NULL;
    int c = p->class_of[(size + SMALLEST - 1) / SMALLEST];
    block *b = p->free[c];
    if (!b) return NULL;
    p->free[c] = b->next;
    p->used += p->size_of[c];
    return (uint8_t *)b + HEADER;
}

static inline void pool_free(pool *p, void *at) {
    block *b = (block *)((uint8_t *)at - HEADER);
    b->next = p->free[b->class];
    p->free[b->class] = b;
    p->used -= p->size_of[b->class];
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int of_pool = !strcmp(argv[1], "pool");
    size_t size = strtoul(argv[2], NULL, 10);
    long samples = strtol(argv[3], NULL, 10);
    static pool p;
    double *times = calloc((size_t)samples, sizeof *times);
    if (!times || pool_init(&p, 64 << 20)) return 1;
    for (long sample = -samples / 10; sample < samples; sample++) {
        double began = now();
        for (int pair = 0; pair < PAIRS; pair++) {
            /* What the compiler cannot see through is neither left out nor put together. */
            __asm__ volatile("" : "+r"(size));
            void *at = of_pool ? pool_alloc(&p, size) : malloc(size);
            __asm__ volatile("" : "+r"(at) : : "memory");
            if (!at) return 1;
            if (of_pool) pool_free(&p, at); else free(at);
        }
        if (sample >= 0) times[sample] = (now() - began) / PAIRS;
    }
    qsort(times, (size_t)samples, sizeof *times, by_value);
    printf("{\"p50\": %.3f, \"p999\": %.3f}\n", times[samples / 2], times[(long)((double)(samples - 1) * 0.999)]);
    return p.used != 0;
}
