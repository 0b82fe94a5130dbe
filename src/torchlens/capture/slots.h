/* What hot.c and prepare.c share: how the slots of Python's objects are read and written in place. */
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

/* Look up what Python has given by keyword arguments; -1 if something is missing, or is not what it must be. */
int take_objects(const Given *objects, size_t many, PyObject *given);
int are_getters(PyObject **const *getters, size_t many);
int find_slots(const Slot *slots, size_t many, PyObject *given);

/* Of prepare.c: `configure_preparing` and the functions that prepare a run. */
extern PyMethodDef PREPARING[];
