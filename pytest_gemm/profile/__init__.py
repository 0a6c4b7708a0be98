"""Why a kernel takes its time: a GPU's counters beside what the kernel was predicted to do."""
