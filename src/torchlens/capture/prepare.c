/* Preparing a run in C: modules and parameters are described, stand-ins put and removed.
 *
 * Each function does what the one of the same name in Python does, to which it hands what is not common: modules that
 * were compiled or scripted, tensors of classes of their own. A small model runs in the time that this takes in Python.
 */
#include "shared.h"

static PyObject *modules_under_in_python, *tensors_of_in_python, *add_stand_in, *class_names;
static PyObject *ModuleInfo, *TensorInfo, *StandIn;
static PyObject *COMPILER, *HOOKS, *FORWARD, *WITH_HOOKS, *NOBODY;

static const Given OBJECTS[] = {
    OBJECT(modules_under_in_python), OBJECT(tensors_of_in_python), OBJECT(add_stand_in), OBJECT(class_names),
    OBJECT(ModuleInfo), OBJECT(TensorInfo), OBJECT(StandIn),
    OBJECT(COMPILER), OBJECT(HOOKS), OBJECT(FORWARD), OBJECT(WITH_HOOKS), OBJECT(NOBODY),
};

static Py_ssize_t stand_in_attributes, stand_in_before, stand_in_called, stand_in_name;

static const Slot SLOTS[] = {
    {"StandIn", "attributes", &stand_in_attributes}, {"StandIn", "before", &stand_in_before},
    {"StandIn", "called", &stand_in_called}, {"StandIn", "name", &stand_in_name},
};

static PyObject *minus_one, *name_modules, *name_training, *param, *empty, *dot;

static const Word WORDS[] = {
    {"_modules", &name_modules}, {"training", &name_training}, {"param", &param}, {"", &empty}, {".", &dot},
};

static PyObject *new_object(PyObject *kind, Py_ssize_t size)
{
    return ((PyTypeObject *)kind)->tp_alloc((PyTypeObject *)kind, size);
}

/* What stands before the name of something inside the module at an address: "" or "block.". */
static PyObject *prefix_of(PyObject *address)
{
    return PyUnicode_GetLength(address) ? PyUnicode_Concat(address, dot) : Py_NewRef(address);
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

typedef struct Above { PyObject *module; const struct Above *above; } Above;

static int add_children(PyObject *children, PyObject *prefix, const Above *above, PyObject *found);

/* 1 if a module and those inside it were added to `found`, 0 if one of them is not common, -1 if something raised. */
static int add_common(PyObject *module, PyObject *address, const Above *above, PyObject *found)
{
    for (const Above *each = above; each != NULL; each = each->above)
        if (each->module == module) return 1; /* it is registered inside itself */
    PyObject *pair = PyTuple_Pack(2, address, module), *children = NULL;
    int added = pair == NULL || PyList_Append(found, pair) < 0 ? -1 : 1;
    Py_XDECREF(pair);
    if (added > 0 && (children = PyObject_GetAttr(module, name_modules)) == NULL) added = -1;
    if (added > 0) added = PyDict_CheckExact(children);
    if (added > 0 && PyDict_GET_SIZE(children) > 0) {
        const Above inside = {module, above};
        PyObject *prefix = prefix_of(address);
        added = prefix ? add_children(children, prefix, &inside, found) : -1;
        Py_XDECREF(prefix);
    }
    Py_XDECREF(children);
    return added;
}

static int add_children(PyObject *children, PyObject *prefix, const Above *above, PyObject *found)
{
    if (Py_EnterRecursiveCall(" while the modules of a model were listed")) return -1;
    PyObject *name, *child;
    int added = 1;
    for (Py_ssize_t at = 0; added > 0 && PyDict_Next(children, &at, &name, &child);) {
        if (child == Py_None) continue;
        Py_INCREF(child);
        PyObject *address = PyUnicode_Concat(prefix, name);
        added = address ? add_common(child, address, above, found) : -1;
        Py_XDECREF(address);
        Py_DECREF(child);
    }
    Py_LeaveRecursiveCall();
    return added;
}

/* _modules_under(model) */
static PyObject *modules_under(PyObject *self, PyObject *model)
{
    PyObject *compiler = PyImport_GetModule(COMPILER), *found = PyList_New(0);
    int added = found == NULL ? -1 : compiler != NULL ? 0 : PyErr_Occurred() ? -1 : 1;
    if (added > 0) added = add_common(model, empty, NULL, found);
    Py_XDECREF(compiler);
    if (added > 0) return found;
    Py_XDECREF(found);
    return added < 0 ? NULL : PyObject_CallOneArg(modules_under_in_python, model);
}

/* What is known of a module, as a ModuleInfo; `classes` has the names of the classes that were met before. */
static PyObject *info_of_module(PyObject *address, PyObject *module, PyObject *classes)
{
    PyObject *kind = (PyObject *)Py_TYPE(module), *names = PyDict_GetItemWithError(classes, kind);
    Py_XINCREF(names);
    if (names == NULL && !PyErr_Occurred()) {
        names = PyObject_CallOneArg(class_names, kind);
        if (names != NULL && PyDict_SetItem(classes, kind, names) < 0) Py_CLEAR(names);
    }
    if (names == NULL) return NULL;
    PyObject *training = PyObject_GetAttr(module, name_training), *info = NULL;
    if (training == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) { /* a frozen TorchScript module */
        PyErr_Clear();
        training = Py_NewRef(Py_False);
    }
    PyObject *addresses = training ? PyTuple_Pack(1, address) : NULL;
    if (addresses != NULL) info = new_object(ModuleInfo, 6);
    if (info != NULL) {
        PyObject *fields[] = {address, addresses, PyTuple_GET_ITEM(names, 0), training, PyTuple_GET_ITEM(names, 1),
                              PyTuple_GET_ITEM(names, 2)};
        for (int i = 0; i < 6; i++) PyTuple_SET_ITEM(info, i, Py_NewRef(fields[i]));
    }
    Py_DECREF(names);
    Py_XDECREF(training);
    Py_XDECREF(addresses);
    return info;
}

/* One more name in the second field of an info that nobody else has seen yet. */
static int add_names(PyObject *info, PyObject *more)
{
    PyObject *before = PyTuple_GET_ITEM(info, 1), *all = PySequence_Concat(before, more);
    if (all == NULL) return -1;
    PyTuple_SET_ITEM(info, 1, all);
    Py_DECREF(before);
    return 0;
}

static int describe_module(PyObject *pair, PyObject *numbers, PyObject *classes, PyObject *modules, PyObject *infos)
{
    PyObject *address = PyTuple_GET_ITEM(pair, 0), *module = PyTuple_GET_ITEM(pair, 1);
    PyObject *key = PyLong_FromVoidPtr(module), *info = NULL;
    PyObject *number = key ? PyDict_GetItemWithError(numbers, key) : NULL;
    int failed = 1;
    if (number != NULL) { /* it has a name already */
        PyObject *more = PyTuple_Pack(1, address);
        failed = more == NULL || add_names(PyList_GET_ITEM(infos, PyLong_AsSsize_t(number)), more) < 0;
        Py_XDECREF(more);
    } else if (!PyErr_Occurred() && (info = info_of_module(address, module, classes)) != NULL) {
        PyObject *next = PyLong_FromSsize_t(PyList_GET_SIZE(modules));
        failed = next == NULL || PyDict_SetItem(numbers, key, next) < 0 || PyList_Append(modules, module) < 0
                 || PyList_Append(infos, info) < 0;
        Py_XDECREF(next);
    }
    Py_XDECREF(info);
    Py_XDECREF(key);
    return failed ? -1 : 0;
}

/* _each_module(named) */
static PyObject *each_module(PyObject *self, PyObject *named)
{
    PyObject *numbers = PyDict_New(), *classes = PyDict_New(), *modules = PyList_New(0), *infos = PyList_New(0);
    PyObject *both = numbers && classes && modules && infos ? PyTuple_Pack(2, modules, infos) : NULL;
    for (Py_ssize_t i = 0; both != NULL && i < PyList_GET_SIZE(named); i++)
        if (describe_module(PyList_GET_ITEM(named, i), numbers, classes, modules, infos) < 0) Py_CLEAR(both);
    PyObject *own[] = {numbers, classes, modules, infos};
    for (size_t i = 0; i < COUNT(own); i++) Py_XDECREF(own[i]);
    return both;
}

/* ---- parameters and buffers ------------------------------------------------------------------------------------- */

/* What is known of a tensor, as a TensorInfo. */
static PyObject *info_of_tensor(PyObject *tensor, PyObject *names)
{
    PyObject *info = new_object(TensorInfo, 6);
    if (info == NULL) return NULL;
    PyTuple_SET_ITEM(info, 0, Py_NewRef(PyTuple_GET_ITEM(names, 0)));
    PyTuple_SET_ITEM(info, 1, Py_NewRef(names));
    PyObject *getters[] = {shape_getter, dtype_getter, device_getter, requires_grad_getter};
    for (int i = 0; i < 4; i++) {
        PyObject *fact = get(getters[i], tensor);
        if (fact == NULL) {
            Py_DECREF(info);
            return NULL;
        }
        PyTuple_SET_ITEM(info, 2 + i, fact);
    }
    return info;
}

static int describe_tensor(PyObject *tensor, PyObject *names, PyObject *found)
{
    PyObject *key = PyLong_FromVoidPtr(tensor), *about = key ? PyDict_GetItemWithError(found, key) : NULL;
    int failed = 1;
    if (about != NULL) failed = add_names(PyTuple_GET_ITEM(about, 1), names) < 0; /* registered in several modules */
    else if (!PyErr_Occurred()) {
        PyObject *info = info_of_tensor(tensor, names);
        about = info ? PyTuple_Pack(2, tensor, info) : NULL;
        failed = about == NULL || PyDict_SetItem(found, key, about) < 0;
        Py_XDECREF(info);
        Py_XDECREF(about);
    }
    Py_XDECREF(key);
    return failed ? -1 : 0;
}

/* The addresses of what has this name in the module with these addresses. */
static PyObject *names_in(PyObject *addresses, PyObject *name)
{
    PyObject *names = PyTuple_New(PyTuple_GET_SIZE(addresses));
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(addresses); i++) {
        PyObject *prefix = prefix_of(PyTuple_GET_ITEM(addresses, i));
        PyObject *whole = prefix ? PyUnicode_Concat(prefix, name) : NULL;
        Py_XDECREF(prefix);
        if (whole == NULL) Py_CLEAR(names);
        else PyTuple_SET_ITEM(names, i, whole);
    }
    return names;
}

/* 1 if the tensors that a module has were described, 0 if one of them is not common, -1 if something raised. */
static int describe_tensors(PyObject *tensors, PyObject *info, PyObject *found)
{
    PyObject *name, *tensor;
    if (!PyDict_CheckExact(tensors)) return 0;
    for (Py_ssize_t at = 0; PyDict_Next(tensors, &at, &name, &tensor);) {
        PyObject *kind = (PyObject *)Py_TYPE(tensor);
        if (tensor == Py_None) continue;
        if (kind != Parameter && kind != Tensor) return 0;
        PyObject *names = names_in(PyTuple_GET_ITEM(info, 1), name);
        int failed = names == NULL || describe_tensor(tensor, names, found) < 0;
        Py_XDECREF(names);
        if (failed) return -1;
    }
    return 1;
}

/* _tensors_of(modules, infos, attribute) */
static PyObject *tensors_of(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) return PyErr_Format(PyExc_TypeError, "_tensors_of takes modules, infos and attribute");
    PyObject *modules = given[0], *infos = given[1], *found = PyDict_New();
    int common = found ? PyList_GET_SIZE(modules) == PyList_GET_SIZE(infos) : -1;
    for (Py_ssize_t i = 0; common > 0 && i < PyList_GET_SIZE(modules); i++) {
        PyObject *tensors = PyObject_GetAttr(PyList_GET_ITEM(modules, i), given[2]);
        common = tensors ? describe_tensors(tensors, PyList_GET_ITEM(infos, i), found) : -1;
        Py_XDECREF(tensors);
    }
    if (common > 0) return found;
    Py_XDECREF(found);
    return common < 0 ? NULL : PyObject_Vectorcall(tensors_of_in_python, given, 3, NULL);
}

/* The value of a parameter of which this is known. */
static PyObject *param_value(Py_ssize_t number, PyObject *tensor, PyObject *info)
{
    PyObject *value = new_object(Value, 0);
    if (value == NULL) return NULL;
    SLOT(value, value_index) = PyLong_FromSsize_t(number);
    SLOT(value, value_role) = Py_NewRef(param);
    SLOT(value, value_call) = Py_NewRef(minus_one);
    SLOT(value, value_position) = Py_NewRef(Py_None);
    SLOT(value, value_address) = Py_NewRef(PyTuple_GET_ITEM(info, 0));
    SLOT(value, value_facts) = PyTuple_GetSlice(info, 2, 5);
    SLOT(value, value_grad_fn) = Py_NewRef(PyTuple_GET_ITEM(info, 5) == Py_True ? empty : Py_None);
    SLOT(value, value_kept) = Py_NewRef(tensor);
    SLOT(value, value_transformed) = Py_NewRef(Py_None);
    if (PyErr_Occurred()) Py_CLEAR(value);
    return value;
}

/* param_values(params, by_id) */
static PyObject *param_values(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2) return PyErr_Format(PyExc_TypeError, "param_values takes params and by_id");
    PyObject *values = PyList_New(PyList_GET_SIZE(given[0]));
    for (Py_ssize_t i = 0; values != NULL && i < PyList_GET_SIZE(given[0]); i++) {
        PyObject *about = PyList_GET_ITEM(given[0], i), *tensor = PyTuple_GET_ITEM(about, 0);
        PyObject *value = param_value(i, tensor, PyTuple_GET_ITEM(about, 1)), *key = PyLong_FromVoidPtr(tensor);
        int plain = (PyObject *)Py_TYPE(tensor) == Parameter;
        if (value == NULL || key == NULL || (plain && PyDict_SetItem(given[1], key, value) < 0)) {
            Py_CLEAR(values);
            Py_XDECREF(value);
        } else PyList_SET_ITEM(values, i, value);
        Py_XDECREF(key);
    }
    return values;
}

/* ---- stand-ins -------------------------------------------------------------------------------------------------- */

static int has_hooks(PyObject *attributes)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(HOOKS); i++) {
        PyObject *hooks = PyDict_GetItemWithError(attributes, PyTuple_GET_ITEM(HOOKS, i));
        int are_there = hooks ? PyObject_IsTrue(hooks) : PyErr_Occurred() ? -1 : 0;
        if (are_there) return are_there;
    }
    return 0;
}

/* A stand-in for the forward of a module that has no other among its instance attributes. */
static int add_for_forward(PyObject *module, PyObject *attributes, PyObject *put_already)
{
    PyObject *name = PyTuple_GET_ITEM(FORWARD, 0), *method = PyObject_GetAttr(module, name);
    PyObject *called = method ? PyTuple_Pack(3, module, Py_True, method) : NULL;
    PyObject *stand_in = called ? new_object(StandIn, 0) : NULL;
    if (stand_in != NULL) {
        SLOT(stand_in, stand_in_called) = Py_NewRef(called);
        SLOT(stand_in, stand_in_name) = Py_NewRef(name);
        SLOT(stand_in, stand_in_attributes) = Py_NewRef(attributes);
        SLOT(stand_in, stand_in_before) = Py_NewRef(Py_None);
    }
    int failed = stand_in == NULL || PyList_Append(put_already, stand_in) < 0
                 || PyDict_SetItem(attributes, name, stand_in) < 0;
    Py_XDECREF(stand_in);
    Py_XDECREF(called);
    Py_XDECREF(method);
    return failed ? -1 : 0;
}

static int add_to_module(PyObject *module, PyObject *to_replace, PyObject *put_already)
{
    PyObject *names = PyDict_GetItemWithError(to_replace, (PyObject *)Py_TYPE(module));
    PyObject *attributes = names ? PyObject_GenericGetDict(module, NULL) : NULL;
    if (attributes == NULL) return -1;
    int hooks = names == FORWARD ? has_hooks(attributes) : 0, failed = hooks < 0;
    if (hooks > 0) names = WITH_HOOKS;
    int taken = failed ? -1 : PyDict_Contains(attributes, PyTuple_GET_ITEM(FORWARD, 0));
    if (taken < 0) failed = 1;
    else if (names == FORWARD && !taken) failed = add_for_forward(module, attributes, put_already) < 0;
    else for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *done = PyObject_CallFunctionObjArgs(
            add_stand_in, module, PyTuple_GET_ITEM(names, i), put_already, NULL);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_DECREF(attributes);
    return failed ? -1 : 0;
}

/* add_stand_ins(modules, to_replace, put) */
static PyObject *add_stand_ins(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) return PyErr_Format(PyExc_TypeError, "add_stand_ins takes modules, to_replace and put");
    PyObject *modules = PySequence_Fast(given[0], "modules must be a sequence");
    int failed = modules == NULL;
    for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(modules); i++)
        failed = add_to_module(PySequence_Fast_GET_ITEM(modules, i), given[1], given[2]) < 0;
    Py_XDECREF(modules);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* As `StandIn.retire`. */
static int retire(PyObject *stand_in)
{
    PyObject *called = SLOT(stand_in, stand_in_called);
    PyObject *by_nobody = PyTuple_Pack(3, NOBODY, PyTuple_GET_ITEM(called, 1), PyTuple_GET_ITEM(called, 2));
    if (by_nobody == NULL) return -1;
    put(stand_in, stand_in_called, by_nobody);
    PyObject *attributes = SLOT(stand_in, stand_in_attributes), *name = SLOT(stand_in, stand_in_name);
    PyObject *before = SLOT(stand_in, stand_in_before), *there = PyDict_GetItemWithError(attributes, name);
    if (there != stand_in) return PyErr_Occurred() ? -1 : 0; /* the model has put something else there */
    return before == Py_None ? PyDict_DelItem(attributes, name) : PyDict_SetItem(attributes, name, before);
}

/* retire_stand_ins(put, still_used) */
static PyObject *retire_stand_ins(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2) return PyErr_Format(PyExc_TypeError, "retire_stand_ins takes put and still_used");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given[0]); i++) {
        PyObject *stand_in = PyList_GET_ITEM(given[0], i), *key = PyLong_FromVoidPtr(stand_in);
        int used = key ? PySet_Contains(given[1], key) : -1;
        Py_XDECREF(key);
        if (used < 0 || (!used && retire(stand_in) < 0)) return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- what Python gives ------------------------------------------------------------------------------------------ */

static PyObject *configure_preparing(PyObject *self, PyObject *args, PyObject *given)
{
    if (take_objects(OBJECTS, COUNT(OBJECTS), given) < 0 || find_slots(SLOTS, COUNT(SLOTS), given) < 0) return NULL;
    PyObject *number = PyLong_FromLong(-1);
    if (number == NULL || make_words(WORDS, COUNT(WORDS)) < 0) return NULL;
    Py_XSETREF(minus_one, number);
    Py_RETURN_NONE;
}

PyMethodDef PREPARING[] = {
    {"configure_preparing", NAMED(configure_preparing), "What is to be used for preparing."},
    {"_modules_under", modules_under, METH_O, "The modules of a model with their addresses."},
    {"_each_module", each_module, METH_O, "Modules, each once, and what is known of them."},
    {"_tensors_of", FAST(tensors_of), "The tensors of modules, and what is known of them."},
    {"param_values", FAST(param_values), "The values of parameters."},
    {"add_stand_ins", FAST(add_stand_ins), "Put stand-ins among the attributes of modules."},
    {"retire_stand_ins", FAST(retire_stand_ins), "Remove stand-ins."},
    {NULL},
};
