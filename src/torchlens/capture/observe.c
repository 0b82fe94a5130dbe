/* fastlog's tracer in C: most calls are counted and named, no more.
 *
 * `observe`, `enter_observed` and `leave_observed` are methods of `LightTracer` wherever this could be compiled. What is
 * not common they hand to the same methods in Python, as hot.c does.
 */
#include "shared.h"

static PyObject *observe_in_python, *enter_observed_in_python, *leave_observed_in_python;
static PyObject *Event, *Frame, *facts_in_python, *is_library_file;

static const Given OBJECTS[] = {
    OBJECT(observe_in_python), OBJECT(enter_observed_in_python), OBJECT(leave_observed_in_python), OBJECT(Event),
    OBJECT(Frame), OBJECT(facts_in_python), OBJECT(is_library_file),
};

static Py_ssize_t light_busy, light_others, light_forward_due, light_about, light_asked, light_call_counts;
static Py_ssize_t light_collector, light_edits, light_frame, light_guarded, light_known, light_module_numbers;
static Py_ssize_t collector_history, collector_kept, collector_module_events, collector_run, collector_stopped;
static Py_ssize_t collector_tallies, collector_tallies_at, collector_total, tally_count, tally_kept_unasked;
static Py_ssize_t tally_looked_at, history_events, function_may_be_operator;

static const Slot SLOTS[] = {
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

static PyObject *name_first_seen, *name_note_parents, *name_op, *name_keep_unasked, *name_look, *name_end_if_stopped;
static PyObject *name_made_several, *name_before_overwriting, *name_overwrote, *name_append, *name_module_enter, *name_module_exit;

static const Word NAMES[] = {
    {"_first_seen", &name_first_seen}, {"_note_parents", &name_note_parents}, {"op", &name_op},
    {"keep_unasked", &name_keep_unasked}, {"look", &name_look}, {"end_if_stopped", &name_end_if_stopped},
    {"_made_several", &name_made_several}, {"_before_overwriting", &name_before_overwriting},
    {"_overwrote", &name_overwrote}, {"append", &name_append}, {"module_enter", &name_module_enter},
    {"module_exit", &name_module_exit},
};

/* ---- calls of torch functions ----------------------------------------------------------------------------------- */

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
        PyObject *instruction = PyLong_FromLong(instruction_of(frame));
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
    for (size_t i = 0; i < COUNT(own); i++) Py_XDECREF(own[i]);
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

/* ---- calls of modules ------------------------------------------------------------------------------------------- */

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

/* ---- what Python gives ------------------------------------------------------------------------------------------ */

static PyObject *configure_observing(PyObject *self, PyObject *args, PyObject *given)
{
    if (take_objects(OBJECTS, COUNT(OBJECTS), given) < 0 || find_slots(SLOTS, COUNT(SLOTS), given) < 0) return NULL;
    if (make_words(NAMES, COUNT(NAMES)) < 0) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef OBSERVING[] = {
    {"configure_observing", NAMED(configure_observing), "What is to be used for observing."},
    {NULL},
};

PyMethodDef OBSERVING_METHODS[] = {
    {"observe", FAST(observe), "Observe a torch call."},
    {"enter_observed", FAST(enter_observed), "A module call begins."},
    {"leave_observed", FAST(leave_observed), "A module call has returned."},
    {NULL},
};
