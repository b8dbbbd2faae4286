# SPDX-License-Identifier: MIT OR Apache-2.0
# Open MPI finds the component btl/esp in a folder of its own. Debian's mpirun would name PMIx's folder to its processes
# otherwise, so both are named here. Who has set either keeps it.
: "${OMPI_MCA_mca_base_component_path:=/usr/lib/enet/openmpi}"
: "${PMIX_MCA_mca_base_component_path:=/usr/lib/x86_64-linux-gnu/pmix2/lib/pmix}"
export OMPI_MCA_mca_base_component_path PMIX_MCA_mca_base_component_path
