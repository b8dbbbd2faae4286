/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "wrapper.h"

int enet_modex_send(const mca_base_component_t *component, const void *data, size_t length)
{
    int result;
    OPAL_MODEX_SEND(result, PMIX_GLOBAL, component, data, length);
    return result;
}

int enet_modex_receive(const mca_base_component_t *component, const opal_process_name_t *peer, void **data, size_t *length)
{
    int result;
    OPAL_MODEX_RECV(result, component, peer, data, length);
    return result;
}

int enet_needs_buffers(const opal_convertor_t *convertor) { return opal_convertor_need_buffers(convertor); }

/* Prints a sentence with mpirun --mca btl_base_verbose 1. */
void enet_say(const char *sentence) { opal_output_verbose(1, opal_btl_base_framework.framework_output, "%s", sentence); }
