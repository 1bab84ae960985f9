/* The inner loops of a replay, over flat arrays: the order of events on each host thread, an order
   in which every node comes after all that it waits for, the time of every node, shorter own times,
   and events that go.

   detector/replay/solve.py has the same in Python and says what they compute; a property test
   compares them. Indices are checked before the lock is given up, so that no array can make these
   read or write outside their buffers. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 12 };

/* -- arguments ---------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer b[MOST];
    int count;
} Arrays;

static void release(Arrays *a) {
    for (int i = 0; i < a->count; i++) PyBuffer_Release(&a->b[i]);
    a->count = 0;
}

/* One letter for each array: 1, 4 or 8 bytes a value (b, i, l); upper-case ones are written. */
static int take(Arrays *a, PyObject *const *args, Py_ssize_t given, const char *sizes) {
    a->count = 0;
    if (given != (Py_ssize_t)strlen(sizes)) {
        PyErr_Format(PyExc_TypeError, "%zd arrays are wanted, not %zd", strlen(sizes), given);
        return 0;
    }
    for (const char *s = sizes; *s; s++) {
        int write = *s <= 'Z';
        int size = *s == 'b' || *s == 'B' ? 1 : *s == 'i' || *s == 'I' ? 4 : 8;
        int flags = PyBUF_C_CONTIGUOUS | (write ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(args[s - sizes], &a->b[a->count], flags) < 0) return 0;
        a->count++;
        if (a->b[a->count - 1].itemsize != size) {
            PyErr_SetString(PyExc_ValueError, "an array of another type");
            return 0;
        }
    }
    return 1;
}

static Py_ssize_t size(const Arrays *a, int i) { return a->b[i].len / a->b[i].itemsize; }

static int within(const int32_t *values, Py_ssize_t count, int32_t low, Py_ssize_t high) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (values[i] < low || values[i] >= high) return 0;
    return 1;
}

/* Bounds that begin at 0, never fall and end at `last`. */
static int bounds(const int32_t *ptr, Py_ssize_t count, Py_ssize_t last) {
    if (count < 1 || ptr[0] != 0 || ptr[count - 1] != last) return 0;
    for (Py_ssize_t i = 1; i < count; i++)
        if (ptr[i] < ptr[i - 1]) return 0;
    return 1;
}

static PyObject *refuse(Arrays *a) {
    release(a);
    PyErr_SetString(PyExc_ValueError, "indices outside the arrays");
    return NULL;
}

/* -- the order of begins and ends on each thread ------------------------------------------------- */

typedef struct {
    int64_t end;
    int32_t row;
} Open;

/* Ends first; of one time the inner, which is the later row. */
static int sooner(Open x, Open y) { return x.end != y.end ? x.end < y.end : x.row > y.row; }

static void push(Open *heap, int32_t *count, Open item) {
    int32_t i = (*count)++;
    while (i > 0 && sooner(item, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = item;
}

static int32_t pop(Open *heap, int32_t *count) {
    int32_t top = heap[0].row;
    Open item = heap[--*count];
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= *count) break;
        if (child + 1 < *count && sooner(heap[child + 1], heap[child])) child++;
        if (!sooner(heap[child], item)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = item;
    return top;
}

/* rows: of host events, by start; ptr: where each track's nodes begin; nodes: filled. */
static int sequence(const int32_t *rows, Py_ssize_t count, const int64_t *start, const int64_t *dur,
                    const int32_t *track, const int32_t *ptr, Py_ssize_t tracks, int32_t *nodes) {
    Open *heap = malloc(((size_t)count + 1) * sizeof *heap);
    int32_t *open = calloc((size_t)tracks + 1, sizeof *open);
    int32_t *at = malloc(((size_t)tracks + 1) * sizeof *at);
    int good = heap && open && at;
    if (good) memcpy(at, ptr, (size_t)tracks * sizeof *at);
    for (Py_ssize_t k = 0; good && k < count; k++) {
        int32_t row = rows[k], t = track[row];
        Open *mine = heap + ptr[t] / 2;
        while (open[t] && mine[0].end <= start[row]) nodes[at[t]++] = 2 * pop(mine, &open[t]) + 1;
        nodes[at[t]++] = 2 * row;
        if (dur[row] == 0)
            nodes[at[t]++] = 2 * row + 1;
        else
            push(mine, &open[t], (Open){start[row] + dur[row], row});
    }
    for (Py_ssize_t t = 0; good && t < tracks; t++)
        while (open[t]) nodes[at[t]++] = 2 * pop(heap + ptr[t] / 2, &open[t]) + 1;
    free(heap);
    free(open);
    free(at);
    return good;
}

static PyObject *sequences(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Arrays a;
    if (!take(&a, args, given, "illiiI")) {
        release(&a);
        return NULL;
    }
    const int32_t *rows = a.b[0].buf, *track = a.b[3].buf, *ptr = a.b[4].buf;
    const int64_t *start = a.b[1].buf, *dur = a.b[2].buf;
    Py_ssize_t count = size(&a, 0), all = size(&a, 1), tracks = size(&a, 4) - 1;
    int good = tracks >= 0 && size(&a, 2) == all && size(&a, 3) == all &&
               size(&a, 5) == 2 * count && bounds(ptr, tracks + 1, 2 * count) &&
               within(rows, count, 0, all);
    int32_t *left = good ? malloc(((size_t)tracks + 1) * sizeof *left) : NULL;
    for (Py_ssize_t t = 0; left && t < tracks; t++) left[t] = ptr[t + 1] - ptr[t];
    for (Py_ssize_t k = 0; good && left && k < count; k++) {
        int32_t t = track[rows[k]];
        good = t >= 0 && t < tracks && (left[t] -= 2) >= 0 && dur[rows[k]] >= 0;
    }
    int filled = good && left;
    free(left);
    if (!good) return refuse(&a);
    int32_t *nodes = a.b[5].buf;
    Py_BEGIN_ALLOW_THREADS
    filled = filled && sequence(rows, count, start, dur, track, ptr, tracks, nodes);
    Py_END_ALLOW_THREADS
    release(&a);
    if (!filled) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* -- an order in which to compute ---------------------------------------------------------------- */

static int ready(int32_t node, const int32_t *dep_ptr, const int32_t *dep_on, const char *known) {
    for (int32_t j = dep_ptr[node]; j < dep_ptr[node + 1]; j++)
        if (!known[dep_on[j]]) return 0;
    return 1;
}

/* Walks each track as far as what it waits for is known, in turn. Returns how many nodes it had. */
static Py_ssize_t walk(const int32_t *nodes, const int32_t *ptr, Py_ssize_t tracks,
                       const int32_t *dep_ptr, const int32_t *dep_on, char *known, int32_t *at,
                       int32_t *left, int32_t *order) {
    Py_ssize_t done = 0, open = tracks, before = -1;
    for (Py_ssize_t t = 0; t < tracks; t++) left[t] = (int32_t)t;
    memcpy(at, ptr, (size_t)tracks * sizeof *at);
    while (open && done > before) {
        Py_ssize_t still = 0;
        before = done;
        for (Py_ssize_t k = 0; k < open; k++) {
            int32_t t = left[k];
            while (at[t] < ptr[t + 1] && ready(nodes[at[t]], dep_ptr, dep_on, known)) {
                known[nodes[at[t]]] = 1;
                order[done++] = nodes[at[t]++];
            }
            if (at[t] < ptr[t + 1]) left[still++] = t;
        }
        open = still;
    }
    return done;
}

static PyObject *arrange(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Arrays a;
    if (!take(&a, args, given, "iiiiI")) {
        release(&a);
        return NULL;
    }
    const int32_t *nodes = a.b[0].buf, *ptr = a.b[1].buf;
    const int32_t *dep_ptr = a.b[2].buf, *dep_on = a.b[3].buf;
    Py_ssize_t count = size(&a, 0), tracks = size(&a, 1) - 1, all = size(&a, 2) - 1;
    int good = tracks >= 0 && all >= 0 && size(&a, 4) == count &&
               bounds(ptr, tracks + 1, count) && bounds(dep_ptr, all + 1, size(&a, 3)) &&
               within(nodes, count, 0, all) && within(dep_on, size(&a, 3), 0, all);
    if (!good) return refuse(&a);
    char *known = calloc((size_t)all + 1, 1);
    int32_t *at = malloc(((size_t)tracks + 1) * sizeof *at);
    int32_t *left = malloc(((size_t)tracks + 1) * sizeof *left);
    Py_ssize_t done = -1;
    if (known && at && left) {
        Py_BEGIN_ALLOW_THREADS
        done = walk(nodes, ptr, tracks, dep_ptr, dep_on, known, at, left, a.b[4].buf);
        Py_END_ALLOW_THREADS
    }
    free(known);
    free(at);
    free(left);
    release(&a);
    return done < 0 ? PyErr_NoMemory() : PyLong_FromSsize_t(done);
}

/* -- the times ----------------------------------------------------------------------------------- */

enum { ORDER, PREV, GAP, DUR, DEP_PTR, DEP_ON, DELAY, KIND, MUTE, ORIGIN, FLOOR, TIME };

static void run(const Arrays *a) {
    const int32_t *order = a->b[ORDER].buf, *prev = a->b[PREV].buf;
    const int64_t *gap = a->b[GAP].buf, *dur = a->b[DUR].buf, *delay = a->b[DELAY].buf;
    const int32_t *dep_ptr = a->b[DEP_PTR].buf, *dep_on = a->b[DEP_ON].buf;
    const uint8_t *kind = a->b[KIND].buf, *mute = a->b[MUTE].buf;
    const int64_t *origin = a->b[ORIGIN].buf, floor = *(const int64_t *)a->b[FLOOR].buf;
    int64_t *time = a->b[TIME].buf;
    Py_ssize_t count = size(a, ORDER);
    for (Py_ssize_t k = 0; k < count; k++) {
        int32_t node = order[k], p = prev[node];
        int64_t begin = p >= 0 ? time[p] + gap[node] : INT64_MIN;
        for (int32_t j = dep_ptr[node]; j < dep_ptr[node + 1]; j++) {
            if (kind[j] & mute[node]) continue;
            int64_t at = time[dep_on[j]] + delay[j];
            if (at > begin) begin = at;
        }
        if (begin == INT64_MIN)
            begin = dep_ptr[node] == dep_ptr[node + 1] ? origin[node] : floor;
        time[node] = begin + dur[node];
    }
}

static PyObject *times(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Arrays a;
    if (!take(&a, args, given, "iilliilbbllL")) {
        release(&a);
        return NULL;
    }
    Py_ssize_t all = size(&a, PREV), deps = size(&a, DEP_ON);
    int good = size(&a, GAP) == all && size(&a, DUR) == all && size(&a, MUTE) == all &&
               size(&a, ORIGIN) == all && size(&a, TIME) == all && size(&a, FLOOR) == 1 &&
               size(&a, DELAY) == deps && size(&a, KIND) == deps && size(&a, DEP_PTR) == all + 1 &&
               bounds(a.b[DEP_PTR].buf, all + 1, deps) &&
               within(a.b[ORDER].buf, size(&a, ORDER), 0, all) &&
               within(a.b[PREV].buf, all, -1, all) && within(a.b[DEP_ON].buf, deps, 0, all);
    if (!good) return refuse(&a);
    Py_BEGIN_ALLOW_THREADS
    run(&a);
    Py_END_ALLOW_THREADS
    release(&a);
    Py_RETURN_NONE;
}

/* -- own times ----------------------------------------------------------------------------------- */

/* rows: whose own time is at most `most`; nodes[ptr[r] .. ptr[r + 1]] are the parts of row r. */
static void shrink(const Arrays *a) {
    const int64_t *rows = a->b[0].buf, *most = a->b[1].buf;
    const int32_t *ptr = a->b[2].buf, *nodes = a->b[3].buf;
    int64_t *gap = a->b[4].buf;
    for (Py_ssize_t k = 0; k < size(a, 0); k++) {
        int32_t first = ptr[rows[k]], last = ptr[rows[k] + 1];
        int64_t now = 0;
        for (int32_t j = first; j < last; j++) now += gap[nodes[j]];
        if (now <= most[k]) continue;
        double limit = (double)most[k], all = (double)now;
        for (int32_t j = first; j < last; j++)
            gap[nodes[j]] = (int64_t)((double)gap[nodes[j]] * limit / all);
    }
}

static PyObject *cap(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Arrays a;
    if (!take(&a, args, given, "lliiL")) {
        release(&a);
        return NULL;
    }
    const int64_t *rows = a.b[0].buf;
    Py_ssize_t all = size(&a, 2) - 1;
    int good = all >= 0 && size(&a, 1) == size(&a, 0) &&
               bounds(a.b[2].buf, all + 1, size(&a, 3)) &&
               within(a.b[3].buf, size(&a, 3), 0, size(&a, 4));
    for (Py_ssize_t k = 0; good && k < size(&a, 0); k++) good = rows[k] >= 0 && rows[k] < all;
    if (!good) return refuse(&a);
    Py_BEGIN_ALLOW_THREADS
    shrink(&a);
    Py_END_ALLOW_THREADS
    release(&a);
    Py_RETURN_NONE;
}

/* -- events that go ------------------------------------------------------------------------------ */

enum { FIRST, LAST, NODES, GONE, GAPS, MUTES, KINDS };

/* Marks all nodes of the ranges; then those alone whose event reaches out of them; then takes out
   what stays marked. */
static void remove_events(const Arrays *a) {
    const int32_t *first = a->b[FIRST].buf, *last = a->b[LAST].buf, *nodes = a->b[NODES].buf;
    uint8_t *gone = a->b[GONE].buf, *mute = a->b[MUTES].buf;
    const uint8_t kinds = *(const uint8_t *)a->b[KINDS].buf;
    int64_t *gap = a->b[GAPS].buf;
    Py_ssize_t count = size(a, FIRST);
    for (Py_ssize_t k = 0; k < count; k++)
        for (int32_t i = first[k]; i <= last[k]; i++) gone[nodes[i]] = 1;
    for (Py_ssize_t k = 0; k < count; k++)
        for (int32_t i = first[k]; i <= last[k]; i++)
            if (!gone[nodes[i] ^ 1]) gone[nodes[i]] = 2;
    for (Py_ssize_t k = 0; k < count; k++)
        for (int32_t i = first[k]; i <= last[k]; i++) {
            int32_t node = nodes[i];
            if (gone[node] == 2) {
                gone[node] = 0;
            } else {
                gap[node] = 0;
                mute[node] |= kinds;
            }
        }
}

static PyObject *take_out(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    Arrays a;
    if (!take(&a, args, given, "iiiBLBb")) {
        release(&a);
        return NULL;
    }
    Py_ssize_t all = size(&a, GONE), places = size(&a, NODES);
    int good = all % 2 == 0 && size(&a, GAPS) == all && size(&a, MUTES) == all &&
               size(&a, KINDS) == 1 && size(&a, LAST) == size(&a, FIRST) &&
               within(a.b[FIRST].buf, size(&a, FIRST), 0, places) &&
               within(a.b[LAST].buf, size(&a, LAST), 0, places) &&
               within(a.b[NODES].buf, places, 0, all);
    if (!good) return refuse(&a);
    Py_BEGIN_ALLOW_THREADS
    remove_events(&a);
    Py_END_ALLOW_THREADS
    release(&a);
    Py_RETURN_NONE;
}

/* -- the module ---------------------------------------------------------------------------------- */

#define FAST(f) (PyCFunction)(void (*)(void)) f

static PyMethodDef methods[] = {
    {"sequences", FAST(sequences), METH_FASTCALL,
     "sequences(rows, start, dur, track, ptr, nodes): fills nodes, begins and ends in order."},
    {"arrange", FAST(arrange), METH_FASTCALL,
     "arrange(nodes, ptr, dep_ptr, dep_on, order): fills order; how many nodes it could place."},
    {"times", FAST(times), METH_FASTCALL,
     "times(order, prev, gap, dur, dep_ptr, dep_on, delay, kind, mute, origin, floor, time): fills\n"
     "time."},
    {"cap", FAST(cap), METH_FASTCALL,
     "cap(rows, most, ptr, nodes, gap): changes gap, the parts of each row to so much together."},
    {"take_out", FAST(take_out), METH_FASTCALL,
     "take_out(first, last, nodes, gone, gap, mute, kinds): changes gone, gap and mute."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "detector.replay._solve", .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__solve(void) { return PyModuleDef_Init(&definition); }
