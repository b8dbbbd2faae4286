/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The parts of Open MPI that the component uses. bindgen reads this header, and shims.c includes
 * it.
 */
#include "opal_config.h"

#include "opal/class/opal_bitmap.h"
#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/pmix/pmix-internal.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/proc.h"

/* Wrappers of Open MPI's macros and inline functions, for which bindgen makes no bindings. */
int enet_modex_send(const mca_base_component_t *component, const void *data, size_t length);
int enet_modex_receive(const mca_base_component_t *component, const opal_process_name_t *peer, void **data, size_t *length);
int enet_needs_buffers(const opal_convertor_t *convertor);
void enet_say(const char *sentence);
