/* What the files in C share: hot.c and observe.c record calls, prepare.c prepares runs, shared.c is the module.
 *
 * Only CPython's API is used, nothing of torch's: a tensor is asked by calling what Python calls, the getters of its
 * class. All classes are Python's own. Their slots are read and written in place, at the offsets that their member
 * descriptors tell (`Slot`).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h> /* later, Python.h has what is needed of it */
#endif

/* Where an attribute of a class's `__slots__` lies in its objects, as the member descriptor tells. */
typedef struct { const char *owner, *name; Py_ssize_t *offset; } Slot;

/* An object that Python gives, by name. */
typedef struct { const char *name; PyObject **place; } Given;

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define OBJECT(name) {#name, &name}
#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

static inline void put(PyObject *object, Py_ssize_t offset, PyObject *value) /* takes the reference */
{
    PyObject *before = SLOT(object, offset);
    SLOT(object, offset) = value;
    Py_XDECREF(before);
}

/* An attribute of a tensor, through the getter that its class has for it. */
static inline PyObject *get(PyObject *getter, PyObject *tensor)
{
    PyGetSetDef *attribute = ((PyGetSetDescrObject *)getter)->d_getset;
    return attribute->get(tensor, attribute->closure);
}

/* Is an answer true? Takes the reference; -1 if there is none, because something was raised. */
static inline int is_true(PyObject *answer)
{
    if (answer == NULL) return -1;
    int is = answer == Py_True ? 1 : answer == Py_False || answer == Py_None ? 0 : PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return is;
}

/* A word of Python's, made once. */
typedef struct { const char *text; PyObject **place; } Word;

/* Look up what Python has given by keyword arguments; -1 if something is missing, or is not what it must be. */
int take_objects(const Given *objects, size_t many, PyObject *given);
int are_getters(PyObject **const *getters, size_t many);
int find_slots(const Slot *slots, size_t many, PyObject *given);
int make_words(const Word *words, size_t many);

/* What all files use of what Python gives: `configure_shared`. */
extern PyObject *Tensor, *Parameter, *Value, *KNOWN, *PLAIN, *MODULE_BOUNDARY;
extern PyObject *shape_getter, *dtype_getter, *device_getter, *requires_grad_getter;
extern Py_ssize_t value_index, value_role, value_call, value_position, value_address, value_transformed, value_grad_fn;
extern Py_ssize_t value_facts, value_kept;
extern Py_ssize_t function_simple, function_in_place, function_fresh, function_switch, function_is_metadata_query;

/* Small steps. */
int refers_to(PyObject *reference, PyObject *object);
int is_plain(PyObject *argument);
int all_plain(PyObject *tuple);
int are_plain_tensors(PyObject *result);
int no_subclass(PyObject *types);
int is_switched_on(PyObject *function, PyObject *args, PyObject *kwargs);
PyObject *code_of(PyFrameObject *frame);
long instruction_of(PyFrameObject *frame);
PyFrameObject *outer_frame(PyFrameObject *frame);

/* The functions of the other files, and methods of the classes that they are put into; both end with an empty one. */
#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL
#define NAMED(function) (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS
extern PyMethodDef RECORDING[], RECORDING_METHODS[], OBSERVING[], OBSERVING_METHODS[], PREPARING[];
