# SPDX-License-Identifier: MIT OR Apache-2.0
# Lets Open MPI find the component btl/esp in a separate directory. Otherwise Debian's mpirun passes
# PMIx's directory to its processes, so both are set here. Variables that are already set stay.
: "${OMPI_MCA_mca_base_component_path:=/usr/lib/enet/openmpi}"
: "${PMIX_MCA_mca_base_component_path:=/usr/lib/x86_64-linux-gnu/pmix2/lib/pmix}"
export OMPI_MCA_mca_base_component_path PMIX_MCA_mca_base_component_path
