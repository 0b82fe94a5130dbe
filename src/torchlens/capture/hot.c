/* The hot path in C: a torch call of the common kind is recorded here as `Tracer._record` records any kind of call.
 *
 * A call is common if it draws no random numbers, returns one plain tensor or several, and overwrites at most its first
 * argument.
 * `record` below is `Tracer.__torch_function__` wherever this file could be compiled; `enter_module` and `leave_module`
 * do the same for the common call of a module, which takes and returns tensors that are known, and plain objects.
 * `observe`, `enter_observed` and `leave_observed` are the same methods of fastlog's tracer: most calls are counted and
 * named, no more.
 * What is not common they hand to the methods that are written in Python, and so they do with every rare case within a
 * common call. A test runs each tiny model both ways and compares the traces.
 *
 * Only CPython's API is used, nothing of torch's: a tensor is asked by calling what Python calls, the getters of its
 * class. All classes are Python's own. Their slots are read and written in place, at the offsets that their member
 * descriptors tell (SLOTS, below).
 */
#include "slots.h"
#include <time.h>

/* ---- what Python gives: see `configure` ------------------------------------------------------------------------- */

static PyObject *record_in_python, *enter_in_python, *leave_in_python; /* the methods as they are written in Python */
static PyObject *Tensor, *Parameter, *Value, *Call, *ModuleCall, *MODULE_CALL, *MODULE_CALL_INSIDE;
static PyObject *KNOWN, *PLAIN, *NO_KWARGS, *NO_STATE, *WITH_GRAD, *INFERENCE, *UNVERSIONED, *UNKNOWN;
static PyObject *no_torch_function, *is_grad_enabled, *is_inference_mode_enabled, *any_autocast, *state_with_autocast, *set_grad_enabled;
static PyObject *lazy_copy, *clone_of, *stride, *data_address, *storage_address, *is_zero_tensor, *is_conj, *is_neg, *perf_counter_ns, *MODULE_BOUNDARY;
static PyObject *version_getter, *requires_grad_getter, *is_quantized_getter, *is_cpu_getter, *is_cuda_getter;

static const Given OBJECTS[] = {
    OBJECT(record_in_python), OBJECT(enter_in_python), OBJECT(leave_in_python), OBJECT(ModuleCall),
    OBJECT(MODULE_CALL), OBJECT(MODULE_CALL_INSIDE), OBJECT(Tensor), OBJECT(Parameter), OBJECT(Value), OBJECT(Call), OBJECT(KNOWN), OBJECT(PLAIN),
    OBJECT(NO_KWARGS), OBJECT(NO_STATE), OBJECT(WITH_GRAD), OBJECT(INFERENCE), OBJECT(UNVERSIONED), OBJECT(UNKNOWN), OBJECT(no_torch_function), OBJECT(is_grad_enabled),
    OBJECT(is_inference_mode_enabled), OBJECT(any_autocast), OBJECT(state_with_autocast), OBJECT(set_grad_enabled),
    OBJECT(lazy_copy), OBJECT(clone_of), OBJECT(stride), OBJECT(data_address), OBJECT(storage_address), OBJECT(is_zero_tensor), OBJECT(is_conj), OBJECT(is_neg),
    OBJECT(perf_counter_ns), OBJECT(MODULE_BOUNDARY), OBJECT(version_getter), OBJECT(requires_grad_getter),
    OBJECT(is_quantized_getter), OBJECT(is_cpu_getter), OBJECT(is_cuda_getter),
};

static Py_ssize_t function_simple, function_in_place, function_fresh, function_switch, function_is_metadata_query;
static Py_ssize_t tracer_busy, tracer_others, tracer_identity, tracer_calls, tracer_values, tracer_module_call;
static Py_ssize_t tracer_last, tracer_told_calls, tracer_observers, tracer_module_calls, tracer_module_numbers;
static Py_ssize_t tracer_call_counts, tracer_forward_due;
static Py_ssize_t module_module, module_number, module_parent, module_site, module_start, module_stop, module_entered;
static Py_ssize_t module_exited;
static Py_ssize_t identity_live, identity_bound, identity_unwritten_params, identity_foreign, identity_shared;
static Py_ssize_t identity_keeping, identity_keeper, identity_watchful;
static Py_ssize_t value_index, value_role, value_call, value_position, value_address, value_transformed, value_grad_fn;
static Py_ssize_t value_facts, value_kept;

static const Slot SLOTS[] = {
    {"Function", "simple", &function_simple}, {"Function", "in_place", &function_in_place},
    {"Function", "fresh", &function_fresh}, {"Function", "switch", &function_switch},
    {"Function", "is_metadata_query", &function_is_metadata_query},
    {"Tracer", "busy", &tracer_busy}, {"Tracer", "others", &tracer_others}, {"Tracer", "identity", &tracer_identity},
    {"Tracer", "calls", &tracer_calls}, {"Tracer", "values", &tracer_values},
    {"Tracer", "module_call", &tracer_module_call}, {"Tracer", "last", &tracer_last},
    {"Tracer", "_told_calls", &tracer_told_calls}, {"Tracer", "observers", &tracer_observers},
    {"Tracer", "module_calls", &tracer_module_calls}, {"Tracer", "module_numbers", &tracer_module_numbers},
    {"Tracer", "call_counts", &tracer_call_counts}, {"Tracer", "forward_due", &tracer_forward_due},
    {"ModuleCall", "module", &module_module}, {"ModuleCall", "number", &module_number},
    {"ModuleCall", "parent", &module_parent}, {"ModuleCall", "site", &module_site},
    {"ModuleCall", "start", &module_start}, {"ModuleCall", "stop", &module_stop},
    {"ModuleCall", "entered", &module_entered}, {"ModuleCall", "exited", &module_exited},
    {"Identity", "live", &identity_live}, {"Identity", "bound", &identity_bound},
    {"Identity", "unwritten_params", &identity_unwritten_params}, {"Identity", "foreign", &identity_foreign},
    {"Identity", "shared", &identity_shared}, {"Identity", "keeping", &identity_keeping},
    {"Identity", "keeper", &identity_keeper}, {"Identity", "watchful", &identity_watchful},
    {"Value", "index", &value_index}, {"Value", "role", &value_role}, {"Value", "call", &value_call},
    {"Value", "position", &value_position}, {"Value", "address", &value_address},
    {"Value", "transformed", &value_transformed}, {"Value", "grad_fn", &value_grad_fn},
    {"Value", "_facts", &value_facts}, {"Value", "kept", &value_kept},
};

/* The same for fastlog's tracer: its methods as they are written in Python, its classes, and their slots. */

static PyObject *observe_in_python, *enter_observed_in_python, *leave_observed_in_python;
static PyObject *Event, *Frame, *facts_in_python, *is_library_file, *shape_getter, *dtype_getter, *device_getter;

static const Given OBJECTS_OF_FASTLOG[] = {
    OBJECT(observe_in_python), OBJECT(enter_observed_in_python), OBJECT(leave_observed_in_python), OBJECT(Event),
    OBJECT(Frame), OBJECT(facts_in_python), OBJECT(is_library_file), OBJECT(shape_getter), OBJECT(dtype_getter),
    OBJECT(device_getter),
};

static Py_ssize_t light_busy, light_others, light_forward_due, light_about, light_asked, light_call_counts;
static Py_ssize_t light_collector, light_edits, light_frame, light_guarded, light_known, light_module_numbers;
static Py_ssize_t collector_history, collector_kept, collector_module_events, collector_run, collector_stopped;
static Py_ssize_t collector_tallies, collector_tallies_at, collector_total, tally_count, tally_kept_unasked;
static Py_ssize_t tally_looked_at, history_events, function_may_be_operator;

static const Slot SLOTS_OF_FASTLOG[] = {
    {"LightTracer", "busy", &light_busy}, {"LightTracer", "others", &light_others},
    {"LightTracer", "forward_due", &light_forward_due}, {"LightTracer", "about", &light_about},
    {"LightTracer", "asked", &light_asked}, {"LightTracer", "call_counts", &light_call_counts},
    {"LightTracer", "collector", &light_collector}, {"LightTracer", "edits", &light_edits},
    {"LightTracer", "frame", &light_frame}, {"LightTracer", "guarded", &light_guarded},
    {"LightTracer", "known", &light_known}, {"LightTracer", "module_numbers", &light_module_numbers},
    {"Collector", "history", &collector_history}, {"Collector", "kept", &collector_kept},
    {"Collector", "module_events", &collector_module_events},
    {"Collector", "run", &collector_run}, {"Collector", "stopped", &collector_stopped},
    {"Collector", "tallies", &collector_tallies}, {"Collector", "tallies_at", &collector_tallies_at},
    {"Collector", "total", &collector_total}, {"Tally", "count", &tally_count},
    {"Tally", "kept_unasked", &tally_kept_unasked}, {"Tally", "looked_at", &tally_looked_at},
    {"History", "events", &history_events}, {"Function", "may_be_operator", &function_may_be_operator},
};

/* Names of methods and arguments, made once. */
static PyObject *name_out, *name_op, *name_stored, *name_value_of, *name_grad_fn_of, *name_facts_of;
static PyObject *name_keep, *name_before_write, *name_after_write, *name_is_asked_of, *name_before_call, *name_told;
static PyObject *name_after_failure, *name_after_uncommon, *name_first_seen, *name_note_parents, *name_made_several;
static PyObject *name_enter, *name_exit;
static PyObject *name_keep_unasked, *name_look, *name_end_if_stopped, *name_append, *name_module_enter, *name_module_exit;
static PyObject *name_before_overwriting, *name_overwrote;

static const struct { const char *text; PyObject **place; } NAMES[] = {
    {"out", &name_out}, {"op", &name_op}, {"_stored", &name_stored},
    {"value_of", &name_value_of}, {"grad_fn_of", &name_grad_fn_of}, {"facts_of", &name_facts_of}, {"keep", &name_keep},
    {"before_write", &name_before_write}, {"after_write", &name_after_write}, {"_is_asked_of", &name_is_asked_of},
    {"_before_call", &name_before_call}, {"told", &name_told}, {"_after_failure", &name_after_failure},
    {"_after_uncommon", &name_after_uncommon}, {"_first_seen", &name_first_seen},
    {"_note_parents", &name_note_parents}, {"_made_several", &name_made_several}, {"__enter__", &name_enter},
    {"__exit__", &name_exit}, {"keep_unasked", &name_keep_unasked}, {"look", &name_look},
    {"end_if_stopped", &name_end_if_stopped}, {"_before_overwriting", &name_before_overwriting},
    {"_overwrote", &name_overwrote}, {"append", &name_append}, {"module_enter", &name_module_enter},
    {"module_exit", &name_module_exit},
};

/* ---- small steps ------------------------------------------------------------------------------------------------ */

static int ask(PyObject *function) { return is_true(PyObject_CallNoArgs(function)); }
static int ask_of(PyObject *function, PyObject *tensor) { return is_true(PyObject_CallOneArg(function, tensor)); }

/* Is what a weak reference refers to this object? */
static int refers_to(PyObject *reference, PyObject *object)
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

static int is_plain(PyObject *argument)
{
    PyTypeObject *kind = Py_TYPE(argument);
    if (kind == &PyLong_Type || kind == &PyFloat_Type || kind == &PyBool_Type || argument == Py_None) return 1;
    return PySet_Contains(PLAIN, (PyObject *)kind);
}

/* As `all_plain` in containers.py, for a tuple. */
static int all_plain(PyObject *tuple)
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

static PyObject *code_of(PyFrameObject *frame) /* borrowed: the frame has it */
{
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    Py_DECREF(code);
    return code;
}

/* Which instruction of its code a frame is at. */
static PyObject *instruction_of(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyLong_FromLong(PyFrame_GetLasti(frame));
#else
    return PyObject_GetAttrString((PyObject *)frame, "f_lasti");
#endif
}

/* The next frame outwards. Takes the reference to this one, gives one to that, or NULL. */
static PyFrameObject *outer_frame(PyFrameObject *frame)
{
    PyFrameObject *outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    return outer;
}

/* The frames from this one outwards, up to the enclosing module call: (code, instruction, code, instruction, ...).
 * `of_module`: without those that every call of a module has. */
static PyObject *site_from(PyFrameObject *innermost, int of_module)
{
    PyObject *pairs = NULL;
    for (int counting = 1; counting >= 0; counting--) { /* first how many there are, then which */
        PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)innermost);
        Py_ssize_t at = 0;
        for (PyObject *code; frame != NULL && (code = code_of(frame)) != MODULE_BOUNDARY; frame = outer_frame(frame)) {
            if (of_module && (code == MODULE_CALL || code == MODULE_CALL_INSIDE)) continue;
            if (!counting) {
                PyObject *instruction = instruction_of(frame);
                if (instruction == NULL) {
                    Py_DECREF(frame);
                    Py_DECREF(pairs);
                    return NULL;
                }
                PyTuple_SET_ITEM(pairs, at, Py_NewRef(code));
                PyTuple_SET_ITEM(pairs, at + 1, instruction);
            }
            at += 2;
        }
        Py_XDECREF(frame);
        if (counting && (pairs = PyTuple_New(at)) == NULL) return NULL;
    }
    return pairs;
}

static PyObject *call_site(void) { return site_from(PyEval_GetFrame(), 0); }

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
    SLOT(value, value_call) = PyLong_FromSsize_t(PyList_GET_SIZE(SLOT(tracer, tracer_calls)));
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
    PyObject *site = call_site(), *known = site ? before(call) : NULL;
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
    return call->time == NULL || (call->site = call_site()) == NULL ? -1 : 0;
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

static int are_plain_tensors(PyObject *result)
{
    if (!PyTuple_Check(result) && !PyList_CheckExact(result)) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++)
        if ((PyObject *)Py_TYPE(PySequence_Fast_GET_ITEM(result, i)) != Tensor) return 0;
    return PySequence_Fast_GET_SIZE(result) > 0;
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

/* No tensor subclass takes part: the types are those that torch names where there is none. */
static int no_subclass(PyObject *types)
{
    if (!PyTuple_CheckExact(types)) return 0;
    return PyTuple_GET_SIZE(types) == 0 || (PyTuple_GET_SIZE(types) == 1 && PyTuple_GET_ITEM(types, 0) == Tensor);
}

/* As `Function.is_on`, but 0 if the function has no switch. */
static int is_switched_on(PyObject *function, PyObject *args, PyObject *kwargs)
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
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) Py_XDECREF(own[i]);
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
    return found.values;
}

static int are_there_observers(PyObject *tracer)
{
    PyObject *observers = SLOT(tracer, tracer_observers);
    return !PyTuple_CheckExact(observers) || PyTuple_GET_SIZE(observers) > 0;
}

/* The frames around the call of a module, beyond the one of its stand-in, which has called us. */
static PyObject *site_of_module(void)
{
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    while (frame != NULL && code_of(frame) != MODULE_BOUNDARY) frame = outer_frame(frame);
    if (frame != NULL) frame = outer_frame(frame);
    PyObject *site = site_from(frame, 1);
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
    SLOT(call, module_site) = site_of_module();
    SLOT(call, module_start) = PyLong_FromSsize_t(PyList_GET_SIZE(SLOT(tracer, tracer_calls)));
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
    PyObject *stop = PyLong_FromSsize_t(PyList_GET_SIZE(SLOT(tracer, tracer_calls)));
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

/* ---- fastlog: calls of torch functions -------------------------------------------------------------------------- */

/* A call that fastlog's tracer sees. All references are borrowed, but for those in `parents`. */
typedef struct {
    PyObject *tracer, *collector, *function, *tally;
    PyObject *parents; /* the names of the tensors among the arguments; NULL if nobody asks for them */
    PyObject *target;  /* what it overwrites, or NULL */
} LightCall;

static int is_looked_at(PyObject *tally) { return SLOT(tally, tally_looked_at) == Py_True; }

/* Add one to a number that an attribute holds. */
static int one_more(PyObject *object, Py_ssize_t offset)
{
    PyObject *more = PyLong_FromLong(PyLong_AsLong(SLOT(object, offset)) + 1);
    if (more == NULL) return -1;
    put(object, offset, more);
    return 0;
}

/* What `LightTracer.known` has of this very tensor; NULL if it has nothing, or if something raised. */
static PyObject *known_of(PyObject *tracer, PyObject *tensor)
{
    PyObject *key = PyLong_FromVoidPtr(tensor);
    PyObject *entry = key ? PyDict_GetItemWithError(SLOT(tracer, light_known), key) : NULL;
    Py_XDECREF(key);
    return entry != NULL && refers_to(PyTuple_GET_ITEM(entry, 0), tensor) ? entry : NULL;
}

/* A list for a method in Python. */
static PyObject *parents_of(LightCall *call) { return call->parents ? Py_NewRef(call->parents) : PyList_New(0); }

/* A tensor among the arguments that has no name gets one. The names are the parents. -1 if something raised. */
static int name_argument(LightCall *call, PyObject *argument)
{
    PyObject *kind = (PyObject *)Py_TYPE(argument), *done;
    if (kind == Parameter) return 0;
    if (kind == Tensor) {
        PyObject *entry = known_of(call->tracer, argument), *name;
        if (entry == NULL && PyErr_Occurred()) return -1;
        if (entry != NULL) name = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
        else name = PyObject_CallMethodOneArg(call->tracer, name_first_seen, argument);
        int failed = name == NULL || (call->parents != NULL && PyList_Append(call->parents, name) < 0);
        Py_XDECREF(name);
        return failed ? -1 : 0;
    }
    int plain = PyTuple_CheckExact(argument) ? all_plain(argument) : is_plain(argument);
    if (plain) return plain < 0 ? -1 : 0;
    PyObject *parents = parents_of(call);
    if (parents == NULL) return -1;
    done = PyObject_CallMethodObjArgs(call->tracer, name_note_parents, argument, parents, NULL);
    Py_DECREF(parents);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* As `_site` in light_tracer.py: the frames from the call out to the first that is the user's. */
static PyObject *site_of_user(void)
{
    PyObject *pairs = PyList_New(0), *code;
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    int library = 1;
    while (pairs != NULL && library && frame != NULL && (code = code_of(frame)) != MODULE_BOUNDARY) {
        PyObject *instruction = instruction_of(frame);
        if (instruction == NULL || PyList_Append(pairs, code) < 0 || PyList_Append(pairs, instruction) < 0) library = -1;
        Py_XDECREF(instruction);
        if (library > 0) library = is_true(PyObject_CallOneArg(is_library_file, ((PyCodeObject *)code)->co_filename));
        if (library < 0) Py_CLEAR(pairs);
        frame = outer_frame(frame);
    }
    Py_XDECREF(frame);
    PyObject *site = pairs ? PyList_AsTuple(pairs) : NULL;
    Py_XDECREF(pairs);
    return site;
}

/* As `facts_of` in records.py: shape, type and device. */
static PyObject *facts_of(PyObject *tensor)
{
    PyObject *shape = get(shape_getter, tensor), *dtype = shape ? get(dtype_getter, tensor) : NULL;
    PyObject *device = dtype ? get(device_getter, tensor) : NULL;
    PyObject *facts = device ? PyTuple_Pack(3, shape, dtype, device) : NULL;
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    Py_XDECREF(device);
    if (facts != NULL || !PyErr_ExceptionMatches(PyExc_RuntimeError)) return facts;
    PyErr_Clear(); /* a nested tensor */
    return PyObject_CallOneArg(facts_in_python, tensor);
}

/* How a value is called: (tally, number of that type, number of all). It is counted. */
static PyObject *next_name(LightCall *call)
{
    PyObject *tally = call->tally, *total = Py_NewRef(SLOT(call->collector, collector_total)), *name = NULL;
    if (one_more(call->collector, collector_total) == 0 && one_more(tally, tally_count) == 0)
        name = PyTuple_Pack(3, tally, SLOT(tally, tally_count), total);
    Py_DECREF(total);
    return name;
}

static PyObject *new_event(PyObject *const *fields)
{
    PyObject *event = ((PyTypeObject *)Event)->tp_alloc((PyTypeObject *)Event, 10);
    for (int i = 0; event != NULL && i < 10; i++) PyTuple_SET_ITEM(event, i, Py_NewRef(fields[i]));
    return event;
}

/* As `Collector.next_number`, after `total` values. */
static PyObject *number_after(PyObject *collector, PyObject *total)
{
    return PyLong_FromLong(PyLong_AsLong(total) + PyLong_AsLong(SLOT(collector, collector_module_events)));
}

/* A rule may select what a call returned: `position` is None if that is this tensor alone. As `LightTracer._look`, if
 * there are no edits. */
static int look(LightCall *call, PyObject *name, PyObject *position, PyObject *facts, PyObject *result)
{
    PyObject *collector = call->collector, *function = call->function, *event = NULL, *done = NULL;
    PyObject *site = SLOT(function, function_may_be_operator) == Py_True ? site_of_user() : PyTuple_New(0);
    PyObject *number = site ? number_after(collector, PyTuple_GET_ITEM(name, 2)) : NULL;
    if (number != NULL) {
        PyObject *run = SLOT(collector, collector_run), *frame = SLOT(call->tracer, light_frame);
        event = new_event((PyObject *[]){name_op, number, run, frame, name, position, facts, function, site, call->parents});
    }
    if (event != NULL && SLOT(call->tally, tally_kept_unasked) == Py_True) {
        PyObject *fresh = position == Py_None ? SLOT(function, function_fresh) : Py_False;
        done = PyObject_CallMethodObjArgs(collector, name_keep_unasked, event, result, fresh, NULL);
    } else if (event != NULL) done = PyObject_CallMethodObjArgs(collector, name_look, event, result, NULL);
    Py_XDECREF(site);
    Py_XDECREF(number);
    Py_XDECREF(event);
    Py_XDECREF(done);
    if (done == NULL || SLOT(collector, collector_stopped) == Py_False) return done == NULL ? -1 : 0;
    Py_XDECREF(done = PyObject_CallMethodNoArgs(collector, name_end_if_stopped));
    return done == NULL ? -1 : 0;
}

/* A call has returned a plain tensor: it gets a name, and is shown to the rules if one may want it. */
static int see_result(LightCall *call, PyObject *result, PyObject *position)
{
    int looked_at = is_looked_at(call->tally), told = looked_at && SLOT(call->tally, tally_kept_unasked) != Py_True;
    PyObject *name = next_name(call), *reference = name ? PyWeakref_NewRef(result, NULL) : NULL, *entry = NULL;
    PyObject *facts = !told ? Py_NewRef(Py_None) : reference ? facts_of(result) : NULL;
    if (reference != NULL && facts != NULL) entry = PyTuple_Pack(3, reference, name, facts);
    PyObject *key = entry ? PyLong_FromVoidPtr(result) : NULL;
    int failed = key == NULL || PyDict_SetItem(SLOT(call->tracer, light_known), key, entry) < 0
                 || (looked_at && look(call, name, position, facts, result) < 0);
    PyObject *own[] = {name, reference, facts, entry, key};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) Py_XDECREF(own[i]);
    return failed ? -1 : 0;
}

static int see_each(LightCall *call, PyObject *results)
{
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(results); i++) {
        PyObject *position = PyLong_FromSsize_t(i);
        failed = position == NULL || see_result(call, PySequence_Fast_GET_ITEM(results, i), position) < 0;
        Py_XDECREF(position);
    }
    return failed ? -1 : 0;
}

/* What a call returned gets names; returns what the caller gets. Takes the reference. */
static PyObject *see_results(LightCall *call, PyObject *result)
{
    int done = 0;
    if ((PyObject *)Py_TYPE(result) == Tensor) done = see_result(call, result, Py_None);
    else if (are_plain_tensors(result)) done = see_each(call, result);
    else if ((done = is_plain(result)) == 0) {
        PyObject *parents = parents_of(call), *several = NULL;
        if (parents != NULL)
            several = PyObject_CallMethodObjArgs(call->tracer, name_made_several, call->function, result, parents, NULL);
        Py_XDECREF(parents);
        Py_SETREF(result, several);
    }
    if (done < 0) Py_CLEAR(result);
    return result;
}

/* What is kept of a tensor gets its own memory before a call overwrites it. */
static int before_overwriting(LightCall *call)
{
    if (call->target == NULL) return 0;
    int any = PyObject_IsTrue(SLOT(call->collector, collector_kept));
    if (any <= 0) return any;
    PyObject *done = PyObject_CallMethodOneArg(call->tracer, name_before_overwriting, call->target);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* A call has overwritten a tensor, but not returned it. */
static int overwrote(LightCall *call)
{
    PyObject *parents = parents_of(call), *done = NULL;
    if (parents != NULL)
        done = PyObject_CallMethodObjArgs(call->tracer, name_overwrote, call->function, call->target, parents, NULL);
    Py_XDECREF(parents);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *call_and_see(LightCall *call, PyObject *func, PyObject *args, PyObject *kwargs)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++)
        if (name_argument(call, PyTuple_GET_ITEM(args, i)) < 0) return NULL;
    put(call->tracer, light_guarded, Py_NewRef(Py_False));
    put(call->tracer, light_busy, Py_NewRef(Py_True));
    PyObject *result = before_overwriting(call) < 0 ? NULL : PyObject_Call(func, args, kwargs);
    if (result != NULL) result = see_results(call, result);
    if (result != NULL && call->target != NULL && result != call->target && overwrote(call) < 0) Py_CLEAR(result);
    put(call->tracer, light_busy, Py_NewRef(Py_False));
    return result;
}

/* The tally of a function that has been called before, here if that matters; NULL if there is none, or something raised.
 */
static PyObject *tally_of(PyObject *collector, PyObject *function)
{
    PyObject *tally = PyDict_GetItemWithError(SLOT(collector, collector_tallies), function);
    if (tally != Py_None) return tally;
    PyObject *site = site_of_user(), *here = site ? PyTuple_Pack(2, function, site) : NULL;
    tally = here ? PyDict_GetItemWithError(SLOT(collector, collector_tallies_at), here) : NULL;
    Py_XDECREF(site);
    Py_XDECREF(here);
    return tally;
}

static int are_plain_values(PyObject *kwargs)
{
    PyObject *name, *argument;
    Py_ssize_t at = 0;
    int plain = 1;
    while (plain > 0 && kwargs != NULL && PyDict_Next(kwargs, &at, &name, &argument)) plain = is_plain(argument);
    return plain;
}

/* What a call of such a function overwrites: its first argument if that is a plain tensor, otherwise nothing. */
static PyObject *target_of(PyObject *function, PyObject *args)
{
    if (SLOT(function, function_in_place) != Py_True || PyTuple_GET_SIZE(args) == 0) return NULL;
    PyObject *first = PyTuple_GET_ITEM(args, 0);
    return (PyObject *)Py_TYPE(first) == Tensor ? first : NULL;
}

/* The tally of a call that is observed here; NULL if Python observes it, or if something raised. */
static PyObject *tally_of_common(PyObject *tracer, PyObject *function, PyObject *args, PyObject *kwargs)
{
    PyObject *collector = SLOT(tracer, light_collector);
    if (SLOT(collector, collector_stopped) != Py_False) return NULL;
    if (SLOT(function, function_simple) != Py_True && (kwargs != NULL || target_of(function, args) == NULL)) return NULL;
    if (is_switched_on(function, args, kwargs) || are_plain_values(kwargs) <= 0) return NULL;
    PyObject *tally = tally_of(collector, function);
    return tally != NULL && is_looked_at(tally) && SLOT(tracer, light_edits) != Py_None ? NULL : tally;
}

/* LightTracer.__torch_function__(func, types, args=(), kwargs=None) */
static PyObject *observe(PyObject *self, PyObject *const *given, Py_ssize_t size)
{
    if (size < 3 || size > 5) {
        PyErr_SetString(PyExc_TypeError, "__torch_function__ takes func, types, args and kwargs");
        return NULL;
    }
    PyObject *tracer = given[0], *func = given[1], *kwargs = size > 4 && given[4] != Py_None ? given[4] : NULL;
    PyObject *tally = NULL, *function = PyDict_GetItemWithError(KNOWN, func);
    if (function != NULL && size > 3 && PyTuple_CheckExact(given[3]) && no_subclass(given[2])
        && SLOT(tracer, light_others) == Py_False && (kwargs == NULL || PyDict_CheckExact(kwargs))) {
        if (SLOT(function, function_is_metadata_query) == Py_True) return PyObject_Call(func, given[3], kwargs);
        tally = tally_of_common(tracer, function, given[3], kwargs);
    }
    if (PyErr_Occurred()) return NULL;
    if (tally == NULL) {
        PyObject *all[] = {tracer, func, given[2], size > 3 ? given[3] : NULL, kwargs ? kwargs : Py_None};
        return PyObject_Vectorcall(observe_in_python, all, size > 3 ? 5 : 3, NULL);
    }
    LightCall call = {tracer, SLOT(tracer, light_collector), function, tally, NULL, target_of(function, given[3])};
    if (is_looked_at(tally) && (call.parents = PyList_New(0)) == NULL) return NULL;
    Py_INCREF(call.collector);
    Py_INCREF(tally);
    PyObject *result = call_and_see(&call, func, given[3], kwargs);
    Py_DECREF(tally);
    Py_DECREF(call.collector);
    Py_XDECREF(call.parents);
    return result;
}

/* ---- fastlog: calls of modules ---------------------------------------------------------------------------------- */

/* May a module call begin or end here, with this tensor? Only its event is remembered then, if events are at all:
 * `facts` are those of the tensor, or NULL. -1 if something raised. */
static int passes_by(PyObject *tracer, Py_ssize_t module, PyObject *tensor, PyObject **facts)
{
    PyObject *asked = PyList_GetItem(SLOT(tracer, light_asked), module), *collector = SLOT(tracer, light_collector);
    if (asked != Py_False) return asked == NULL ? -1 : 0;
    if (SLOT(collector, collector_history) == Py_None) return 1;
    if (SLOT(collector, collector_stopped) != Py_False || tensor == NULL) return 0;
    PyObject *entry = known_of(tracer, tensor);
    if (entry == NULL || PyTuple_GET_ITEM(entry, 2) == Py_None) return PyErr_Occurred() ? -1 : 0;
    *facts = PyTuple_GET_ITEM(entry, 2);
    return 1;
}

/* As `LightTracer._pass_by`. */
static int pass_by(PyObject *collector, PyObject *kind, PyObject *frame, PyObject *facts)
{
    PyObject *events = NULL, *nothing = NULL, *event = NULL, *done = NULL;
    if (facts == NULL) return one_more(collector, collector_module_events);
    PyObject *number = number_after(collector, SLOT(collector, collector_total)), *run = SLOT(collector, collector_run);
    if (number != NULL && one_more(collector, collector_module_events) == 0) nothing = PyTuple_New(0);
    if (nothing != NULL)
        event = new_event((PyObject *[]){kind, number, run, frame, Py_None, Py_None, facts, Py_None, nothing, nothing});
    if (event != NULL) events = SLOT(SLOT(collector, collector_history), history_events);
    if (events != NULL) done = PyObject_CallMethodOneArg(events, name_append, event);
    Py_XDECREF(number);
    Py_XDECREF(nothing);
    Py_XDECREF(event);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* One more call of a module, inside the running one. */
static PyObject *new_frame(PyObject *tracer, Py_ssize_t module)
{
    PyObject *counts = SLOT(tracer, light_call_counts), *about = PyList_GetItem(SLOT(tracer, light_about), module);
    PyObject *before = about ? PyList_GetItem(counts, module) : NULL;
    PyObject *count = before ? PyLong_FromLong(PyLong_AsLong(before) + 1) : NULL;
    PyObject *frame = count ? ((PyTypeObject *)Frame)->tp_alloc((PyTypeObject *)Frame, 5) : NULL;
    if (frame != NULL) {
        for (int i = 0; i < 3; i++) PyTuple_SET_ITEM(frame, i, Py_NewRef(PyTuple_GET_ITEM(about, i)));
        PyTuple_SET_ITEM(frame, 3, Py_NewRef(count));
        PyTuple_SET_ITEM(frame, 4, Py_NewRef(SLOT(tracer, light_frame)));
        PyList_SetItem(counts, module, Py_NewRef(count));
    }
    Py_XDECREF(count);
    return frame;
}

/* LightTracer.enter_module(module, is_forward, args, kwargs) */
static PyObject *enter_observed(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "enter_module takes module, is_forward, args and kwargs");
        return NULL;
    }
    PyObject *tracer = given[0], *args = given[3], *kwargs = given[4], *facts = NULL, *number = NULL;
    if (SLOT(tracer, light_frame) != Py_None && SLOT(tracer, light_forward_due) == Py_None) {
        PyObject *key = PyLong_FromVoidPtr(given[1]);
        number = key ? PyDict_GetItemWithError(SLOT(tracer, light_module_numbers), key) : NULL;
        Py_XDECREF(key);
    }
    int alone = PyTuple_CheckExact(args) && PyTuple_GET_SIZE(args) == 1 && PyDict_GET_SIZE(kwargs) == 0;
    Py_ssize_t module = number ? PyLong_AsSsize_t(number) : 0;
    int simply = number ? passes_by(tracer, module, alone ? PyTuple_GET_ITEM(args, 0) : NULL, &facts) : 0;
    if (PyErr_Occurred()) return NULL;
    if (!simply) return PyObject_Vectorcall(enter_observed_in_python, given, 5, NULL);
    PyObject *frame = new_frame(tracer, module);
    if (frame == NULL || pass_by(SLOT(tracer, light_collector), name_module_enter, frame, facts) < 0) {
        Py_XDECREF(frame);
        return NULL;
    }
    put(tracer, light_frame, Py_NewRef(frame));
    put(tracer, light_forward_due, Py_NewRef(given[2] == Py_True ? Py_None : number));
    return frame;
}

/* LightTracer.leave_module(call, result) */
static PyObject *leave_observed(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "leave_module takes call and result");
        return NULL;
    }
    PyObject *tracer = given[0], *frame = given[1], *result = given[2], *facts = NULL;
    PyObject *parent = PyTuple_GET_ITEM(frame, 4);
    int simply = parent != Py_None && SLOT(tracer, light_edits) == Py_None;
    if (simply) simply = passes_by(tracer, PyLong_AsSsize_t(PyTuple_GET_ITEM(frame, 0)), result, &facts);
    if (simply < 0 || PyErr_Occurred()) return NULL;
    if (!simply) return PyObject_Vectorcall(leave_observed_in_python, given, 3, NULL);
    if (pass_by(SLOT(tracer, light_collector), name_module_exit, frame, facts) < 0) return NULL;
    put(tracer, light_forward_due, Py_NewRef(Py_None));
    put(tracer, light_frame, Py_NewRef(parent));
    return Py_NewRef(result);
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

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

static PyObject *configure(PyObject *module, PyObject *args, PyObject *given)
{
    PyObject **getters[] = {&version_getter, &requires_grad_getter, &is_quantized_getter, &is_cpu_getter, &is_cuda_getter};
    if (take_objects(OBJECTS, COUNT(OBJECTS), given) < 0 || are_getters(getters, COUNT(getters)) < 0) return NULL;
    if (find_slots(SLOTS, COUNT(SLOTS), given) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *configure_fastlog(PyObject *module, PyObject *args, PyObject *given)
{
    PyObject **getters[] = {&shape_getter, &dtype_getter, &device_getter};
    if (take_objects(OBJECTS_OF_FASTLOG, COUNT(OBJECTS_OF_FASTLOG), given) < 0) return NULL;
    if (are_getters(getters, COUNT(getters)) < 0) return NULL;
    if (find_slots(SLOTS_OF_FASTLOG, COUNT(SLOTS_OF_FASTLOG), given) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef FUNCTIONS[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS, "What is to be used."},
    {"configure_fastlog", (PyCFunction)(void (*)(void))configure_fastlog, METH_VARARGS | METH_KEYWORDS, "The same."},
    {NULL},
};

/* Methods of the class that they are put into. */
static PyMethodDef METHODS[] = {
    {"__torch_function__", (PyCFunction)(void (*)(void))record, METH_FASTCALL, "Record a torch call."},
    {"enter_module", (PyCFunction)(void (*)(void))enter_module, METH_FASTCALL, "A module call begins."},
    {"leave_module", (PyCFunction)(void (*)(void))leave_module, METH_FASTCALL, "A module call has returned."},
    {"observe", (PyCFunction)(void (*)(void))observe, METH_FASTCALL, "Observe a torch call."},
    {"enter_observed", (PyCFunction)(void (*)(void))enter_observed, METH_FASTCALL, "A module call begins."},
    {"leave_observed", (PyCFunction)(void (*)(void))leave_observed, METH_FASTCALL, "A module call has returned."},
};

static struct PyModuleDef DEFINITION = {PyModuleDef_HEAD_INIT, "_hot", "The hot path of a capture.", -1, FUNCTIONS};

PyMODINIT_FUNC PyInit__hot(void)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if ((*NAMES[i].place = PyUnicode_InternFromString(NAMES[i].text)) == NULL) return NULL;
    PyObject *module = PyModule_Create(&DEFINITION);
    if (module != NULL && PyModule_AddFunctions(module, PREPARING) < 0) Py_CLEAR(module);
    for (size_t i = 0; module != NULL && i < sizeof METHODS / sizeof *METHODS; i++) {
        PyObject *function = PyCFunction_New(&METHODS[i], NULL), *method = function ? PyInstanceMethod_New(function) : NULL;
        if (method == NULL || PyModule_AddObjectRef(module, METHODS[i].ml_name, method) < 0) Py_CLEAR(module);
        Py_XDECREF(function);
        Py_XDECREF(method);
    }
    return module;
}
