/* The module made of these files: what Python gives to all of them, and small steps that they share. */
#include "shared.h"

PyObject *Tensor, *Parameter, *Value, *KNOWN, *PLAIN, *MODULE_BOUNDARY;
PyObject *shape_getter, *dtype_getter, *device_getter, *requires_grad_getter;

static const Given OBJECTS[] = {
    OBJECT(Tensor), OBJECT(Parameter), OBJECT(Value), OBJECT(KNOWN), OBJECT(PLAIN), OBJECT(MODULE_BOUNDARY),
    OBJECT(shape_getter), OBJECT(dtype_getter), OBJECT(device_getter), OBJECT(requires_grad_getter),
};

Py_ssize_t value_index, value_role, value_call, value_position, value_address, value_transformed, value_grad_fn;
Py_ssize_t value_facts, value_kept;
Py_ssize_t function_simple, function_in_place, function_fresh, function_switch, function_is_metadata_query;

static const Slot SLOTS[] = {
    {"Value", "index", &value_index}, {"Value", "role", &value_role}, {"Value", "call", &value_call},
    {"Value", "position", &value_position}, {"Value", "address", &value_address},
    {"Value", "transformed", &value_transformed}, {"Value", "grad_fn", &value_grad_fn},
    {"Value", "_facts", &value_facts}, {"Value", "kept", &value_kept},
    {"Function", "simple", &function_simple}, {"Function", "in_place", &function_in_place},
    {"Function", "fresh", &function_fresh}, {"Function", "switch", &function_switch},
    {"Function", "is_metadata_query", &function_is_metadata_query},
};

/* ---- small steps ------------------------------------------------------------------------------------------------ */

/* Is what a weak reference refers to this object? */
int refers_to(PyObject *reference, PyObject *object)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *referent;
    if (PyWeakref_GetRef(reference, &referent) <= 0) return 0;
    Py_DECREF(referent);
    return referent == object;
#else
    return PyWeakref_GET_OBJECT(reference) == object;
#endif
}

int is_plain(PyObject *argument)
{
    PyTypeObject *kind = Py_TYPE(argument);
    if (kind == &PyLong_Type || kind == &PyFloat_Type || kind == &PyBool_Type || argument == Py_None) return 1;
    return PySet_Contains(PLAIN, (PyObject *)kind);
}

/* As `all_plain` in containers.py, for a tuple. */
int all_plain(PyObject *tuple)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *member = PyTuple_GET_ITEM(tuple, i);
        int plain;
        if (PySlice_Check(member)) {
            PySliceObject *slice = (PySliceObject *)member;
            plain = is_plain(slice->start);
            if (plain > 0) plain = is_plain(slice->stop);
            if (plain > 0) plain = is_plain(slice->step);
        } else plain = is_plain(member);
        if (plain <= 0) return plain;
    }
    return 1;
}

PyObject *code_of(PyFrameObject *frame) /* borrowed: the frame has it */
{
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    Py_DECREF(code);
    return code;
}

/* Where in its code a frame is; as `f_lasti`. */
long instruction_of(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    PyObject *instruction = PyObject_GetAttrString((PyObject *)frame, "f_lasti");
    long number = instruction ? PyLong_AsLong(instruction) : -1;
    Py_XDECREF(instruction);
    return number;
#endif
}

/* The next frame outwards. Takes the reference to this one, gives one to that, or NULL. */
PyFrameObject *outer_frame(PyFrameObject *frame)
{
    PyFrameObject *outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    return outer;
}

int are_plain_tensors(PyObject *result)
{
    if (!PyTuple_Check(result) && !PyList_CheckExact(result)) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++)
        if ((PyObject *)Py_TYPE(PySequence_Fast_GET_ITEM(result, i)) != Tensor) return 0;
    return PySequence_Fast_GET_SIZE(result) > 0;
}

/* No tensor subclass takes part: the types are those that torch names where there is none. */
int no_subclass(PyObject *types)
{
    if (!PyTuple_CheckExact(types)) return 0;
    return PyTuple_GET_SIZE(types) == 0 || (PyTuple_GET_SIZE(types) == 1 && PyTuple_GET_ITEM(types, 0) == Tensor);
}

/* As `Function.is_on`, but 0 if the function has no switch. */
int is_switched_on(PyObject *function, PyObject *args, PyObject *kwargs)
{
    PyObject *where = SLOT(function, function_switch);
    if (where == Py_None) return 0;
    Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(where, 0));
    PyObject *argument = NULL;
    if (position < PyTuple_GET_SIZE(args)) argument = PyTuple_GET_ITEM(args, position);
    else if (kwargs != NULL) argument = PyDict_GetItemWithError(kwargs, PyTuple_GET_ITEM(where, 1));
    if (argument == NULL) return PyErr_Occurred() ? -1 : 0;
    return PyObject_IsTrue(argument);
}

/* ---- what Python gives ------------------------------------------------------------------------------------------ */

/* Where an attribute of a class's `__slots__` lies in its objects; -1 if it is none. */
static Py_ssize_t offset_of(PyObject *owner, const char *name)
{
    PyObject *descriptor = PyObject_GetAttrString(owner, name);
    if (descriptor == NULL) return -1;
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
        PyErr_Format(PyExc_TypeError, "%R is not a slot of %R", descriptor, owner);
        Py_DECREF(descriptor);
        return -1;
    }
    Py_ssize_t offset = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    Py_DECREF(descriptor);
    return offset;
}

static PyObject *given_as(const char *name, PyObject *given)
{
    PyObject *object = given ? PyDict_GetItemString(given, name) : NULL;
    if (object == NULL) PyErr_Format(PyExc_TypeError, "%s is missing", name);
    return object;
}

int take_objects(const Given *objects, size_t many, PyObject *given)
{
    for (size_t i = 0; i < many; i++) {
        PyObject *object = given_as(objects[i].name, given);
        if (object == NULL) return -1;
        Py_XSETREF(*objects[i].place, Py_NewRef(object));
    }
    return 0;
}

int are_getters(PyObject **const *getters, size_t many)
{
    for (size_t i = 0; i < many; i++)
        if (!Py_IS_TYPE(*getters[i], &PyGetSetDescr_Type)) {
            PyErr_Format(PyExc_TypeError, "%R is no getter", *getters[i]);
            return -1;
        }
    return 0;
}

int find_slots(const Slot *slots, size_t many, PyObject *given)
{
    for (size_t i = 0; i < many; i++) {
        PyObject *owner = given_as(slots[i].owner, given);
        if (owner == NULL || (*slots[i].offset = offset_of(owner, slots[i].name)) < 0) return -1;
    }
    return 0;
}

int make_words(const Word *words, size_t many)
{
    for (size_t i = 0; i < many; i++) {
        PyObject *word = PyUnicode_InternFromString(words[i].text);
        if (word == NULL) return -1;
        Py_XSETREF(*words[i].place, word);
    }
    return 0;
}

static PyObject *configure_shared(PyObject *self, PyObject *args, PyObject *given)
{
    PyObject **getters[] = {&shape_getter, &dtype_getter, &device_getter, &requires_grad_getter};
    if (take_objects(OBJECTS, COUNT(OBJECTS), given) < 0 || are_getters(getters, COUNT(getters)) < 0) return NULL;
    if (find_slots(SLOTS, COUNT(SLOTS), given) < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static PyMethodDef FUNCTIONS[] = {
    {"configure_shared", NAMED(configure_shared), "What all files are to use."},
    {NULL},
};

static struct PyModuleDef DEFINITION = {PyModuleDef_HEAD_INIT, "_hot", "The hot path of a capture.", -1, FUNCTIONS};

static int add_methods(PyObject *module, PyMethodDef *methods)
{
    for (; methods->ml_name != NULL; methods++) {
        PyObject *function = PyCFunction_New(methods, NULL), *method = function ? PyInstanceMethod_New(function) : NULL;
        int failed = method == NULL || PyModule_AddObjectRef(module, methods->ml_name, method) < 0;
        Py_XDECREF(function);
        Py_XDECREF(method);
        if (failed) return -1;
    }
    return 0;
}

PyMODINIT_FUNC PyInit__hot(void)
{
    PyObject *module = PyModule_Create(&DEFINITION);
    PyMethodDef *functions[] = {RECORDING, OBSERVING, PREPARING}, *methods[] = {RECORDING_METHODS, OBSERVING_METHODS};
    for (size_t i = 0; module != NULL && i < COUNT(functions); i++)
        if (PyModule_AddFunctions(module, functions[i]) < 0) Py_CLEAR(module);
    for (size_t i = 0; module != NULL && i < COUNT(methods); i++)
        if (add_methods(module, methods[i]) < 0) Py_CLEAR(module);
    return module;
}
