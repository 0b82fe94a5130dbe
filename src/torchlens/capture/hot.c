/* The hot path in C: a torch call of the common kind is recorded here as `Tracer._record` records any kind of call.
 *
 * A call is common if it draws no random numbers, returns one plain tensor or several, and overwrites at most its first
 * argument.
 * `record` below is `Tracer.__torch_function__` wherever this file could be compiled; `enter_module` and `leave_module`
 * do the same for the common call of a module, which takes and returns tensors that are known, and plain objects.
 * What is not common they hand to the methods that are written in Python, and so they do with every rare case within a
 * common call. A test runs each tiny model both ways and compares the traces.
 */
#include "shared.h"
#include <time.h>

/* ---- what Python gives: see `configure` ------------------------------------------------------------------------- */

static PyObject *record_in_python, *enter_in_python, *leave_in_python; /* the methods as they are written in Python */
static PyObject *Call, *ModuleCall, *MODULE_CALL, *MODULE_CALL_INSIDE, *NO_KWARGS, *UNVERSIONED, *UNKNOWN;
static PyObject *NO_STATE, *WITH_GRAD, *INFERENCE, *is_grad_enabled, *is_inference_mode_enabled, *any_autocast;
static PyObject *state_with_autocast, *set_grad_enabled, *no_torch_function, *perf_counter_ns;
static PyObject *lazy_copy, *clone_of, *stride, *data_address, *storage_address, *is_zero_tensor, *is_conj, *is_neg;
static PyObject *version_getter, *is_quantized_getter, *is_cpu_getter, *is_cuda_getter;

static const Given OBJECTS[] = {
    OBJECT(record_in_python), OBJECT(enter_in_python), OBJECT(leave_in_python), OBJECT(Call), OBJECT(ModuleCall),
    OBJECT(MODULE_CALL), OBJECT(MODULE_CALL_INSIDE), OBJECT(NO_KWARGS), OBJECT(UNVERSIONED), OBJECT(UNKNOWN),
    OBJECT(NO_STATE), OBJECT(WITH_GRAD), OBJECT(INFERENCE), OBJECT(is_grad_enabled), OBJECT(is_inference_mode_enabled),
    OBJECT(any_autocast), OBJECT(state_with_autocast), OBJECT(set_grad_enabled), OBJECT(no_torch_function),
    OBJECT(perf_counter_ns), OBJECT(lazy_copy), OBJECT(clone_of), OBJECT(stride), OBJECT(data_address),
    OBJECT(storage_address), OBJECT(is_zero_tensor), OBJECT(is_conj), OBJECT(is_neg), OBJECT(version_getter),
    OBJECT(is_quantized_getter), OBJECT(is_cpu_getter), OBJECT(is_cuda_getter),
};

static Py_ssize_t tracer_busy, tracer_others, tracer_identity, tracer_calls, tracer_values, tracer_module_call;
static Py_ssize_t tracer_last, tracer_told_calls, tracer_observers, tracer_module_calls, tracer_module_numbers;
static Py_ssize_t tracer_call_counts, tracer_forward_due, tracer_sites;
static Py_ssize_t module_module, module_number, module_parent, module_site, module_start, module_stop, module_entered;
static Py_ssize_t module_exited;
static Py_ssize_t identity_live, identity_bound, identity_unwritten_params, identity_foreign, identity_shared;
static Py_ssize_t identity_keeping, identity_keeper, identity_watchful;

static const Slot SLOTS[] = {
    {"Tracer", "busy", &tracer_busy}, {"Tracer", "others", &tracer_others}, {"Tracer", "identity", &tracer_identity},
    {"Tracer", "calls", &tracer_calls}, {"Tracer", "values", &tracer_values},
    {"Tracer", "module_call", &tracer_module_call}, {"Tracer", "last", &tracer_last},
    {"Tracer", "_told_calls", &tracer_told_calls}, {"Tracer", "observers", &tracer_observers},
    {"Tracer", "module_calls", &tracer_module_calls}, {"Tracer", "module_numbers", &tracer_module_numbers},
    {"Tracer", "call_counts", &tracer_call_counts}, {"Tracer", "forward_due", &tracer_forward_due},
    {"Tracer", "sites", &tracer_sites},
    {"ModuleCall", "module", &module_module}, {"ModuleCall", "number", &module_number},
    {"ModuleCall", "parent", &module_parent}, {"ModuleCall", "site", &module_site},
    {"ModuleCall", "start", &module_start}, {"ModuleCall", "stop", &module_stop},
    {"ModuleCall", "entered", &module_entered}, {"ModuleCall", "exited", &module_exited},
    {"Identity", "live", &identity_live}, {"Identity", "bound", &identity_bound},
    {"Identity", "unwritten_params", &identity_unwritten_params}, {"Identity", "foreign", &identity_foreign},
    {"Identity", "shared", &identity_shared}, {"Identity", "keeping", &identity_keeping},
    {"Identity", "keeper", &identity_keeper}, {"Identity", "watchful", &identity_watchful},
};

static PyObject *name_out, *name_op, *name_stored, *name_value_of, *name_grad_fn_of, *name_facts_of, *name_enter;
static PyObject *name_keep, *name_before_write, *name_after_write, *name_is_asked_of, *name_before_call, *name_told;
static PyObject *name_after_failure, *name_after_uncommon, *name_exit;

static const Word NAMES[] = {
    {"out", &name_out}, {"op", &name_op}, {"_stored", &name_stored}, {"value_of", &name_value_of},
    {"grad_fn_of", &name_grad_fn_of}, {"facts_of", &name_facts_of}, {"keep", &name_keep},
    {"before_write", &name_before_write}, {"after_write", &name_after_write}, {"_is_asked_of", &name_is_asked_of},
    {"_before_call", &name_before_call}, {"told", &name_told}, {"_after_failure", &name_after_failure},
    {"_after_uncommon", &name_after_uncommon}, {"__enter__", &name_enter}, {"__exit__", &name_exit},
};

/* ---- small steps ------------------------------------------------------------------------------------------------ */

static int ask(PyObject *function) { return is_true(PyObject_CallNoArgs(function)); }
static int ask_of(PyObject *function, PyObject *tensor) { return is_true(PyObject_CallOneArg(function, tensor)); }

/* The frames from this one outwards, up to the enclosing module call: code and instruction of each. `of_module`: without
 * those that every call of a module has. Returns how many there are, and fills in the first `room` of them. */
typedef struct { PyObject *code; long instruction; } Place; /* the code is borrowed: its frame runs */

static Py_ssize_t places_from(PyFrameObject *innermost, int of_module, Place *places, Py_ssize_t room)
{
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)innermost);
    Py_ssize_t count = 0;
    for (PyObject *code; frame != NULL && (code = code_of(frame)) != MODULE_BOUNDARY; frame = outer_frame(frame)) {
        if (of_module && (code == MODULE_CALL || code == MODULE_CALL_INSIDE)) continue;
        if (count < room) places[count] = (Place){code, instruction_of(frame)};
        count++;
    }
    Py_XDECREF(frame);
    return count;
}

static PyObject *new_site(const Place *places, Py_ssize_t count)
{
    PyObject *site = PyTuple_New(2 * count);
    for (Py_ssize_t i = 0; site != NULL && i < count; i++) {
        PyObject *instruction = PyLong_FromLong(places[i].instruction);
        PyTuple_SET_ITEM(site, 2 * i, Py_NewRef(places[i].code));
        if (instruction == NULL) Py_CLEAR(site);
        else PyTuple_SET_ITEM(site, 2 * i + 1, instruction);
    }
    return site;
}

static int is_site(PyObject *site, const Place *places, Py_ssize_t count)
{
    if (PyTuple_GET_SIZE(site) != 2 * count) return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyTuple_GET_ITEM(site, 2 * i) != places[i].code
            || PyLong_AsLong(PyTuple_GET_ITEM(site, 2 * i + 1)) != places[i].instruction) return 0;
    return 1;
}

/* (code, instruction, code, instruction, ...): of calls in a loop the same object each time, if there are not many. */
static PyObject *site_from(PyObject *tracer, PyFrameObject *innermost, int of_module)
{
    enum { FEW = 16 };
    Place few[FEW], *places = few;
    Py_ssize_t count = places_from(innermost, of_module, few, FEW);
    if (count > FEW) {
        if ((places = PyMem_New(Place, count)) == NULL) return PyErr_NoMemory();
        places_from(innermost, of_module, places, count);
        PyObject *site = new_site(places, count);
        PyMem_Free(places);
        return site;
    }
    size_t hash = 0;
    for (Py_ssize_t i = 0; i < count; i++) hash = hash * 1000003 + ((size_t)places[i].code >> 4) + places[i].instruction;
    PyObject *key = PyLong_FromSize_t(hash), *sites = SLOT(tracer, tracer_sites);
    PyObject *site = key ? PyDict_GetItemWithError(sites, key) : NULL;
    if (site != NULL && is_site(site, places, count)) Py_INCREF(site);
    else if (PyErr_Occurred()) site = NULL;
    else if ((site = new_site(places, count)) != NULL && PyDict_SetItem(sites, key, site) < 0) Py_CLEAR(site);
    Py_XDECREF(key);
    return site;
}

static PyObject *call_site(PyObject *tracer) { return site_from(tracer, PyEval_GetFrame(), 0); }

/* A number of a call: the object that the value with this index has already, where it has. */
static PyObject *number_of(PyObject *tracer, Py_ssize_t number)
{
    PyObject *values = SLOT(tracer, tracer_values);
    if (number < PyList_GET_SIZE(values)) {
        PyObject *index = SLOT(PyList_GET_ITEM(values, number), value_index);
        if (PyLong_AsSsize_t(index) == number) return Py_NewRef(index);
    }
    return PyLong_FromSsize_t(number);
}

/* Nanoseconds, as `time.perf_counter_ns` counts them; -1 if something was raised. */
static long long now(void)
{
#ifdef CLOCK_MONOTONIC
    struct timespec time;
    if (clock_gettime(CLOCK_MONOTONIC, &time) == 0) return time.tv_sec * 1000000000LL + time.tv_nsec;
#endif
    PyObject *count = PyObject_CallNoArgs(perf_counter_ns);
    long long nanoseconds = count ? PyLong_AsLongLong(count) : -1;
    Py_XDECREF(count);
    return nanoseconds;
}

/* Grad mode, inference mode, autocast: as `state_now` in tracer.py. */
static PyObject *state_now(void)
{
    int is = ask(any_autocast);
    if (is) return is < 0 ? NULL : PyObject_CallNoArgs(state_with_autocast);
    if ((is = ask(is_grad_enabled))) return is < 0 ? NULL : Py_NewRef(WITH_GRAD);
    if ((is = ask(is_inference_mode_enabled))) return is < 0 ? NULL : Py_NewRef(INFERENCE);
    return Py_NewRef(NO_STATE);
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

/* The value of a tensor, if `Identity.live` has it and its memory is as it was. NULL if not, or if something raised. */
static PyObject *known_value(PyObject *identity, PyObject *tensor, int is_parameter)
{
    PyObject *key = PyLong_FromVoidPtr(tensor);
    if (key == NULL) return NULL;
    PyObject *table = SLOT(identity, is_parameter ? identity_unwritten_params : identity_live);
    PyObject *entry = PyDict_GetItemWithError(table, key);
    Py_DECREF(key);
    if (entry == NULL || is_parameter) return Py_XNewRef(entry);
    long recorded = refers_to(PyTuple_GET_ITEM(entry, 0), tensor) ? PyLong_AsLong(PyTuple_GET_ITEM(entry, 2)) : -1;
    if (recorded < 0) return NULL;
    PyObject *value = Py_NewRef(PyTuple_GET_ITEM(entry, 1)), *version = get(version_getter, tensor);
    if (version == NULL || PyLong_AsLong(version) != recorded) Py_CLEAR(value);
    Py_XDECREF(version);
    return value;
}

/* The same, but `Identity` finds it where it is not as simple as that. */
static PyObject *value_of(PyObject *identity, PyObject *tensor, int is_parameter)
{
    PyObject *value = known_value(identity, tensor, is_parameter);
    return value != NULL || PyErr_Occurred() ? value : PyObject_CallMethodOneArg(identity, name_value_of, tensor);
}

/* An argument with values in place of tensors. */
static PyObject *stored(PyObject *tracer, PyObject *identity, PyObject *argument)
{
    PyObject *kind = (PyObject *)Py_TYPE(argument);
    if (kind == Tensor || kind == Parameter) return value_of(identity, argument, kind == Parameter);
    int plain = PyTuple_CheckExact(argument) ? all_plain(argument) : is_plain(argument);
    if (plain) return plain < 0 ? NULL : Py_NewRef(argument);
    if (!PyTuple_CheckExact(argument) && !PyList_CheckExact(argument))
        return PyObject_CallMethodOneArg(tracer, name_stored, argument);
    if (Py_EnterRecursiveCall(" while the arguments of a torch call were recorded")) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(argument);
    PyObject *copy = PyList_CheckExact(argument) ? PyList_New(count) : PyTuple_New(count);
    for (Py_ssize_t i = 0; copy != NULL && i < count; i++) {
        PyObject *member = stored(tracer, identity, PySequence_Fast_GET_ITEM(argument, i));
        if (member == NULL) Py_CLEAR(copy);
        else if (PyList_CheckExact(copy)) PyList_SET_ITEM(copy, i, member);
        else PyTuple_SET_ITEM(copy, i, member);
    }
    Py_LeaveRecursiveCall();
    return copy;
}

static PyObject *stored_args(PyObject *tracer, PyObject *identity, PyObject *args)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        PyObject *each = stored(tracer, identity, PyTuple_GET_ITEM(args, i));
        if (each == NULL) Py_CLEAR(all);
        else PyTuple_SET_ITEM(all, i, each);
    }
    return all;
}

static PyObject *stored_kwargs(PyObject *tracer, PyObject *identity, PyObject *kwargs)
{
    if (kwargs == NULL) return Py_NewRef(NO_KWARGS);
    PyObject *all = PyDict_New(), *name, *argument;
    Py_ssize_t at = 0;
    while (all != NULL && PyDict_Next(kwargs, &at, &name, &argument)) {
        PyObject *each = stored(tracer, identity, argument);
        if (each == NULL || PyDict_SetItem(all, name, each) < 0) Py_CLEAR(all);
        Py_XDECREF(each);
    }
    return all;
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

/* How a plain tensor can be kept; `IN_PYTHON` is for rare cases. As `Keeper.keep` decides; -1 if something raised. */
enum { IN_PYTHON, LAZILY, AS_A_COPY };

static int way_to_keep(PyObject *identity, PyObject *tensor, int fresh)
{
    int is = is_true(get(is_quantized_getter, tensor));
    if (is) return is < 0 ? -1 : IN_PYTHON;
    is = is_true(get(is_cpu_getter, tensor));
    if (is == 0) is = is_true(get(is_cuda_getter, tensor));
    if (is <= 0 || fresh) return is < 0 ? -1 : is ? LAZILY : IN_PYTHON;
    PyObject *address = PyObject_CallOneArg(storage_address, tensor);
    if (address == NULL) return -1;
    int foreign = PySet_Contains(SLOT(identity, identity_foreign), address);
    Py_DECREF(address);
    if (foreign >= 0) is = ask_of(is_conj, tensor);
    if (is == 0) is = ask_of(is_neg, tensor);
    if (is == 0) is = ask_of(is_zero_tensor, tensor);
    if (foreign < 0 || is < 0) return -1;
    return is ? IN_PYTHON : foreign ? AS_A_COPY : LAZILY;
}

/* A copy that lies in memory as the tensor does. As `copied` in keeping.py; None if it can't be had as simply. */
static PyObject *copied(PyObject *tensor)
{
    PyObject *address = PyObject_CallOneArg(data_address, tensor), *copy = NULL;
    int there = address ? PyObject_IsTrue(address) : -1;
    Py_XDECREF(address);
    if (there > 0) copy = PyObject_CallOneArg(clone_of, tensor);
    if (copy == NULL) return there == 0 ? Py_NewRef(Py_None) : NULL;
    PyObject *one = PyObject_CallOneArg(stride, tensor), *other = one ? PyObject_CallOneArg(stride, copy) : NULL;
    int same = other ? PyObject_RichCompareBool(one, other, Py_EQ) : -1;
    Py_XDECREF(one);
    Py_XDECREF(other);
    if (same <= 0) Py_SETREF(copy, same < 0 ? NULL : Py_NewRef(Py_None));
    return copy;
}

/* What a plain tensor holds now, copy-on-write; `history` if autograd would follow the copy. */
static PyObject *kept(PyObject *identity, PyObject *tensor, int fresh, int history, int simply)
{
    int way = simply ? way_to_keep(identity, tensor, fresh) : IN_PYTHON;
    PyObject *copy = NULL;
    if (way > 0 && history) Py_XDECREF(PyObject_CallOneArg(set_grad_enabled, Py_False));
    if (way > 0) copy = way == LAZILY ? PyObject_CallOneArg(lazy_copy, tensor) : copied(tensor);
    if (way > 0 && history) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        Py_XDECREF(PyObject_CallOneArg(set_grad_enabled, Py_True));
        PyErr_Restore(type, value, traceback);
    }
    if (copy != NULL && copy != Py_None) return copy;
    Py_CLEAR(copy);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return NULL;
        PyErr_Clear(); /* sparse, nested */
    }
    PyObject *keeper = SLOT(identity, identity_keeper);
    return PyObject_CallMethodObjArgs(keeper, name_keep, tensor, fresh ? Py_True : Py_False, NULL);
}

/* A new value for what a call returned. */
static PyObject *new_value(PyObject *tracer, PyObject *identity, PyObject *tensor, int fresh, PyObject *state)
{
    PyObject *values = SLOT(tracer, tracer_values);
    PyObject *value = ((PyTypeObject *)Value)->tp_alloc((PyTypeObject *)Value, 0);
    if (value == NULL) return NULL;
    SLOT(value, value_index) = PyLong_FromSsize_t(PyList_GET_SIZE(values));
    SLOT(value, value_call) = number_of(tracer, PyList_GET_SIZE(SLOT(tracer, tracer_calls)));
    SLOT(value, value_role) = Py_NewRef(name_op);
    SLOT(value, value_position) = Py_NewRef(Py_None);
    SLOT(value, value_address) = Py_NewRef(Py_None);
    SLOT(value, value_transformed) = Py_NewRef(Py_None);
    SLOT(value, value_facts) = Py_NewRef(Py_None);
    int requires_grad = fresh && state == NO_STATE ? 0 : is_true(get(requires_grad_getter, tensor));
    if (requires_grad < 0) goto failed;
    PyObject *grad_fn = requires_grad ? PyObject_CallMethodOneArg(identity, name_grad_fn_of, tensor) : Py_NewRef(Py_None);
    if ((SLOT(value, value_grad_fn) = grad_fn) == NULL) goto failed;
    if (SLOT(identity, identity_keeping) == Py_True) {
        int simply = state == NO_STATE || state == WITH_GRAD;
        SLOT(value, value_kept) = kept(identity, tensor, fresh, requires_grad && state == WITH_GRAD, simply);
    } else SLOT(value, value_kept) = Py_NewRef(Py_None);
    if (SLOT(value, value_kept) == NULL) goto failed;
    if (SLOT(value, value_kept) == Py_None) {
        PyObject *facts = PyObject_CallMethodOneArg(identity, name_facts_of, tensor);
        if (facts == NULL) goto failed;
        put(value, value_facts, facts);
    }
    if (PyList_Append(values, value) == 0) return value;
failed:
    Py_DECREF(value);
    return NULL;
}

/* From now on `tensor` stands for `value`, as long as its memory has the version that it has now. */
static int remember(PyObject *tracer, PyObject *identity, PyObject *tensor, PyObject *value)
{
    PyObject *version = get(version_getter, tensor);
    if (version == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return -1;
        PyErr_Clear(); /* in inference mode nothing is counted */
        version = Py_NewRef(UNVERSIONED);
    }
    PyObject *reference = PyWeakref_NewRef(tensor, NULL);
    PyObject *entry = reference ? PyTuple_Pack(3, reference, value, version) : NULL;
    PyObject *key = entry ? PyLong_FromVoidPtr(tensor) : NULL;
    int failed = key == NULL || PyDict_SetItem(SLOT(identity, identity_live), key, entry) < 0
                 || PyList_Append(SLOT(identity, identity_bound), entry) < 0;
    if (!failed) put(tracer, tracer_last, Py_NewRef(entry));
    Py_XDECREF(key);
    Py_XDECREF(entry);
    Py_XDECREF(reference);
    Py_DECREF(version);
    return failed ? -1 : 0;
}

/* ---- a call ----------------------------------------------------------------------------------------------------- */

/* What is known of a call; the references are its own. */
typedef struct {
    PyObject *tracer, *identity, *function;           /* borrowed */
    PyObject *args, *kwargs;                          /* as the function gets them; kwargs may be NULL */
    PyObject *stored_args, *stored_kwargs, *state;
    PyObject *target, *overwritten, *memory;          /* what it overwrites, or NULL (borrowed); its old value; where */
    PyObject *result, *time, *site;
} TorchCall;

static PyObject *kwargs_of(TorchCall *call) { return call->kwargs ? call->kwargs : NO_KWARGS; }

/* The tuple that Python's methods know as `before`. */
static PyObject *before(TorchCall *call)
{
    PyObject *written = call->target ? PyTuple_Pack(1, call->target) : PyTuple_New(0);
    if (written == NULL) return NULL;
    PyObject *all = PyTuple_Pack(6, call->stored_args, call->stored_kwargs, written, call->overwritten, Py_None, call->state);
    Py_DECREF(written);
    return all;
}

/* The observers are told, and may replace the arguments. */
static int tell_before(TorchCall *call)
{
    PyObject *as_stored = PyTuple_Pack(2, call->stored_args, call->stored_kwargs);
    if (as_stored == NULL) return -1;
    PyObject *given = PyObject_CallMethodObjArgs(
        call->tracer, name_before_call, call->function, call->args, kwargs_of(call), as_stored, NULL);
    Py_DECREF(as_stored);
    PyObject *args = given ? PySequence_Tuple(PyTuple_GET_ITEM(given, 0)) : NULL;
    if (args == NULL) {
        Py_XDECREF(given);
        return -1;
    }
    PyObject *kwargs = PyTuple_GET_ITEM(given, 1);
    Py_SETREF(call->args, args);
    Py_XSETREF(call->kwargs, PyDict_Check(kwargs) && PyDict_GET_SIZE(kwargs) ? Py_NewRef(kwargs) : NULL);
    Py_DECREF(given);
    return 0;
}

/* The function has raised, which the model may catch: what it had written by then is recorded. */
static void note_failure(TorchCall *call)
{
    PyObject *type, *error, *traceback, *done = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *site = call_site(call->tracer), *known = site ? before(call) : NULL;
    if (known != NULL)
        done = PyObject_CallMethodObjArgs(
            call->tracer, name_after_failure, call->function, call->args, kwargs_of(call), known, site, NULL);
    Py_XDECREF(known);
    Py_XDECREF(site);
    if (done != NULL) {
        Py_DECREF(done);
        PyErr_Restore(type, error, traceback);
        return;
    }
    PyObject *new_type, *new_error, *new_traceback; /* what was raised meanwhile has the first error as its context */
    PyErr_Fetch(&new_type, &new_error, &new_traceback);
    PyErr_NormalizeException(&new_type, &new_error, &new_traceback);
    PyException_SetContext(new_error, error);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    PyErr_Restore(new_type, new_error, new_traceback);
}

/* The call itself, timed, and where it was made. */
static int make(TorchCall *call, PyObject *func)
{
    long long start = now();
    if (start < 0) return -1;
    call->result = PyObject_Call(func, call->args, call->kwargs);
    if (call->result == NULL) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) note_failure(call);
        return -1;
    }
    long long end = now();
    call->time = end < 0 ? NULL : PyLong_FromLongLong(end - start);
    return call->time == NULL || (call->site = call_site(call->tracer)) == NULL ? -1 : 0;
}

static int append_record(TorchCall *call, PyObject *outputs)
{
    PyObject *record = ((PyTypeObject *)Call)->tp_alloc((PyTypeObject *)Call, 10);
    if (record == NULL) return -1;
    PyObject *fields[] = {call->function, call->stored_args, call->stored_kwargs, outputs, call->overwritten,
                          SLOT(call->tracer, tracer_module_call), call->site, call->time, Py_None, call->state};
    for (int i = 0; i < 10; i++) PyTuple_SET_ITEM(record, i, Py_NewRef(fields[i]));
    int failed = PyList_Append(SLOT(call->tracer, tracer_calls), record);
    Py_DECREF(record);
    return failed;
}

/* One tensor was returned: it becomes a value, and the call a record. Returns what the caller gets. */
static PyObject *keep_result(TorchCall *call, int fresh, int telling)
{
    PyObject *identity = call->identity, *result = call->result, *outputs = NULL, *returned = NULL;
    PyObject *value = new_value(call->tracer, identity, result, fresh, call->state);
    if (value == NULL || remember(call->tracer, identity, result, value) < 0) goto done;
    if (call->target != NULL) {
        put(value, value_address, Py_NewRef(SLOT(PyTuple_GET_ITEM(call->stored_args, 0), value_address)));
        PyObject *written = PyObject_CallMethodObjArgs(
            identity, name_after_write, call->target, value, Py_False, call->memory, NULL);
        if (written == NULL) goto done;
        Py_DECREF(written);
    }
    if ((outputs = PyTuple_Pack(1, value)) == NULL || append_record(call, outputs) < 0) goto done;
    returned = telling ? PyObject_CallMethodObjArgs(call->tracer, name_told, result, value, NULL) : Py_NewRef(result);
done:
    Py_XDECREF(outputs);
    Py_XDECREF(value);
    return returned;
}

/* The same for a tuple or list of tensors, if nobody is to be told of them. */
static PyObject *keep_results(TorchCall *call)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(call->result);
    PyObject *outputs = PyTuple_New(count), *returned = NULL;
    if (outputs == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tensor = PySequence_Fast_GET_ITEM(call->result, i), *position = PyLong_FromSsize_t(i);
        PyObject *value = position ? new_value(call->tracer, call->identity, tensor, 0, call->state) : NULL;
        if (value == NULL) {
            Py_XDECREF(position);
            goto done;
        }
        put(value, value_position, position);
        PyTuple_SET_ITEM(outputs, i, value);
        if (remember(call->tracer, call->identity, tensor, value) < 0) goto done;
    }
    put(call->tracer, tracer_last, Py_NewRef(UNKNOWN)); /* that is for a call that returned one tensor */
    if (append_record(call, outputs) == 0) returned = Py_NewRef(call->result);
done:
    Py_DECREF(outputs);
    return returned;
}

/* Record what came of a call; returns what the caller gets. */
static PyObject *after(TorchCall *call, int telling)
{
    int fresh = SLOT(call->function, function_fresh) == Py_True;
    int shares = fresh ? 0 : PyObject_IsTrue(SLOT(call->identity, identity_shared)); /* memory with others, perhaps */
    if (shares < 0) return NULL;
    if (!shares && (PyObject *)Py_TYPE(call->result) == Tensor && (!call->target || call->result == call->target))
        return keep_result(call, fresh, telling);
    int told = PyTuple_GET_SIZE(SLOT(call->tracer, tracer_told_calls)) > 0;
    if (!shares && !call->target && !told && are_plain_tensors(call->result)) return keep_results(call);
    PyObject *known = before(call);
    if (known == NULL) return NULL;
    PyObject *returned = PyObject_CallMethodObjArgs(
        call->tracer, name_after_uncommon, call->function, call->args, kwargs_of(call), known, call->result, call->time,
        call->site, NULL);
    Py_DECREF(known);
    return returned;
}

static PyObject *record_common(TorchCall *call, PyObject *func)
{
    PyObject *tracer = call->tracer, *identity = call->identity;
    if ((call->stored_args = stored_args(tracer, identity, call->args)) == NULL) return NULL;
    if ((call->stored_kwargs = stored_kwargs(tracer, identity, call->kwargs)) == NULL) return NULL;
    int telling = PyTuple_GET_SIZE(SLOT(tracer, tracer_told_calls)) > 0;
    if (telling) telling = is_true(PyObject_CallMethodOneArg(tracer, name_is_asked_of, call->function));
    if (telling < 0 || (telling && tell_before(call) < 0)) return NULL;
    if (SLOT(call->function, function_in_place) == Py_True) {
        call->target = PyTuple_GET_ITEM(call->args, 0);
        call->memory = PyObject_CallMethodOneArg(identity, name_before_write, call->target);
        if (call->memory == NULL) return NULL;
    }
    call->overwritten = call->target ? PyTuple_GetSlice(call->stored_args, 0, 1) : PyTuple_New(0);
    if (call->overwritten == NULL || (call->state = state_now()) == NULL) return NULL;
    return make(call, func) < 0 ? NULL : after(call, telling);
}

/* ---- which calls are common ------------------------------------------------------------------------------------- */

static int is_common(PyObject *function, PyObject *identity, PyObject *args, PyObject *kwargs)
{
    if (SLOT(function, function_simple) != Py_True) {
        if (SLOT(function, function_in_place) != Py_True || PyTuple_GET_SIZE(args) == 0) return 0;
        if ((PyObject *)Py_TYPE(PyTuple_GET_ITEM(args, 0)) != Tensor) return 0;
    }
    if (identity == NULL || SLOT(identity, identity_watchful) != Py_False) return 0;
    int out = kwargs ? PyDict_Contains(kwargs, name_out) : 0;
    if (out) return out < 0 ? -1 : 0;
    int on = is_switched_on(function, args, kwargs);
    return on < 0 ? -1 : !on;
}

/* Tracer.__torch_function__(func, types, args=(), kwargs=None) */
static PyObject *record(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    if (count < 3 || count > 5) {
        PyErr_SetString(PyExc_TypeError, "__torch_function__ takes func, types, args and kwargs");
        return NULL;
    }
    PyObject *tracer = given[0], *func = given[1], *types = given[2], *empty = NULL, *returned;
    PyObject *args = count > 3 ? given[3] : (empty = PyTuple_New(0)), *kwargs = count > 4 ? given[4] : NULL;
    if (args == NULL) return NULL;
    if (kwargs != NULL && PyDict_CheckExact(kwargs) && PyDict_GET_SIZE(kwargs) == 0) kwargs = NULL;
    if (kwargs == Py_None) kwargs = NULL;
    PyObject *function = PyDict_GetItemWithError(KNOWN, func);
    int common = 0;
    if (function == NULL && PyErr_Occurred()) common = -1;
    else if (function != NULL && no_subclass(types) && PyTuple_CheckExact(args)
             && (kwargs == NULL || PyDict_CheckExact(kwargs))) {
        common = is_common(function, SLOT(tracer, tracer_identity), args, kwargs);
        if (common == 0 && SLOT(function, function_is_metadata_query) == Py_True
            && SLOT(tracer, tracer_others) == Py_False) { /* such as x.dim(): it just runs */
            returned = PyObject_Call(func, args, kwargs);
            Py_XDECREF(empty);
            return returned;
        }
    }
    if (common < 0) returned = NULL;
    else if (!common) {
        PyObject *named = kwargs ? kwargs : NO_KWARGS;
        returned = PyObject_CallFunctionObjArgs(record_in_python, tracer, func, types, args, named, NULL);
    } else {
        TorchCall call = {tracer, SLOT(tracer, tracer_identity), function, Py_NewRef(args), Py_XNewRef(kwargs)};
        Py_INCREF(call.identity);
        put(tracer, tracer_busy, Py_NewRef(Py_True));
        returned = record_common(&call, func);
        put(tracer, tracer_busy, Py_NewRef(Py_False));
        PyObject *own[] = {call.identity, call.args, call.kwargs, call.stored_args, call.stored_kwargs, call.state,
                           call.overwritten, call.memory, call.result, call.time, call.site};
        for (size_t i = 0; i < COUNT(own); i++) Py_XDECREF(own[i]);
    }
    Py_XDECREF(empty);
    return returned;
}

/* ---- calls of modules ------------------------------------------------------------------------------------------- */

/* Is this the tensor that the last torch call returned, with the value that it has in `Tracer.last`? */
static int is_last(PyObject *tracer, PyObject *thing)
{
    if ((PyObject *)Py_TYPE(thing) != Tensor) return 0;
    PyObject *reference = PyTuple_GET_ITEM(SLOT(tracer, tracer_last), 0);
    return PyWeakref_CheckRef(reference) && refers_to(reference, thing);
}

/* Values of what a module takes or returns, as they are found. */
typedef struct {
    PyObject *tracer; /* borrowed */
    PyObject *values; /* a tuple with room for all */
    Py_ssize_t count;
    PyObject *unseen; /* while tensors are asked, which is a torch call, too: what hides that from the tracer; or NULL */
} Found;

/* 1 if the value of a thing was added, or it is no tensor; 0 if that is not as simple; -1 if something raised. */
static int add_value(Found *found, PyObject *thing)
{
    PyObject *kind = (PyObject *)Py_TYPE(thing), *value;
    if (kind != Tensor && kind != Parameter) return is_plain(thing);
    if (is_last(found->tracer, thing)) value = Py_NewRef(PyTuple_GET_ITEM(SLOT(found->tracer, tracer_last), 1));
    else {
        if (kind == Tensor && found->unseen == NULL) {
            PyObject *scope = PyObject_CallNoArgs(no_torch_function);
            PyObject *begun = scope ? PyObject_CallMethodNoArgs(scope, name_enter) : NULL;
            if (begun == NULL) {
                Py_XDECREF(scope);
                return -1;
            }
            Py_DECREF(begun);
            found->unseen = scope;
        }
        value = known_value(SLOT(found->tracer, tracer_identity), thing, kind == Parameter);
    }
    if (value == NULL) return PyErr_Occurred() ? -1 : 0;
    PyTuple_SET_ITEM(found->values, found->count++, value);
    return 1;
}

static void be_seen_again(Found *found)
{
    PyObject *type, *error, *traceback;
    if (found->unseen == NULL) return;
    PyErr_Fetch(&type, &error, &traceback);
    Py_XDECREF(PyObject_CallMethodObjArgs(found->unseen, name_exit, Py_None, Py_None, Py_None, NULL));
    Py_DECREF(found->unseen);
    PyErr_Restore(type, error, traceback);
}

/* A tuple with one value: the one that its call has already, if that is all it returned. Takes the reference. */
static PyObject *alone(PyObject *tracer, PyObject *values)
{
    PyObject *value = PyTuple_GET_ITEM(values, 0), *calls = SLOT(tracer, tracer_calls);
    Py_ssize_t number = PyLong_AsSsize_t(SLOT(value, value_call));
    if (number < 0 || number >= PyList_GET_SIZE(calls)) return values;
    PyObject *outputs = PyTuple_GET_ITEM(PyList_GET_ITEM(calls, number), 3);
    if (PyTuple_GET_SIZE(outputs) == 1 && PyTuple_GET_ITEM(outputs, 0) == value) Py_SETREF(values, Py_NewRef(outputs));
    return values;
}

/* The values of the tensors that a module takes or returns; `named` may be NULL. NULL if not all of these are known
 * tensors and plain objects: then Python's method looks into them. */
static PyObject *values_of(PyObject *tracer, PyObject *const *things, Py_ssize_t many, PyObject *named)
{
    PyObject *identity = SLOT(tracer, tracer_identity), *name, *thing;
    if (identity == NULL || SLOT(identity, identity_watchful) != Py_False) return NULL;
    Found found = {tracer, PyTuple_New(many + (named ? PyDict_GET_SIZE(named) : 0)), 0, NULL};
    int simple = found.values != NULL;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; simple > 0 && i < many; i++) simple = add_value(&found, things[i]);
    while (simple > 0 && named && PyDict_Next(named, &at, &name, &thing)) simple = add_value(&found, thing);
    be_seen_again(&found);
    if (simple <= 0) Py_CLEAR(found.values);
    else if (found.count < PyTuple_GET_SIZE(found.values)) _PyTuple_Resize(&found.values, found.count);
    return found.values != NULL && found.count == 1 ? alone(tracer, found.values) : found.values;
}

static int are_there_observers(PyObject *tracer)
{
    PyObject *observers = SLOT(tracer, tracer_observers);
    return !PyTuple_CheckExact(observers) || PyTuple_GET_SIZE(observers) > 0;
}

/* The frames around the call of a module, beyond the one of its stand-in, which has called us. */
static PyObject *site_of_module(PyObject *tracer)
{
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    while (frame != NULL && code_of(frame) != MODULE_BOUNDARY) frame = outer_frame(frame);
    if (frame != NULL) frame = outer_frame(frame);
    PyObject *site = site_from(tracer, frame, 1);
    Py_XDECREF(frame);
    return site;
}

/* A new call of the module with this number; takes the reference to `entered`. */
static PyObject *new_module_call(PyObject *tracer, PyObject *module, PyObject *count, PyObject *entered)
{
    PyObject *call = ((PyTypeObject *)ModuleCall)->tp_alloc((PyTypeObject *)ModuleCall, 0);
    if (call == NULL) {
        Py_DECREF(entered);
        return NULL;
    }
    SLOT(call, module_module) = Py_NewRef(module);
    SLOT(call, module_number) = Py_NewRef(count);
    SLOT(call, module_parent) = Py_NewRef(SLOT(tracer, tracer_module_call));
    SLOT(call, module_site) = site_of_module(tracer);
    SLOT(call, module_start) = number_of(tracer, PyList_GET_SIZE(SLOT(tracer, tracer_calls)));
    SLOT(call, module_stop) = Py_XNewRef(SLOT(call, module_start));
    SLOT(call, module_entered) = entered;
    SLOT(call, module_exited) = PyTuple_New(0);
    if (PyErr_Occurred()) Py_CLEAR(call);
    return call;
}

/* Tracer.enter_module(module, is_forward, args, kwargs) */
static PyObject *enter_module(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "enter_module takes module, is_forward, args and kwargs");
        return NULL;
    }
    PyObject *tracer = given[0], *is_forward = given[2], *args = given[3], *kwargs = given[4];
    PyObject *key = PyLong_FromVoidPtr(given[1]), *entered = NULL;
    PyObject *number = key ? PyDict_GetItemWithError(SLOT(tracer, tracer_module_numbers), key) : NULL;
    Py_XDECREF(key);
    if (number != NULL && !are_there_observers(tracer) && SLOT(tracer, tracer_forward_due) == Py_None)
        entered = values_of(tracer, &PyTuple_GET_ITEM(args, 0), PyTuple_GET_SIZE(args), kwargs);
    if (entered == NULL) {
        if (PyErr_Occurred()) return NULL;
        return PyObject_CallFunctionObjArgs(enter_in_python, tracer, given[1], is_forward, args, kwargs, NULL);
    }
    PyObject *counts = SLOT(tracer, tracer_call_counts), *module_calls = SLOT(tracer, tracer_module_calls);
    Py_ssize_t which = PyLong_AsSsize_t(number);
    PyObject *times = PyLong_FromLong(PyLong_AsLong(PyList_GET_ITEM(counts, which)) + 1);
    PyObject *place = PyLong_FromSsize_t(PyList_GET_SIZE(module_calls));
    PyObject *call = times && place ? new_module_call(tracer, number, times, Py_NewRef(entered)) : NULL;
    if (call == NULL || PyList_SetItem(counts, which, Py_NewRef(times)) < 0 || PyList_Append(module_calls, call) < 0)
        Py_CLEAR(call);
    else {
        put(tracer, tracer_module_call, Py_NewRef(place));
        if (is_forward == Py_False) put(tracer, tracer_forward_due, Py_NewRef(call));
    }
    Py_DECREF(entered);
    Py_XDECREF(times);
    Py_XDECREF(place);
    return call;
}

/* Tracer.leave_module(call, result) */
static PyObject *leave_module(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "leave_module takes call and result");
        return NULL;
    }
    PyObject *tracer = given[0], *call = given[1], *result = given[2], *exited = NULL;
    if (!are_there_observers(tracer)) {
        if (PyTuple_CheckExact(result))
            exited = values_of(tracer, &PyTuple_GET_ITEM(result, 0), PyTuple_GET_SIZE(result), NULL);
        else if ((PyObject *)Py_TYPE(result) == Tensor) exited = values_of(tracer, &result, 1, NULL);
    }
    if (exited == NULL) {
        if (PyErr_Occurred()) return NULL;
        return PyObject_CallFunctionObjArgs(leave_in_python, tracer, call, result, NULL);
    }
    PyObject *stop = number_of(tracer, PyList_GET_SIZE(SLOT(tracer, tracer_calls)));
    if (stop == NULL) {
        Py_DECREF(exited);
        return NULL;
    }
    put(call, module_exited, exited);
    put(call, module_stop, stop);
    put(tracer, tracer_module_call, Py_NewRef(SLOT(call, module_parent)));
    put(tracer, tracer_forward_due, Py_NewRef(Py_None));
    return Py_NewRef(result);
}

/* ---- what Python gives ------------------------------------------------------------------------------------------ */

static PyObject *configure(PyObject *self, PyObject *args, PyObject *given)
{
    PyObject **getters[] = {&version_getter, &is_quantized_getter, &is_cpu_getter, &is_cuda_getter};
    if (take_objects(OBJECTS, COUNT(OBJECTS), given) < 0 || are_getters(getters, COUNT(getters)) < 0) return NULL;
    if (find_slots(SLOTS, COUNT(SLOTS), given) < 0 || make_words(NAMES, COUNT(NAMES)) < 0) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef RECORDING[] = {
    {"configure", NAMED(configure), "What is to be used for recording."},
    {NULL},
};

PyMethodDef RECORDING_METHODS[] = {
    {"__torch_function__", FAST(record), "Record a torch call."},
    {"enter_module", FAST(enter_module), "A module call begins."},
    {"leave_module", FAST(leave_module), "A module call has returned."},
    {NULL},
};
